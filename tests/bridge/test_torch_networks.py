"""The recorded training loop: its records agree with what they stand for."""

import numpy as np
import pytest

from penchant.errors import ArgumentError

torch = pytest.importorskip("torch")
from penchant.bridge.torch_experiments import group_norms, train_network  # noqa: E402
from penchant.bridge.torch_networks import GROUPS, VisionTransformer, digits  # noqa: E402
from penchant.bridge.torch_optimisers import SNGD, SPSmax  # noqa: E402


def small():
    return VisionTransformer(side=8, patch=4, width=8, depth=1, heads=2)


def test_digits_are_split_without_overlap_and_by_seed():
    (train, labels), (test, _) = digits()
    assert (len(train), len(test)) == (1400, 397)
    assert (train.min().item(), train.max().item()) == (-1.0, 1.0)
    assert sorted(set(labels.tolist())) == list(range(10))
    again, other = digits()[0][0], digits(seed=1)[0][0]
    assert torch.equal(train, again)
    assert not torch.equal(train, other)
    with pytest.raises(ArgumentError, match="train"):
        digits(2000)


def test_every_parameter_belongs_to_a_group_and_the_norms_add_up():
    network = small()
    norms = group_norms(network)
    assert set(norms) == set(GROUPS)
    total = sum(float(p.detach().double().square().sum()) for p in network.parameters())
    assert sum(value**2 for value in norms.values()) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("make", [lambda p: SNGD(p, 0.1), lambda p: SPSmax(p, 0.5), lambda p: torch.optim.SGD(p, 0.1)])
def test_records_are_those_of_the_steps(make):
    (images, labels), test = digits()
    train, network = (images[:200], labels[:200]), small()
    run = train_network(network, train, test, make(network.parameters()), epochs=3, batch=50)
    assert len(run["batch_loss"]) == len(run["displacement"]) == 12
    assert len(run["train_loss"]) == len(run["test_accuracy"]) == len(run["norms"]["head"]) == 4
    assert run["train_loss"][-1] < run["train_loss"][0]
    known = np.isfinite(run["step_size"])
    moved = np.asarray(run["step_size"])[known] * np.asarray(run["gradient_norm"])[known]
    np.testing.assert_allclose(np.asarray(run["displacement"])[known], moved, rtol=1e-3)  # float32 differences


def test_the_same_seed_trains_the_same_network():
    ends = []
    for _ in range(2):
        network, (train, test) = small(), digits(100)
        run = train_network(network, train, test, SNGD(network.parameters(), 0.1), epochs=1, batch=50, seed=3)
        ends.append(run["train_loss"])
    assert ends[0] == ends[1]


@pytest.mark.parametrize(("name", "sizes"), [("patch", (3, 8, 2)), ("heads", (4, 8, 3))])
def test_sizes_that_do_not_divide_are_named(name, sizes):
    patch, width, heads = sizes
    with pytest.raises(ArgumentError, match=name):
        VisionTransformer(side=8, patch=patch, width=width, depth=1, heads=heads)
