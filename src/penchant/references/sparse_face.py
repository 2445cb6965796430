r"""Which of several solutions of least l1 norm small starts select: the one of largest entropy.

For $\alpha\to0$ the potentials of squares are $\|\theta\|_1\log\alpha^{-2}$ plus $\sum_j|\theta_j|\log|\theta_j| - |\theta_j|$. Among solutions of equal l1 norm the second part decides.
All solutions have the signs of $X^\top\mu$, for a dual solution $\mu$, and vanish where $|X^\top\mu| < 1$: they are the nonnegative solutions in the other columns.
"""

from typing import Any

import numpy as np

from ..settings.potentials import Entropy
from ..settings.regression import Regression
from .base import Interpolant, pinned
from .interpolation import PositiveL1, WeightedL1, basis_pursuit, minimum_potential
from .interpolation_bracket import interpolation_bracket
from .linear_programs import positive_part

_TOUCHING = 1e-7  # distance of X' mu from its bound within which a column may carry weight


def sparse_face(data: Any, *, nonnegative: bool = False) -> np.ndarray:
    """The signs of the coefficients that are not 0 in some solution of least l1 norm, 0 for the others.

    >>> import penchant as pt
    >>> sparse_face(pt.Regression([[1.0, -1.0, 0.5]], [1.0])).tolist()
    [1.0, -1.0, 0.0]
    """
    found, inputs = basis_pursuit(data, nonnegative=nonnegative), np.asarray(data.inputs)
    pull = found.dual @ inputs
    touching = np.flatnonzero((pull if nonnegative else np.abs(pull)) >= 1 - _TOUCHING)
    signs = np.sign(pull[touching])
    carried, _ = positive_part(inputs[:, touching] * signs, np.asarray(data.fitted))
    face = np.zeros(inputs.shape[1])
    face[touching[carried]] = signs[carried]
    return face


def entropic_sparse(data: Any, *, nonnegative: bool = False) -> Interpolant:
    """The solution of least l1 norm with the largest entropy: what Q_alpha (KL, for nonnegative weights) selects as alpha goes to 0.

    >>> import penchant as pt
    >>> entropic_sparse(pt.Regression([[1.0, 1.0, 0.5]], [1.0])).weight.round(12).tolist()
    [0.5, 0.5, 0.0]
    """
    found, inputs = basis_pursuit(data, nonnegative=nonnegative), np.asarray(data.inputs)
    face = sparse_face(data, nonnegative=nonnegative)
    weight, part = np.zeros(len(face)), Regression(inputs[:, face != 0] * face[face != 0], data.fitted)
    level = np.log(found.value / np.count_nonzero(face))
    weight[face != 0] = minimum_potential(part, Entropy(np.full(np.count_nonzero(face), level))).weight
    weight = weight * face
    norm = (PositiveL1 if nonnegative else WeightedL1)(np.ones(len(face)))
    bracket = interpolation_bracket(data, weight, found.dual, norm)
    return Interpolant(norm.name, weight, found.dual, bracket, pinned(bracket))
