"""Certificates for interpolation: bounds on the least norm or potential subject to X theta = y, from any primal and any dual.

This file knows no solver either: the dual variable that a run accumulates on its residuals is as good as a solver's. A weight of float64
hardly ever interpolates exactly: the upper bound is that of a solution proved to lie in a box around it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from ..errors import ArgumentError
from ..norms import Norm
from ..rounding import dual_above, gamma, up, value_above
from ..settings.potentials import AbstractPotential
from ..settings.regression import Regression, row_units
from .base import Bracket

ALLOWANCE = 1e-12  # relative, of equations between fewer positive weights than there are samples
_RANK = 1e-12  # singular values below this fraction of the largest leave the weight undetermined
_DEFECT = 0.5  # of an approximate right inverse, below which it proves that there is one
_EVEN = 1e-6  # residuals are not taken for smaller than this fraction of the largest
_TIGHT = 1e-9  # relative width above which a second box is tried
_UNDERFLOW = 1e-305  # above what sums of underflowing products lose
_SHORTER = (0.0, 1e-13, 1e-11, 1e-9, 1e-7)  # parts of a dual point taken away where dual points are bounded


class Equations(eqx.Module):
    """Inputs with targets that some weight reaches."""

    inputs: np.ndarray
    fitted: np.ndarray


def interpolation_bracket(
    data: Regression | Equations, primal: object, dual: object, objective: Norm | AbstractPotential
) -> Bracket:
    r"""Bounds on min f(theta) subject to X theta = y, with f a norm or a potential.

    Weak duality: $f(\theta) \ge \langle\nu, y\rangle - f^*(X^\top\nu)$ for a potential, $\ge \langle\nu, y\rangle/\|X^\top\nu\|_*$ for a norm. The upper bound is that
    of a box around the primal, moved towards the solutions, in which a solution is proved to lie; infinite where that fails. Both are
    moved outward by the rounding of all that they are made of. Where samples are dependent, to 1e-12, the constraints are those on
    their range; where they are so in these units but not in those of the coordinates, nothing bounds from above. Where
    weights must be nonnegative, the range is that of the columns of positive coefficients, if these fit to 1e-12. The residuals are 0 at the optimum: `infeasibility` |X theta - y| / |y| of the primal itself, `negativity` of its smallest
    coefficient where weights must be nonnegative, `complementarity` the slack of Fenchel's inequality relative to f, `misalignment` the
    same relative to |theta| |X' nu| (for a norm).

    >>> import penchant as pt
    >>> from penchant.norms import L2
    >>> data = pt.Regression([[1.0, 1.0]], [2.0])
    >>> found = interpolation_bracket(data, primal=[2.0, 0.0], dual=[3.0], objective=L2())     # the optimum is sqrt(2)
    >>> round(found.lower, 4), round(found.upper, 4)
    (1.4142, 2.0)
    """
    inputs, targets = np.asarray(data.inputs), np.asarray(data.fitted)
    weight, dual = np.asarray(primal, float), np.asarray(dual, float)
    for name, found, wanted in (("primal", weight, inputs.shape[1:]), ("dual", dual, targets.shape)):
        if found.shape != wanted:
            raise ArgumentError(name, "interpolation_bracket", f"of shape {wanted}", f"shape {found.shape}")
    with np.errstate(all="ignore"):  # what over- or underflows bounds nothing
        return _bracket(_Constraints(inputs, targets), weight, dual, objective)


def repaired(data: Regression | Equations, weight: np.ndarray, nonnegative: bool, metric: np.ndarray) -> np.ndarray:
    """The weight moved to the solutions, coefficients more where `metric` is larger, as near as float64 gets to them; itself where that
    proves no solution near it."""
    given = _Constraints(np.asarray(data.inputs), np.asarray(data.fitted))
    with np.errstate(all="ignore"):
        box = _box(given, weight, metric, nonnegative)
    return weight if box is None else box.centre


def solvable_near(inputs: np.ndarray, targets: np.ndarray, weight: np.ndarray, blur: float) -> bool:
    """Whether a nonnegative solution provably lies near a nonnegative weight, also where every input is off by a relative `blur`."""
    given = _Constraints(inputs, targets, blur)
    with np.errstate(all="ignore"):
        box = None if given.dependent else _box(given, weight, weight, nonnegative=False)
    return box is not None and bool((box.centre >= box.room).all())


class _Constraints(eqx.Module):
    """P (rows theta - goal) = 0: the samples in their own units, and P an orthonormal basis of their range where they are dependent."""

    rows: np.ndarray
    goal: np.ndarray
    units: np.ndarray
    onto: np.ndarray
    dependent: bool
    vague: bool
    blur: float

    def __init__(self, inputs: np.ndarray, targets: np.ndarray, blur: float = 0.0):
        self.units, self.blur = row_units(inputs), blur
        self.rows, self.goal = inputs / self.units[:, None], targets / self.units
        left, sizes, _ = np.linalg.svd(self.rows, full_matrices=False)
        live = sizes > _RANK * sizes[0]
        self.dependent = bool(live.sum() < len(targets))
        self.vague = bool(live.sum() < min(inputs.shape)) and _rank(self.rows) > live.sum()
        self.onto = left[:, live].T if self.dependent else np.eye(len(targets))

    def misfit(self, weight: np.ndarray) -> np.ndarray:
        """Above |rows weight - goal|, entry by entry."""
        sizes = np.abs(self.rows) @ np.abs(weight) + np.abs(self.goal)
        rest = self.rows.astype(np.longdouble) @ weight.astype(np.longdouble) - self.goal
        lost = (len(weight) + 4) * float(np.finfo(np.longdouble).eps) + self.blur
        return np.abs(rest).astype(float) * (1 + gamma(2)) + lost * sizes + _UNDERFLOW * (sizes > 0)

    def pull(self, dual: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """The dual point X' nu of nu projected on the range, a bound on its rounding, and a lower bound of <nu, y>."""
        across = self.onto @ (self.units * dual)
        nu, size = across @ self.onto, np.abs(across) @ np.abs(self.onto)
        lost = gamma((2 if self.dependent else 1) * len(dual) + 4)
        paired = float(nu @ self.goal) - lost * float(size @ np.abs(self.goal)) - _UNDERFLOW
        return nu @ self.rows, lost * (size @ np.abs(self.rows)) + _UNDERFLOW, paired


