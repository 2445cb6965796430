"""Next-token prediction: the entropy floor, an excess without cancellation, two arrays, and the margin outside the supports."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, FiniteLimit, NotSeparableError
from penchant.references.euclidean_margin import max_margin
from penchant.settings import CrossEntropy, InsideOutside, NextToken
from penchant.testing import check_problem

CONTEXTS = np.random.default_rng(5).standard_normal((3, 5))
WEIGHTS, TARGETS = (0.5, 0.3, 0.2), ((0.6, 0.4, 0, 0), (0, 0.25, 0.75, 0), (0.5, 0, 0, 0.5))
DATA = NextToken(CONTEXTS, WEIGHTS, TARGETS)
SETTING = pt.Setting(DATA, InsideOutside(), CrossEntropy())


@pytest.mark.parametrize("parametrisation", [InsideOutside(), pt.Direct()])
def test_the_data_keep_the_contract(parametrisation):
    check_problem(pt.Setting(DATA, parametrisation, CrossEntropy()))


def test_floor_data_weight_and_reference_are_those_of_the_table():
    assert DATA.floor == pytest.approx(0.6438358130, abs=5e-11)
    assert np.linalg.norm(DATA.data_weight) == pytest.approx(0.38059498, abs=5e-9)
    found = max_margin(DATA.outside())
    assert found.value == pytest.approx(1.40325478, abs=5e-9)
    weight = found.weight.reshape(4, 5)
    assert np.abs(DATA.onto(jnp.asarray(weight))[0]).max() < 1e-14  # orthogonal to all in-support features
    assert np.asarray(DATA.margins(weight + DATA.data_weight))[np.asarray(DATA.inside).ravel()] == pytest.approx(
        0, abs=1e-14
    )


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-7])
def test_the_excess_agrees_with_many_digits(size):
    rng = np.random.default_rng(0)
    weight = (
        DATA.data_weight
        + size * rng.standard_normal((4, 5))
        + 30 / size**0 * max_margin(DATA.outside()).weight.reshape(4, 5)
    )
    params = InsideOutside().from_weight(weight, DATA)
    mpmath.mp.dps = 60
    exact = mpmath.matrix(np.asarray(InsideOutside().weight(params, DATA)).tolist())
    loss = mpmath.mpf(0)
    for context, share, target in zip(CONTEXTS, WEIGHTS, TARGETS, strict=True):
        logits = exact * mpmath.matrix(context.tolist())
        total = mpmath.log(sum(mpmath.exp(a) for a in logits))
        loss += share * sum(
            mpmath.mpf(p) * (total - a + mpmath.log(p)) for p, a in zip(target, logits, strict=True) if p
        )
    found = float(SETTING.weigh(SETTING.margins(params)).log_excess)
    assert found == pytest.approx(float(mpmath.log(loss)), abs=1e-6 if size < 1e-5 else 1e-10)


def test_gradient_flow_fits_the_frequencies_and_turns_to_the_margin():
    run = pt.train(SETTING, pt.GradientFlow(), until=pt.LogTimeAbove(18.0))
    svm, inside, outside = max_margin(DATA.outside()).weight, run.params.inside[-1], np.ravel(run.params.outside[-1])
    assert np.linalg.norm(inside) == pytest.approx(7.96e-9, rel=1e-2)
    assert 1 - outside @ svm / np.linalg.norm(outside) / np.linalg.norm(svm) == pytest.approx(8.113e-4, rel=1e-3)
    assert np.linalg.norm(outside) / np.linalg.norm(svm) == pytest.approx(17.235, abs=1e-3)


def test_full_supports_have_a_finite_limit_and_no_margin():
    data = NextToken(CONTEXTS, WEIGHTS, np.full((3, 4), 0.25))
    assert data.attained
    assert np.abs(data.data_weight).max() == 0
    with pytest.raises(FiniteLimit, match="no margin grows"):
        data.outside()


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ((CONTEXTS, WEIGHTS, ((0.6, 0.3, 0, 0), *TARGETS[1:])), "targets"),
        ((CONTEXTS, WEIGHTS, ((1.6, -0.6, 0, 0), *TARGETS[1:])), "targets"),
        ((CONTEXTS, (0.5, 0.3, 0.3), TARGETS), "weights"),
        ((CONTEXTS, (1.0, 0.0, 0.0), TARGETS), "weights"),
        ((CONTEXTS, WEIGHTS[:2], TARGETS), "weights"),
        ((CONTEXTS[:, 0], WEIGHTS, TARGETS), "contexts"),
    ],
)
def test_bad_input_is_named(arguments, argument):
    with pytest.raises(ArgumentError, match=f"'{argument}' argument of NextToken"):
        NextToken(*arguments)


def test_incompatible_and_inseparable_data_are_refused():
    same = np.ones((2, 1))
    with pytest.raises(ArgumentError, match="log-odds that no weight fits: one is missed by"):
        NextToken(same, (0.5, 0.5), ((0.5, 0.5), (0.25, 0.75)))
    inseparable = NextToken(same, (0.5, 0.5), ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))
    with pytest.raises(NotSeparableError):
        max_margin(inseparable.outside())
    with pytest.raises(ArgumentError, match="CrossEntropy"):
        pt.Setting(DATA, pt.Direct(), pt.Logistic())
    with pytest.raises(ArgumentError, match="NextToken data"):
        pt.Setting(pt.Classification([[1.0]], [1]), InsideOutside(), pt.Logistic())
