r"""Least norm or potential subject to $X\theta = y$: the points that regression flows select.

The l2 norm by a singular value decomposition; the (weighted) l1 norm by a linear program; a mirror potential by Newton's method
on its dual, $\max_\nu\ \langle\nu, y\rangle - \psi^*(X^\top\nu)$, which is what the training flow ascends. The curvature there spans as many
decades as the coefficients, so the Newton system is solved through a pivoted QR of $\sqrt C X^\top$ with its rows sorted by size, which
is stable row by row, and small starts are reached along a path in $\log\alpha$.

Of the least potential among nonnegative interpolants the dual has no maximiser where some coefficients vanish in all of them:
$\theta_j = \alpha_j^2e^{s_j}$ is 0 only in the limit $s_j\to-\infty$, and Newton's method would run after it. The
coefficients that can be positive are found by a linear program and solved for alone; its multipliers mu then push the others to 0
in the dual, $\nu - \tau\mu$ with tau so large that what is left of them is below rounding, which certifies the whole.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import numpy as np
from scipy.linalg import qr, solve_triangular

from ..errors import ArgumentError, InterpolationError, PenchantError, UndecidedInterpolation
from ..norms import L2
from ..settings.potentials import LARGEST, AbstractPotential
from ..settings.regression import Regression, row_units
from .base import INTERPOLATES, Interpolant, pinned, placed, require_regression, watched
from .interpolation_bracket import Equations, allowance_of, interpolation_bracket, repaired
from .linear_programs import REACHED, against_nonnegative, least_l1, nonnegative_residual, positive_part

_SPACING = np.log(10)  # of the path, in the logarithm of alpha^2
_ACCURACY = 1e-13  # relative residual at which Newton's method stops
_NEARLY = 1e-12  # from here on a weight is moved to the nearest interpolant, if that loosens no bound
_PATIENCE, _NEWTON = 8, 200
_VANISHED = 45.0  # e^-45 is below the rounding of any start that is not itself negligible
_RESOLUTION = 1e-14  # squared ratio of pivots below which coefficients are rounding noise

_UNEVEN = 1e-3  # ratio of singular values of the samples below which Newton's method is given orthonormal ones
_ROOM = 1e-8  # below it the rounding of a bounded dual point is felt in the eighth digit of its weight


class WeightedL1(eqx.Module):
    """sum of c_j |theta_j| (c = 1: the l1 norm); its dual norm is max |s_j| / c_j. Where weights must be `nonnegative` it is infinite for others,
    and the dual gauge is max(s_j / c_j, 0)."""

    costs: np.ndarray
    nonnegative: bool = eqx.field(static=True, default=False)

    @property
    def name(self) -> str:
        return "nonnegative l1" if self.nonnegative else "l1" if (self.costs == 1).all() else "weighted l1"

    def value(self, weight: np.ndarray) -> float:
        if self.nonnegative and weight.min() < -1e-12 * np.abs(weight).max():
            return float("inf")
        return float(self.costs @ np.abs(weight))

    def dual(self, weight: np.ndarray) -> float:
        return float(max(((weight if self.nonnegative else np.abs(weight)) / self.costs).max(), 0.0))


def check_consistent(data: Regression) -> None:
    """Raise unless some weight interpolates the targets."""
    if not data.consistent:
        rest = np.asarray(data.targets) - np.asarray(data.fitted)
        raise InterpolationError(rest, data.unexplained / float(np.linalg.norm(np.asarray(data.targets))))


@watched
@np.errstate(over="ignore", invalid="ignore")  # what comes out is certified or not resolved
def minimum_norm(data: object, start: object = None) -> Interpolant:
    r"""The point of $\{X\theta = y\}$ nearest to `start` (0 by default): $\theta_0 + X^+(y - X\theta_0)$.

    Targets that no weight interpolates are replaced by their least-squares fit.

    >>> import penchant as pt
    >>> minimum_norm(pt.Regression([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], [1.0, 0.0])).weight.round(12).tolist()
    [0.666666666667, 0.333333333333, -0.333333333333]
    """
    data = require_regression(data, "minimum_norm")
    inputs, targets = np.asarray(data.inputs), np.asarray(data.fitted)
    start = np.zeros(inputs.shape[1]) if start is None else np.asarray(start, float)
    if start.shape != (inputs.shape[1],):
        raise ArgumentError("start", "minimum_norm", f"of shape ({inputs.shape[1]},)", f"shape {start.shape}")
    if not np.isfinite(start).all():
        raise ArgumentError("start", "minimum_norm", "finite", f"{(~np.isfinite(start)).sum()} entries that are not")
    units = own_units(data)
    left, sizes, right = (
        part[..., : data.rank] if k < 2 else part[: data.rank]
        for k, part in enumerate(np.linalg.svd(inputs / units[:, None], full_matrices=False))
    )
    across = left.T @ ((targets - inputs @ start) / units) / sizes
    step, dual = across @ right, left @ (across / sizes) / units
    bounds = interpolation_bracket(Equations(inputs, targets - inputs @ start), step, dual, L2())  # in the displacement
    return Interpolant("l2", start + step, dual, bounds, pinned(bounds))


def own_units(data: Regression) -> np.ndarray:
    """Units of the samples in which to solve; 1 where some are dependent, as least squares weighs them by their size."""
    inputs = np.asarray(data.inputs)
    return row_units(inputs) if data.rank == len(inputs) else np.ones(len(inputs))


@watched
def basis_pursuit(data: object, weights: object = None, *, nonnegative: bool = False) -> Interpolant:
    """min sum of c_j |theta_j| subject to X theta = y (c = 1 by default), a linear program solved by HiGHS.

    >>> import penchant as pt
    >>> basis_pursuit(pt.Regression([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [2.0, 1.0])).weight.round(12).tolist()
    [0.0, 1.0, 0.0]
    """
    data = require_regression(data, "basis_pursuit")
    check_consistent(data)
    costs = costs_of(data, weights, "basis_pursuit")
    if nonnegative:
        check_nonnegative(data)
    weight, dual = least_l1(np.asarray(data.inputs), np.asarray(data.fitted), costs, nonnegative)
    norm = WeightedL1(costs, nonnegative)
    found = interpolation_bracket(data, weight, dual, norm)
    if not pinned(found):
        raise PenchantError(
            f"The l1 program was not solved: its solution leaves a relative residual of {found.infeasibility:.1g} and proves the least norm "
            f"only to lie in [{found.lower:.6g}, {found.upper:.6g}].\n"
            "  Usual cause: inputs so ill-conditioned that float64 does not tell dependent samples from independent ones."
        )
    return Interpolant(norm.name, weight, dual, found, allowance=allowance_of(data, weight) if nonnegative else 0.0)


def costs_of(data: Regression, weights: object, owner: str) -> np.ndarray:
    """The weights of an l1 norm, 1 where none are given."""
    d = data.inputs.shape[1]
    costs = np.ones(d) if weights is None else np.asarray(weights, float)
    if costs.shape != (d,) or not ((costs > 0) & np.isfinite(costs)).all():
        raise ArgumentError("weights", owner, f"{d} positive and finite numbers", weights)
    return costs


def reachable(data: Regression) -> bool:
    """Whether some nonnegative weight reaches the least-squares fit of the targets."""
    return against_nonnegative(np.asarray(data.inputs), np.asarray(data.fitted)) is None


def check_nonnegative(data: Regression) -> None:
    """Raise, with a proof or undecided, unless some nonnegative weight interpolates the targets to rounding."""
    inputs, targets = np.asarray(data.inputs), np.asarray(data.fitted)
    error = nonnegative_residual(inputs, targets)
    if error <= REACHED:
        return
    proof = against_nonnegative(inputs, targets)
    if proof is None:
        raise UndecidedInterpolation(error)
    raise InterpolationError(proof, float(targets @ proof), nonnegative=True)


def minimum_potential(data: object, potential: AbstractPotential) -> Interpolant:
    """The interpolant of least potential: where gradient flow of the parametrisation goes from its start.

    >>> import penchant as pt
    >>> data = pt.Regression([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [2.0, 1.0])
    >>> minimum_potential(data, pt.SignedSquares(1e3).potential(np.full((2, 3), 1e3))).weight.round(5).tolist()   # least l2 norm
    [0.33333, 0.83333, 0.16667]
    >>> minimum_potential(data, pt.SignedSquares(1e-6).potential(np.full((2, 3), 1e-6))).weight.round(5).tolist()
    [0.0, 1.0, 0.0]
    """
    return potential_path(data, potential, (0.0,))[0]


@watched
def potential_path(
    data: object, potential: AbstractPotential, log_factors: Sequence[float] | np.ndarray
) -> list[Interpolant]:
    """Minimisers of the potential for starts multiplied by exp(log_factors), followed from large starts to small ones."""
    data = require_regression(data, "minimum_potential")
    check_consistent(data)
    if len(potential.levels) != data.inputs.shape[1]:
        wanted = f"one of {data.inputs.shape[1]} coordinates, as many as the inputs have"
        raise ArgumentError("potential", "minimum_potential", wanted, f"{len(potential.levels)} coordinates")
    factors = [float(factor) for factor in log_factors]
    if potential.name == "l2":
        return [minimum_norm(data, potential.scaled(factor).link(np.zeros(data.inputs.shape[1]))) for factor in factors]
    if potential.nonnegative:
        check_nonnegative(data)
    follow = _nonnegative_path if potential.nonnegative else lambda data, potential: _Path(data, potential).advance
    with np.errstate(all="ignore"):  # trial points may overflow; what comes out is certified or not resolved
        solve = follow(data, potential)
        found = {factor: solve(factor) for factor in sorted(set(factors), reverse=True)}
    return [found[factor] for factor in factors]


def _nonnegative_path(data: Regression, potential: AbstractPotential) -> Callable[[float], Interpolant]:
    """The minimiser for the start multiplied by exp(factor), factors descending: on the coefficients that can be positive, 0 on the others."""
    inputs = np.asarray(data.inputs)
    positive, mu = positive_part(inputs, np.asarray(data.fitted))
    if positive.all():
        return _Path(data, potential).advance
    solver = None  # targets 0: nothing but 0 interpolates
    if positive.any():
        solver = _Path(Regression(inputs[:, positive], data.fitted), potential.at_levels(potential.levels[positive]))

    def extended(factor: float) -> Interpolant:
        found, target = None if solver is None else solver.advance(factor), potential.scaled(factor)
        weight, dual = (np.zeros(0), np.zeros(len(inputs))) if found is None else (found.weight, found.dual)
        # Along mu until every coefficient that must vanish is e^-45 of its start, those that need not left alone.
        far = float((((dual @ inputs)[~positive] + _VANISHED) / -(mu @ inputs)[~positive]).max())
        weight, dual = placed(weight, positive), dual + max(0.0, far) * mu
        bracket = interpolation_bracket(data, weight, dual, target)
        resolved = pinned(bracket) and (found is None or found.resolved)
        return Interpolant(target.name, weight, dual, bracket, resolved, allowance_of(data, weight))

    return extended


class _Path:
    """Newton's method along a path of starts: from one as large as the coefficients, equal in all coordinates, to those wanted."""

    def __init__(self, data: Regression, potential: AbstractPotential):
        self.data, self.potential = data, potential
        inputs, targets = np.asarray(data.inputs), np.asarray(data.fitted)
        self.basis = np.eye(len(targets))
        if data.rank < len(targets):  # drop the directions in which the inputs say nothing
            self.basis = np.linalg.svd(inputs, full_matrices=False)[0][:, : data.rank]
        self.basis = self.basis / own_units(data)[:, None]
        left, sizes, _ = np.linalg.svd(self.basis.T @ inputs, full_matrices=False)
        if sizes[-1] < _UNEVEN * sizes[0]:  # samples nearly dependent: orthonormal combinations of them instead
            self.basis = self.basis @ (left / sizes)
        self.inputs, self.targets = self.basis.T @ inputs, self.basis.T @ targets
        self.resolved, self.solve = True, None
        self.levels = np.full(len(potential.levels), self._top())
        self.dual = self._newton(self._here(), np.zeros(len(self.targets)))

    def _here(self) -> AbstractPotential:
        return self.potential.at_levels(self.levels)

    def _top(self) -> float:
        """log of ten times the largest least-norm coefficient, or of the start itself where that is larger."""
        largest = np.abs(np.linalg.lstsq(self.inputs, self.targets, rcond=None)[0]).max()
        top = min(np.log(max(10 * largest, np.finfo(float).tiny)), LARGEST)
        return float(max(top, self.potential.levels.max()))

    def advance(self, factor: float) -> Interpolant:
        target = self.potential.scaled(factor)
        change = target.levels - self.levels
        count = max(1, int(np.ceil(np.abs(change).max() / _SPACING)))
        for fraction in np.arange(1, count + 1) / count:
            if not (self.resolved and self._step(target.levels - (1 - fraction) * change)):
                break
        return self._certified(target)

    def _step(self, levels: np.ndarray) -> bool:
        """Move to other levels; False, and no move, if the small coefficients have left the range of float64."""
        solve, self.resolved = self._system(self._here(), self.dual)
        if not self.resolved:
            return False
        self.solve = solve
        large = np.abs(self.dual @ self.inputs).max() < 1 and np.ptp(levels - self.levels) == 0
        guess = self.dual * np.exp(self.levels[0] - levels[0]) if large else self.dual + self._drift(levels)
        guess = self.dual + self._inside(self.dual, guess - self.dual) * (guess - self.dual)
        self.levels = levels
        if not np.isfinite(self._here().link(guess @ self.inputs)).all():
            guess = self.dual
        self.dual = self._newton(self._here(), guess)
        return True

    def _inside(self, dual: np.ndarray, step: np.ndarray) -> float:
        """The part of a step that leaves a tenth of the way to the boundary of the dual points, where there is one."""
        if np.isinf(self.potential.radius):
            return 1.0
        now, move = dual @ self.inputs, step @ self.inputs
        room = self.potential.radius - np.sign(move) * now
        return float(min(1.0, 0.9 * np.min(room / np.maximum(np.abs(move), np.finfo(float).tiny))))

    def _drift(self, levels: np.ndarray) -> np.ndarray:
        """First-order change of the dual variable: predictions stay while every coefficient scales with its level."""
        if self.solve is None:
            return np.zeros_like(self.dual)
        weight = self._here().link(self.dual @ self.inputs)
        return -self.solve(self.inputs @ (weight * (levels - self.levels)))

    def _system(
        self, potential: AbstractPotential, dual: np.ndarray
    ) -> tuple[Callable[[np.ndarray], np.ndarray], bool]:
        """b -> (X C X')^-1 b, and whether the smallest pivot is above rounding."""
        rows = np.sqrt(potential.curvature(dual @ self.inputs))[:, None] * self.inputs.T
        order = np.argsort(-np.abs(rows).max(axis=1), kind="stable")
        factor, pivots = qr(rows[order], mode="r", pivoting=True)  # pyright: ignore
        factor = factor[: len(self.targets)]
        diagonal = np.abs(np.diag(factor))

        def solve(b: np.ndarray) -> np.ndarray:
            found = np.empty_like(b)
            found[pivots] = solve_triangular(factor, solve_triangular(factor, b[pivots], trans=1))
            return found

        room = 1 - np.abs(dual @ self.inputs).max() / potential.radius  # to the boundary of the dual points, relative
        return solve, bool(diagonal.min() ** 2 > _RESOLUTION * diagonal.max() ** 2 and room > _ROOM)

    def _newton(self, potential: AbstractPotential, dual: np.ndarray) -> np.ndarray:
        """The iterate of smallest residual; ends at rounding, or after eight steps without progress."""
        size = float(np.linalg.norm(self.targets))
        best, least, waiting = dual, np.inf, 0
        for _ in range(_NEWTON):
            residual = self.targets - self.inputs @ potential.link(dual @ self.inputs)
            error = float(np.linalg.norm(residual))
            best, least, waiting = (dual, error, 0) if error < least else (best, least, waiting + 1)
            if least <= _ACCURACY * size or waiting >= _PATIENCE or not np.isfinite(error):
                break
            step = self._system(potential, dual)[0](residual)
            reach = np.abs(step @ self.inputs).max()
            dual = dual + min(self._inside(dual, step), 2 / reach if reach > 0 else 1.0) * step
        return best

    def _certified(self, target: AbstractPotential) -> Interpolant:
        """The solution for `target`; past the resolution limit its dual is extrapolated and its weight is the last one resolved."""
        weight = self._here().link(self.dual @ self.inputs)
        drift = np.zeros_like(self.dual) if self.resolved else self._drift(target.levels)
        dual = self.basis @ (self.dual + self._inside(self.dual, drift) * drift)
        found = interpolation_bracket(self.data, weight, dual, target)
        resolved = self.resolved and pinned(found)
        if not found.infeasibility <= _NEARLY:
            near = found.infeasibility <= INTERPOLATES  # small coefficients then keep their digits
            metric = np.abs(weight) if near or target.nonnegative else np.ones_like(weight)
            moved = repaired(self.data, weight, target.nonnegative, metric)
            again = interpolation_bracket(self.data, moved, dual, target)
            if not near or again.upper - again.lower <= found.upper - found.lower:
                weight, found = moved, again
        return Interpolant(target.name, weight, dual, found, resolved)
