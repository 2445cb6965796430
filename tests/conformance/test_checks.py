"""The public conformance checks on what penchant itself offers, and on things that break one rule each."""

import equinox as eqx
import pytest

import penchant as pt
from penchant.errors import UnknownLimit
from penchant.optimisers.base import Adam
from penchant.papers import PAPERS, theorems
from penchant.settings.factored import DiagonalTokens
from penchant.testing import ConformanceError, check_contents, check_optimiser, check_problem, check_theorem
from penchant.theory.base import choose

POINTS = pt.Classification([[0.9, 0.2, 0.3], [0.1, -0.8, 0.2]], [1, -1])
FIT = pt.Regression([[1.0, 2.0, 0.5], [0.5, -1.0, 2.0]], [1.0, 2.0])
TOKENS = pt.TokenSelection([[[2.0, 0.3], [0.5, 1.0], [0.1, -1.0]]], scores=[[1.0, 0.2, 0.4]])
LINEAR = pt.Setting(POINTS, pt.Direct(), pt.Exponential())
SETTINGS = {
    "linear": LINEAR,
    "logistic": pt.Setting(POINTS, pt.Direct(), pt.Logistic(), "sum"),
    "deep": pt.Setting(POINTS, pt.DeepLinear((3, 2)), pt.Logistic()),
    "tokens": pt.Setting(TOKENS, pt.Direct(), pt.Exponential()),
    "key-query": pt.Setting(TOKENS, pt.KeyQuery(), pt.Exponential()),
    "diagonal": pt.Setting(DiagonalTokens(TOKENS), pt.Hadamard(), pt.Exponential()),
    "fit": pt.Setting(FIT, pt.Direct(), pt.Squared()),
    "squares": pt.Setting(FIT, pt.SignedSquares(0.1), pt.Squared()),
}
OPTIMISERS = {
    "gd": pt.gradient_descent(0.1),
    "ngd": pt.normalised_descent(0.05),
    "momentum": pt.momentum(0.01),
    "polyak": pt.polyak(),
    "sign": pt.sign_descent(0.01),
    "adam": Adam(0.01, 1e-8),
    "accelerated": pt.Accelerated(0.1),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_problems_conform(name):
    check_problem(SETTINGS[name])


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_conform(name):
    check_optimiser(OPTIMISERS[name], LINEAR)


@pytest.mark.parametrize("name", ["linear", "tokens", "key-query"])
def test_theorems_conform(name):
    setting, flow = SETTINGS[name], pt.GradientFlow()
    theorem = pt.predict(setting, flow).theorem
    check_theorem(theorem, setting, flow)


def answer(order, setting, optimiser):
    """The theorem or conjecture, or nothing where no candidate for the limit is known."""
    try:
        return choose(order, setting, optimiser)
    except UnknownLimit:
        return None


@pytest.mark.filterwarnings("ignore::penchant.errors.PenchantWarning")  # of data on which little is proved
@pytest.mark.parametrize("name", SETTINGS)
def test_the_order_of_papers_decides_nothing(name):
    """At most one theorem covers an optimiser, at most one family answers where none does, and every answer says which of the two it is."""
    setting, listed = SETTINGS[name], tuple(theorems())
    for optimiser in (pt.GradientFlow(), *OPTIMISERS.values()):
        assert sum(theorem.applies(setting, optimiser) for theorem in listed) <= 1
        first, second = (answer(order, setting, optimiser) for order in (listed, listed[::-1]))
        if first is None:
            assert second is None
            continue
        assert (first.name, first.family) == (second.name, second.family)
        if not first.applies(setting, optimiser) or first not in listed:
            assert first.name.endswith("conjecture")
            assert first.predict(setting, optimiser).hypothesis("optimiser_covered").holds is False


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_tables_of_contents_conform(paper):
    check_contents(paper)


class _Bent(pt.Classification):
    def adjoint(self, coefficients):
        return 2 * super().adjoint(coefficients)


class _Uphill(eqx.Module):
    inner: object
    coordinatewise: bool = eqx.field(static=True, default=False)

    def init(self, tangent):
        return self.inner.init(tangent)

    def move(self, reading, memory, count):
        move = self.inner.move(reading, memory, count)
        return eqx.tree_at(lambda one: one.displacement, move, -move.displacement)


def test_a_wrong_adjoint_is_found():
    with pytest.raises(ConformanceError, match="`adjoint` is not that of `margins`"):
        check_problem(pt.Setting(_Bent([[2.0, 0.5], [0.1, -1.0]], [1, -1]), pt.Direct(), pt.Logistic()))


def test_an_optimiser_that_climbs_is_found():
    with pytest.raises(ConformanceError, match="the loss did not fall"):
        check_optimiser(_Uphill(pt.gradient_descent(1e-3)), LINEAR)


def test_a_theorem_that_does_not_apply_is_found():
    theorem = pt.predict(LINEAR, pt.GradientFlow()).theorem
    with pytest.raises(ConformanceError, match="does not apply"):
        check_theorem(theorem, SETTINGS["tokens"], pt.GradientFlow())
