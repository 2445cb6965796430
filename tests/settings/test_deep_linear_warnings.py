"""What deep linear networks say without refusing to work."""

import warnings

import numpy as np
import pytest

import penchant as pt
from penchant.errors import PenchantWarning
from penchant.optimisers.layerwise import sharp_smoothness, smoothness
from penchant.settings.deep_linear import deep_linear


def test_float32_inputs_are_computed_in_float64_and_announced():
    with pytest.warns(PenchantWarning, match="float32"):
        setting = deep_linear(np.array([[0.5, 0.1], [0.1, 0.5]], np.float32), [1, 1], (3,), pt.Logistic())
    assert setting.data.signed.dtype == np.float64


def test_repeated_points_are_named():
    inputs = [[0.5, 0.1], [0.1, 0.5], [-0.5, -0.1]]
    with pytest.warns(PenchantWarning, match="Samples 0 and 2"):
        deep_linear(inputs, [1, 1, -1], (3,), pt.Logistic())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deep_linear(inputs, [1, 1, 1], (3,), pt.Logistic())


def test_the_bound_of_the_paper_is_announced_where_it_does_not_hold():
    with pytest.warns(PenchantWarning, match="at least 1"):
        below = smoothness(0.1, 3)
    with pytest.warns(PenchantWarning, match="at least 1"):
        assert smoothness(np.float32(0.1), 3) == pytest.approx(below)
    assert below < sharp_smoothness(0.1, 3)  # which is why: it would promise too much
    assert smoothness(1.0, 3) == pytest.approx(22.5)


def test_a_setting_says_what_deep_linear_says():
    single = np.array([[0.5, 0.1], [0.5, 0.1]], np.float32)
    with pytest.warns(PenchantWarning) as caught:
        pt.Setting(pt.Classification(3 * single, [1, 1]), pt.DeepLinear((3,)), pt.Logistic())
    texts = " ".join(str(one.message) for one in caught)
    assert all(words in texts for words in ("float32", "norm 1.529705", "Samples 0 and 1"))
    with pytest.warns(PenchantWarning) as caught:
        deep_linear(3 * single, [1, 1], (3,), pt.Logistic(), normalise=True)
    assert [str(one.message)[:10] for one in caught] == ["The inputs", "Samples 0 "]
