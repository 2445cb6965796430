"""The probe of PyTorch layers against full singular value decompositions, and the network of the paper."""

import numpy as np
import pytest

from penchant.errors import ArgumentError

torch = pytest.importorskip("torch")
from penchant.bridge.torch_networks import dense, equalise, small_alexnet  # noqa: E402
from penchant.bridge.torch_probe import Probe  # noqa: E402


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
    equalise(reduced)
    probe.record(0.0)
    np.testing.assert_allclose(probe.frobenius[1], 4.0, rtol=1e-6)
    assert all(not layer.bias.any() for layer in reduced if isinstance(layer, torch.nn.Linear))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Probe(torch.nn.ReLU()), "'model'"),
        (lambda: small_alexnet(0.0), "'width'"),
    ],
)
def test_bad_calls_are_refused_by_name(call, word):
    with pytest.raises(ArgumentError, match=word):
        call()
