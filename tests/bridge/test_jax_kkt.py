"""The meter on a function of JAX arrays: its degree of homogeneity."""

import numpy as np
import pytest

from penchant.bridge.jax_kkt import JaxGradients
from penchant.bridge.kkt import homogeneity
from penchant.papers.networks.claims import signed_squares


def biased(params, inputs):
    return signed_squares(params, inputs) + params["b"]


@pytest.mark.parametrize("function", [signed_squares, biased])
def test_both_ways_measure_the_degree_of_the_layers(rng, function):
    """Euler's identity and the scaling by 1/2, 2 and 4; a bias in front of the output, of degree 1, shows in both."""
    params = {"U": rng.standard_normal((8, 4)), "v": np.array([1.0, -1.0] * 4), "b": np.ones(())}
    params = params if function is biased else {name: params[name] for name in "Uv"}
    found = homogeneity(JaxGradients(function, params, rng.standard_normal((4, 4)), np.array([1, -1, 1, -1])))
    errors = np.array([abs(found.degree - 3), found.defect, found.scaling_defect])
    assert errors.max() > 1e-2 if function is biased else errors.max() < 1e-12
