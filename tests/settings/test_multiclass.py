"""Multiclass data: margins, adjoint, losses in logarithms, agreement with binary data, and bad input."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, NotSeparableError, PenchantWarning
from penchant.references.euclidean_margin import max_margin
from penchant.settings import CrossEntropy, Multiclass, PolynomialTail, clusters
from penchant.testing import check_problem

DATA = clusters(4, 8, 12)
LOSSES = {"cross-entropy": CrossEntropy(), "exponential": pt.Exponential(), "pairwise": pt.Logistic()}


@pytest.mark.parametrize("loss", [*LOSSES.values(), PolynomialTail(2.0)], ids=lambda loss: type(loss).__name__)
def test_the_data_keep_the_contract(loss):
    check_problem(pt.Setting(DATA, pt.Direct(), loss))


def test_margins_come_by_sample_and_class_and_the_adjoint_is_theirs():
    rng = np.random.default_rng(0)
    weight, multipliers = jnp.asarray(rng.standard_normal((4, 8))), jnp.asarray(rng.random(36))
    logits, labels = np.asarray(DATA.inputs @ weight.T), np.asarray(DATA.labels)
    wanted = [logits[i, labels[i]] - logits[i, c] for i in range(12) for c in range(4) if c != labels[i]]
    margins = np.asarray(DATA.margins(weight))
    assert np.allclose(margins, wanted, rtol=0, atol=1e-13)
    assert margins @ multipliers == pytest.approx(np.vdot(weight, DATA.adjoint(multipliers)), rel=1e-13)
    left, right = (np.asarray(part) for part in DATA.pairs())
    assert np.allclose(np.einsum("na,ab,nb->n", left, weight, right), wanted, atol=1e-13)
    assert (
        np.abs(np.asarray(DATA.margins(weight + jnp.asarray(rng.standard_normal((1, 8))))) - wanted).max() < 1e-13
    )  # shift invariance
    size, pull = DATA.sizes(np.asarray(weight), np.asarray(multipliers))
    assert (size >= np.abs(margins)).all()
    assert (pull >= np.abs(DATA.adjoint(multipliers))).all()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("size", [0.1, 30.0, 4000.0])
def test_the_logarithm_of_a_loss_agrees_with_many_digits(name, size):
    margins = size * np.random.default_rng(1).random(36)
    mpmath.mp.dps = 2500 if size > 100 else 80
    rows = [[mpmath.exp(-mpmath.mpf(float(m))) for m in row] for row in margins.reshape(12, 3)]
    of_row = {
        "cross-entropy": lambda row: mpmath.log(1 + sum(row)),
        "exponential": sum,
        "pairwise": lambda row: sum(mpmath.log(1 + x) for x in row),
    }[name]
    wanted = float(mpmath.log(sum(map(of_row, rows)) / 12))
    found = float(pt.Setting(DATA, pt.Direct(), LOSSES[name]).weigh(jnp.asarray(margins)).log_excess)
    assert found == pytest.approx(wanted, abs=4e-15 * max(1.0, size))


def test_weights_sum_to_one_for_the_exponential_loss_and_nearly_so_for_cross_entropy():
    margins = jnp.asarray(np.random.default_rng(2).random(36) * 5)
    assert float(DATA.weigh(margins, pt.Exponential()).weights.sum()) == pytest.approx(1.0, rel=1e-14)
    found = pt.Setting(DATA, pt.Direct(), CrossEntropy()).weigh(margins)
    share = float(found.weights.sum())
    assert 1 - 12 * np.exp(float(found.log_excess)) / 2 <= share <= 1


def test_two_classes_are_binary_classification_twice():
    rng = np.random.default_rng(3)
    inputs, labels = rng.standard_normal((6, 4)), np.array([0, 1, 0, 1, 1, 0])
    binary, both = pt.Classification(inputs, 1 - 2 * labels), Multiclass(inputs, labels)
    weight = jnp.asarray(rng.standard_normal(4))
    assert np.allclose(both.margins(jnp.array([weight, -weight]) / 2), binary.margins(weight), rtol=1e-14)
    separable = inputs + 4 * np.outer(1 - 2 * labels, np.ones(4))
    one = max_margin(pt.Classification(separable, 1 - 2 * labels)).margin
    assert max_margin(Multiclass(separable, labels)).margin == pytest.approx(np.sqrt(2) * one, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        (([1.0, 2.0], [0, 1]), "inputs"),
        (([[np.nan], [1.0]], [0, 1]), "inputs"),
        (([[2.0], [1.0]], [0, 0]), "labels"),
        (([[2.0], [1.0]], [0, 0.5]), "labels"),
        (([[2.0], [1.0]], [0, -1]), "labels"),
        (([[2.0], [1.0]], [0, 2], 2), "labels"),
        (([[2.0], [1.0]], [0, 1, 2]), "labels"),
        (([[2.0], [1.0]], [0, 1], 1), "classes"),
    ],
)
def test_bad_input_is_named(arguments, argument):
    with pytest.raises(ArgumentError, match=f"'{argument}' argument of Multiclass"):
        Multiclass(*arguments)


def test_an_empty_class_warns_and_keeps_its_margins():
    with pytest.warns(PenchantWarning, match=r"1 class\(es\) without a sample \(1\)"):
        data = Multiclass([[1.0, 0.0], [0.0, 1.0]], [0, 2])
    assert data.weight_shape == (3, 2)
    assert max_margin(data).margin > 0


def test_a_loss_that_does_not_fit_is_refused():
    for data, loss in ((DATA, pt.Squared()), (pt.Classification([[1.0]], [1]), CrossEntropy())):
        with pytest.raises(ArgumentError, match="'loss' argument"):
            pt.Setting(data, pt.Direct(), loss)


def test_inseparable_data_come_with_the_proof():
    data = Multiclass([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0, 1, 2])
    with pytest.raises(NotSeparableError, match=r"sample 0 \(class 0\), sample 1 \(class 1\)") as error:
        max_margin(data)
    proof = error.value.weights
    assert proof.min() >= 0
    assert np.abs(np.asarray(data.adjoint(jnp.asarray(proof)))).max() < 1e-15
    with pytest.raises(NotSeparableError, match="the input of sample 1 is zero"):
        max_margin(Multiclass([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [0, 1, 2]))