def _rank(rows: np.ndarray) -> int:
    """The rank in units of the columns, too, up to rounding: it does not depend on units, but what a decomposition shows of it does."""
    sizes = np.abs(rows).max(axis=0)
    rows = rows / 2.0 ** np.frexp(np.where(sizes > 0, sizes, 1.0))[1]
    sizes = np.abs(rows).max(axis=1, keepdims=True)
    return int(np.linalg.matrix_rank(rows / 2.0 ** np.frexp(np.where(sizes > 0, sizes, 1.0))[1]))


class _Box(eqx.Module):
    """`centre` +- `room` holds a solution, which leaves `misfit` between the predictions of the centre and the targets."""

    centre: np.ndarray
    room: np.ndarray
    misfit: np.ndarray


def _reached(columns: np.ndarray) -> tuple[np.ndarray, bool]:
    """An orthonormal basis of the range of the columns, and whether there are targets outside of it."""
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    there = sizes > _RANK * sizes[0]
    outside = bool(there.sum() < len(columns))
    return left[:, there].T if outside else np.eye(len(columns)), outside


def allowance_of(data: Regression, weight: np.ndarray) -> float:
    """0 where the positive coefficients of a weight reach all targets near these, so that its bracket is about these themselves."""
    given, sized = _Constraints(np.asarray(data.inputs), np.asarray(data.fitted)), np.maximum(weight, 0.0)
    live = (given.rows[:, sized > 0] != 0).any(axis=1) | (given.goal != 0)
    return ALLOWANCE if live.any() and _reached(given.rows[live] * np.sqrt(sized))[1] else 0.0


