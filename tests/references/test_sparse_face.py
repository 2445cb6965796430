"""Faces of l1 solutions: by SciPy, and where there is one solution only."""

import numpy as np
import pytest
from scipy.optimize import linprog

import penchant as pt

_FACE, _WIDE = 7, 14  # columns that touch the bound of the dual solution, and all of them


def face_problem(nonnegative=False):
    """Four samples whose first row is a dual solution: seven columns touch its bound, so that the l1 solutions have three dimensions."""
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((4, _WIDE))
    signs = np.ones(_WIDE) if nonnegative else rng.choice([-1.0, 1.0], _WIDE)
    inputs[0] = np.where(np.arange(_WIDE) < _FACE, signs, rng.uniform(-0.6, 0.6, _WIDE))
    weight = np.where(np.arange(_WIDE) < _FACE, signs * rng.uniform(0.05, 1.5, _WIDE), 0.0)
    return pt.Regression(inputs, inputs @ weight)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_face_is_what_linear_programs_can_make_nonzero(nonnegative):
    data = face_problem(nonnegative)
    inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)
    least, d = pt.references.basis_pursuit(data, nonnegative=nonnegative).value, inputs.shape[1]
    rows = np.vstack([np.hstack([inputs, -inputs]), np.ones(2 * d)])
    most = lambda j: -linprog(-np.eye(2 * d)[j], A_eq=rows, b_eq=np.append(targets, least)).fun
    signs = [np.sign(most(j) - most(d + j)) if max(most(j), most(d + j)) > 1e-6 else 0.0 for j in range(d)]
    assert pt.references.sparse_face(data, nonnegative=nonnegative).tolist() == signs


def test_a_unique_solution_is_its_own_face():
    data, weight = pt.settings.sparse_regression(6, 12, 1, 0)
    assert pt.references.sparse_face(data).tolist() == np.sign(weight).tolist()


def test_predictions_name_the_point_that_small_starts_select():
    flat = pt.Regression([[1.0, 1.0, 0.5]], [1.0])
    note = lambda model: pt.predict(pt.Setting(flat, model, pt.Squared()), pt.GradientFlow()).notes[0]
    assert note(pt.SignedSquares(0.1)).endswith("small starts select the one of largest entropy, with 2 coefficients")
    assert "largest sum of |theta|^(2/3), with 2" in note(pt.settings.SignedPowers(0.1))
    near = pt.Regression([[1.0, 1.0 - 5e-9]], [1.0])
    assert "possibly several" in pt.predict(pt.Setting(near, pt.Squares(0.1), pt.Squared()), pt.GradientFlow()).notes[0]
