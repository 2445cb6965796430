"""The probe of PyTorch layers against full singular value decompositions, and the network of the paper."""

import numpy as np
import pytest

from penchant.errors import ArgumentError

torch = pytest.importorskip("torch")
from penchant.bridge.torch import (  # noqa: E402
    Probe,
    dense,
    equalise,
    small_alexnet,
    template_images,
    train_probed,
)


def test_the_network_has_the_stated_dense_layers_and_starts():
    network = small_alexnet(hidden=64)
    assert Probe(network, layers=dense(network)).shapes == ((64, 1024), (64, 64), (10, 64))
    reduced = small_alexnet(0.25, 256)
    probe = Probe(reduced, layers=dense(reduced))
    # PyTorch draws uniformly in +-1/sqrt(inputs), so the squared norm is outputs/3 up to sampling (1 % for 65 536 entries)
    np.testing.assert_allclose(probe.frobenius[0, :2], np.sqrt(256 / 3), rtol=0.01)
    expected = [sum(1 / np.sqrt(size) for size in shape) for shape in probe.shapes]
    np.testing.assert_allclose(
        probe.ratio[0], expected, rtol=0.05
    )  # the edge of the spectrum fluctuates like size^(-2/3)
    equalise(reduced, 4.0)
    probe.record(0.0)
    np.testing.assert_allclose(probe.frobenius[1], 4.0, rtol=1e-6)
    assert all(not layer.bias.any() for layer in reduced if isinstance(layer, torch.nn.Linear))


def test_training_lowers_the_loss_and_records_every_epoch():
    torch.manual_seed(0)
    images, labels = template_images(64, 0.1)
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3072, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)
    )
    probe = train_probed(network, images, labels, rate=0.02, epochs=8)
    assert len(probe.losses) == len(probe.ratio) == 9
    assert probe.losses[0] == pytest.approx(np.log(10), rel=0.2)  # a fresh classifier knows nothing
    assert probe.losses[-1] < 0.5 * probe.losses[0]


def test_a_gradient_flow_without_biases_conserves_the_differences_of_squared_norms():
    torch.manual_seed(1)
    linear = lambda *size: torch.nn.Linear(*size, bias=False)
    network = torch.nn.Sequential(linear(8, 6), torch.nn.ReLU(), linear(6, 5), torch.nn.ReLU(), linear(5, 10))
    images, labels = torch.randn(32, 8), torch.randint(0, 10, (32,))
    probe = train_probed(network, images, labels, rate=1e-3, epochs=200, batch=32, momentum=0.0)
    moved = np.abs(np.diff(probe.frobenius**2, axis=0)).sum(axis=0)
    drift = np.abs(probe.differences[-1] - probe.differences[0]).max()
    assert drift < 0.02 * moved.max()  # second order in the step


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Probe(torch.nn.ReLU()), "'module'"),
        (lambda: small_alexnet(0.0), "'width'"),
        (lambda: equalise(torch.nn.Linear(2, 2), -1.0), "'size'"),
        (lambda: template_images(0), "'count'"),
    ],
)
def test_bad_calls_are_refused_by_name(call, word):
    with pytest.raises(ArgumentError, match=word):
        call()


def test_a_network_that_has_diverged_is_named_and_the_number_of_threads_is_given_back():
    threads = torch.get_num_threads()
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
    images, labels = template_images(seed=0)
    with pytest.raises(ArgumentError, match="smaller learning rate"):
        train_probed(module, 1e20 * images, labels, rate=1e30, epochs=2)
    assert torch.get_num_threads() == threads