def _box(given: _Constraints, weight: np.ndarray, metric: np.ndarray, nonnegative: bool) -> _Box | None:
    """From an approximate right inverse M that moves coefficients in proportion to `metric`; None where it proves nothing.

    With X M = I - E, theta - M (I - E)^-1 r solves for the residual r of theta, and |E| rho <= kappa rho bounds |(I - E)^-1 r| by rho / (1 - kappa).
    """
    live = (np.abs(given.rows) @ metric > 0) | (given.goal != 0)
    rows, goal, onto = given.rows[live], given.goal[live], given.onto if given.dependent else np.eye(int(live.sum()))
    if not (np.isfinite(metric).all() and np.isfinite(weight).all()):
        return None
    if not live.any():
        return _Box(weight, np.zeros_like(weight), np.zeros(len(live)))
    root, outside = np.sqrt(metric), False
    if nonnegative or (given.dependent and not live.all()):
        onto, outside = _reached(rows * root)
    inverse = root[:, None] * np.linalg.pinv((onto @ rows) * root, rcond=1e-15)
    for _ in range(2):
        weight = weight + inverse @ (onto @ (goal - rows @ weight))
    misfit = given.misfit(weight)
    if outside and (misfit > ALLOWANCE * (np.abs(given.rows) @ np.abs(weight) + np.abs(given.goal))).any():
        return None
    rest = np.abs(onto) @ misfit[live] * (1 + gamma(len(live) + 1))
    rest = np.maximum(rest, _EVEN * rest.max())
    sizes = np.abs(rows) @ np.abs(inverse)
    lost = gamma(len(weight) + len(live) + 4) + given.blur
    defect = np.abs(np.eye(len(rest)) - onto @ (rows @ inverse)) + lost * (np.abs(onto) @ sizes)
    kappa = float((defect @ rest / rest).max(initial=0.0)) if rest.any() else 0.0
    if not kappa <= _DEFECT:
        return None
    room = np.abs(inverse) @ rest / (1 - kappa) * (1 + gamma(2 * len(live) + 8))
    room = room + _UNDERFLOW * (metric > 0) * rest.any()
    if not np.isfinite(room).all() or (nonnegative and (weight < room).any()):
        return None
    return _Box(weight, room, misfit)


def _bracket(given: _Constraints, weight: np.ndarray, dual: np.ndarray, objective: Any) -> Bracket:
    nonnegative, of_potential = bool(getattr(objective, "nonnegative", False)), hasattr(objective, "conjugate")
    lower = (_potential_below if of_potential else _norm_below)(given, dual, objective)
    above = partial(_potential_above if of_potential else _norm_above, given, dual, objective)
    upper, centre = _upper(given, weight, above, nonnegative, lower)
    pull = (given.units * dual) @ given.rows
    size = float(np.linalg.norm(given.units * given.goal)) or float(np.linalg.norm(np.abs(given.rows) @ np.abs(weight)))
    residual = float(np.linalg.norm(given.units * (given.goal - given.rows @ weight)))
    smallest = max(0.0, -weight.min()) / (np.abs(weight).max() or 1.0) if nonnegative else 0.0
    if of_potential:
        slack = objective.value(centre) + objective.conjugate(pull) - float(centre @ pull)
        unit = float(np.linalg.norm(centre) * np.linalg.norm(pull))
    else:
        slack = objective.value(centre) - (float(centre @ pull) / objective.dual(pull) if pull.any() else 0.0)
        unit = upper
    return Bracket(
        lower=lower,
        upper=upper if lower <= upper else float("inf"),  # float64 then knows neither the range nor a solution
        infeasibility=_known(residual / size if size > 0 else 0.0),
        negativity=_known(smallest),
        complementarity=_known(slack / upper) if upper > 0 else 0.0,
        misalignment=_known(slack / max(unit, float(np.finfo(float).tiny))),
    )


def _known(residual: float) -> float:
    """A residual that is not a number is as far from 0 as any."""
    return float(residual) if np.isfinite(residual) else float("inf")


