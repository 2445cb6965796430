"""Bad arguments of regressions, their references and diagnostics: errors that name the argument; and square models off regressions."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError

DATA, _ = pt.settings.sparse_regression(4, 8, 2)

CASES = {
    "more signals than columns": (lambda: pt.settings.sparse_regression(4, 8, 9), "sparsity"),
    "alpha of another length": (lambda: pt.Setting(DATA, pt.SignedSquares([1, 2]), pt.Squared()).start(), "alpha"),
    "alpha of another length, squares": (lambda: pt.Setting(DATA, pt.Squares([1, 2]), pt.Squared()).start(), "alpha"),
    "alpha in words": (lambda: pt.SignedSquares("x"), "alpha"),
    "no alpha": (lambda: pt.Squares(None), "alpha"),
    "alpha of the potential in words": (lambda: pt.settings.q_alpha("x", 8), "alpha"),
    "no coordinates": (lambda: pt.settings.q_alpha(1.0, 0), "d"),
    "potential of other coordinates": (
        lambda: pt.references.minimum_potential(DATA, pt.settings.q_alpha(1.0, 5)),
        "potential",
    ),
    "half a column": (lambda: pt.diagnostics.restricted_isometry(DATA.inputs, 2.5), "sparsity"),
    "one tiny sample": (lambda: pt.Regression([[1.0, 2.0], [1e-300, 2e-300]], [1.0, 1.0]), "inputs"),
    "infinite costs": (lambda: pt.references.basis_pursuit(DATA, np.full(8, np.inf)), "weights"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_argument_is_named(case):
    call, argument = CASES[case]
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == argument


def test_the_flow_of_squares_on_classification_maximises_the_l1_margin():
    """The two coordinates of the one sample: all weight goes to the longer one."""
    setting = pt.Setting(pt.Classification([[2.0, 1.0]], [1]), pt.SignedSquares(0.1), pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e4))
    assert run.status is pt.training.Status.reached_target
    assert run.weight()[1] / run.weight()[0] < 0.05


def test_weights_beyond_the_range_of_squares_are_not_the_fault_of_alpha():
    """A sample of size 1e-99 with a target of 1e100 needs coefficients of 1e199."""
    data = pt.Regression([[1.0, 2.0, 0.0], [1e-99, 0.0, 1e-99]], [1.0, 1e100])
    assert not pt.references.minimum_potential(data, pt.settings.q_alpha(0.01, 3)).certified
