"""Any optax transformation trains linear, token and deep linear settings."""

import pytest

import penchant as pt
from penchant.testing import check_optimiser

optax = pytest.importorskip("optax")
from penchant.bridge.optax import OptaxDescent  # noqa: E402

POINTS = pt.Classification([[0.9, 0.2, 0.3], [0.1, -0.8, 0.2]], [1, -1])
TOKENS = pt.TokenSelection([[[2.0, 0.3], [0.5, 1.0], [0.1, -1.0]]], scores=[[1.0, 0.2, 0.4]])
SETTINGS = {
    "linear": pt.Setting(POINTS, pt.Direct(), pt.Logistic()),
    "tokens": pt.Setting(TOKENS, pt.KeyQuery(), pt.Exponential()),
    "deep linear": pt.Setting(POINTS, pt.DeepLinear((3, 2)), pt.Logistic()),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("make", [optax.adam, optax.lion], ids=["adam", "lion"])
def test_transformations_conform(name, make):
    check_optimiser(OptaxDescent(make(0.01)), SETTINGS[name])