def _upper(
    given: _Constraints, weight: np.ndarray, above: Callable[[_Box], float], nonnegative: bool, lower: float
) -> tuple[float, np.ndarray]:
    """The least upper bound of the boxes that hold a solution, and the centre of that one (without one, the weight itself)."""
    best, centre = float("inf"), weight
    if given.vague or not np.isfinite(weight).all():
        return best, np.where(np.isfinite(weight), weight, 0.0)
    sized = np.maximum(weight, 0.0) if nonnegative else np.abs(weight)
    for metric in (sized,) if nonnegative else (np.ones_like(weight), sized):
        if np.isfinite(best) and best - lower <= _TIGHT * best:
            break
        box = _box(given, sized if nonnegative else weight, metric, nonnegative)
        if box is None:
            continue
        found = above(box)
        best, centre = (found, box.centre) if found < best else (best, centre)
    return best, centre


def _outward(found: float) -> float:
    """Above a sum of nonnegative terms; exactly 0 is 0."""
    return float(up(found)) if 0 < found < np.inf else 0.0 if found == 0 else float("inf")


def _norm_below(given: _Constraints, dual: np.ndarray, norm: Norm) -> float:
    pull, lost, paired = given.pull(dual)
    if not (np.isfinite(pull).all() and np.isfinite(lost).all() and pull.any() and paired > 0):
        return 0.0
    found = paired / up(dual_above(norm, pull) + dual_above(norm, lost)) * (1 - gamma(2))
    return float(found) if np.isfinite(found) else 0.0


def _norm_above(given: _Constraints, dual: np.ndarray, norm: Norm, box: _Box) -> float:
    """The norm of the centre and of the room; 0 has no power of two to measure it by."""
    found = sum(value_above(norm, part) for part in (box.centre, box.room) if part.any())
    return _outward(float(found))


def _potential_below(given: _Constraints, dual: np.ndarray, potential: AbstractPotential) -> float:
    """The best over the dual shortened a little, where its points are bounded: near the boundary rounding may carry it across."""
    parts = _SHORTER if np.isfinite(potential.radius) else (0.0,)
    found = [_fenchel(given, (1 - part) * dual, potential) for part in parts]
    return max([0.0, *(one for one in found if np.isfinite(one))])


def _fenchel(given: _Constraints, dual: np.ndarray, potential: AbstractPotential) -> float:
    """Below <nu, y> - f*(X' nu): f* is convex, so that its slope at both ends bounds what the rounding of its argument does."""
    pull, lost, paired = given.pull(dual)
    if np.isfinite(potential.radius):
        lost = lost + gamma(4) * np.abs(pull)
    steep = np.maximum(np.abs(potential.link(pull - lost)), np.abs(potential.link(pull + lost)))
    conjugate = potential.conjugate(pull) + potential.conjugate_rounding(pull) + float(steep @ lost) * (1 + 1e-9)
    return paired - conjugate - gamma(4) * (abs(paired) + abs(conjugate))


def _potential_above(given: _Constraints, dual: np.ndarray, potential: AbstractPotential, box: _Box) -> float:
    """f is convex: a step d adds at most <f', d> with the slope at its end, of which <X' nu, d> = <nu, X d> is known to be small."""
    pull, lost, _ = given.pull(dual)
    known = np.isfinite(pull).all() and not given.dependent
    pull, nu = (pull, given.units * dual) if known else (np.zeros_like(pull), np.zeros_like(dual))
    ends = [potential.gradient(box.centre + side * box.room) for side in (-1.0, 1.0)]
    slope = np.maximum(np.abs(ends[0] - pull), np.abs(ends[1] - pull)) * (1 + 1e-9) + lost * known
    slope = slope + 1e-9 * np.abs(pull)
    added = float(np.where(box.room > 0, slope, 0.0) @ box.room) + float(np.abs(nu) @ box.misfit)
    value = potential.value(box.centre) + potential.value_rounding(box.centre)
    found = value + added * (1 + gamma(len(pull) + 8)) + gamma(4) * abs(value)
    return _outward(float(found))
