"""Arguments of a wrong kind are named, and what the library offers has every part that training asks for."""

import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.norms import L1
from penchant.optimisers.base import Accelerated, Adam, Descent, Optimiser
from penchant.optimisers.layerwise import LayerDescent
from penchant.references.linear_programs import polyhedral_margin
from penchant.references.norm_margin import nuclear_margin
from penchant.settings.base import Data, Parametrisation
from penchant.settings.deep_linear import DeepLinear
from penchant.settings.factored import DiagonalTokens, Hadamard, KeyQuery, PlusMinus
from penchant.settings.parametrisations import SignedSquares, Squares

POINTS = pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
FIT = pt.Regression([[1.0, 1.0]], [2.0])
TOKENS = pt.TokenSelection([[[2.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.0]])
SETTING = pt.Setting(POINTS, pt.Direct(), pt.Exponential())

WRONG = {
    "a name for a parametrisation": (
        lambda: pt.Setting(POINTS, "direct", pt.Exponential()),
        "'parametrisation'.*'direct'",
    ),
    "a class for a parametrisation": (
        lambda: pt.Setting(POINTS, pt.Direct, pt.Exponential()),
        "the class Direct itself",
    ),
    "a list for data": (
        lambda: pt.Setting([[1.0]], pt.Direct(), pt.Exponential()),
        "'data' argument of Setting.*a list",
    ),
    "data for a setting in training": (lambda: pt.train(POINTS, pt.GradientFlow(), steps=1), "a Classification"),
    "data for a setting in prediction": (lambda: pt.predict(POINTS, pt.GradientFlow()), "'setting'.*a Classification"),
    "a name for an optimiser": (lambda: pt.predict(SETTING, "flow"), "'optimiser' argument of predict.*'flow'"),
    "a class for an optimiser": (lambda: pt.train(SETTING, Adam, steps=1), "the class Adam itself"),
    "a setting for a prediction": (lambda: pt.judge(SETTING, None), "'prediction'.*a Setting"),
    "a setting for data": (lambda: pt.references.max_margin(SETTING), "pass `setting.data`"),
    "a regression for margins": (lambda: pt.references.max_margin(FIT), "minimum_norm"),
    "points for targets": (
        lambda: pt.references.minimum_norm(POINTS),
        "'data' argument of minimum_norm.*a Classification",
    ),
    "points for tokens": (lambda: nuclear_margin(POINTS), "a TokenSelection"),
    "text for data": (lambda: pt.bracket("points", [1.0], [1.0]), "'data' argument of bracket"),
    "a list for points": (lambda: polyhedral_margin([[1.0]], L1()), "'data' argument of polyhedral_margin"),
}


@pytest.mark.parametrize(("call", "words"), WRONG.values(), ids=WRONG)
def test_an_argument_of_a_wrong_kind_is_named(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


@pytest.mark.parametrize("data", [POINTS, FIT, TOKENS, DiagonalTokens(TOKENS)], ids=lambda data: type(data).__name__)
def test_data_have_every_part(data):
    assert isinstance(data, Data)


@pytest.mark.parametrize(
    "kind", [pt.Direct, pt.settings.Gram, KeyQuery, Hadamard, PlusMinus, Squares, SignedSquares, DeepLinear]
)
def test_parametrisations_have_every_part(kind):
    assert not [part for part in dir(Parametrisation) if not part.startswith("_") and not hasattr(kind, part)]


@pytest.mark.parametrize("kind", [Descent, Accelerated, Adam, LayerDescent])
def test_optimisers_have_every_part(kind):
    assert not [part for part in dir(Optimiser) if not part.startswith("_") and not hasattr(kind, part)]
