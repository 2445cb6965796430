r"""Gradient flow on regressions, in the n-dimensional dual variable and in logarithmic time.

For a parametrisation with a mirror potential the whole flow is $\dot\nu = -c\,\kappa\,(X\theta(X^\top\nu) - y)$, $\nu(0) = 0$. It does not know of the saddle at zero:
a start of $10^{-30}$ only makes the first phase longer in $\nu$, never slower. The late phase takes times polynomially large in the inverse
start, so the clock is $\log t$, with an implicit method and the exact Jacobian. The infimum is attained: the flow ends where rounding
hides the residual, since beyond that point t times rounding noise would be all there is to integrate.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError, warn
from ..problem import read
from ..settings.base import Setting
from ..settings.potentials import AbstractPotential
from ..training.events import Limits, flow_only
from ..training.status import Status
from .clocks import LogTime, RelativeArc
from .flow import GradientFlow, Levels

if TYPE_CHECKING:
    from scipy.integrate import Radau  # needed by regressions alone

_FLOOR = 8.0  # residuals below this many roundings of the predictions are noise
_RESOLUTION = 1e-4  # relative error of the small coefficients beyond which noise, not the flow, would be followed
_FIRST = 1e-6  # the first point, as a fraction of the shortest time scale of the start
_ROOM = 1e-10  # relative distance of dual points to their bound below which a failed step has met the end of float64
_STEPS = 5_000
_SHARE = 10.0  # of a tolerance, in units of what rounding does in its direction
_AUDIBLE = 1e-2  # rounding above this fraction of the tolerance is felt
_TURN = 1.0  # in log t, between two choices of coordinates
_FAST = 1e6  # relaxations per unit of log t above which a direction is at its equilibrium
_FINER = 0.1  # tolerance of the dual variable, which stands in an exponent, over that of the flow
_FITTED = 1e-6  # of the residual at the start, above which a flow is not at rest however fast it could be
_AT_REST = 1e3  # relaxation times of the slowest direction after which the flow has nowhere to go


class DualPath(eqx.Module):
    """Records of the dual flow: `log_time`, the dual variable `nu` (one row per record), how it ended, steps of the integrator."""

    log_time: np.ndarray
    dual: np.ndarray
    status: Status = eqx.field(static=True)
    steps: int = eqx.field(static=True)


def loss_scale(setting: Setting) -> float:
    """kappa in L = kappa/2 |X theta - y|^2."""
    scale = float(setting.loss.scale)  # pyright: ignore[reportAttributeAccessIssue]
    return scale / (setting.samples if setting.reduction == "mean" else 1)


def check_setting(setting: Setting) -> None:
    """Raise unless the setting is a regression whose parametrisation has a mirror potential."""
    if not (hasattr(setting.data, "fitted") and callable(getattr(setting.parametrisation, "potential", None))):
        found = f"{type(setting.data).__name__} with {type(setting.parametrisation).__name__}"
        raise ArgumentError(
            "setting", "the mirror flow", "Regression with Direct, Squares, SignedSquares or SignedPowers", found
        )


class _Field:
    """The vector field in x = log t."""

    def __init__(self, setting: Setting, potential: AbstractPotential):
        self.inputs, self.targets = np.asarray(setting.data.inputs), np.asarray(setting.data.fitted)
        self.potential, self.pace = potential, potential.rate * loss_scale(setting)
        self.half_scale = loss_scale(setting) / 2
        self.begin = float(np.linalg.norm(self.residual(np.zeros(len(self.targets)))))
        self.size = float(np.linalg.norm(self.targets)) or np.inf  # where no target is left to fit, to rest is to fit
        self.rank, self.reach = setting.data.rank, float(np.abs(self.inputs).sum(axis=0).max())

    def residual(self, dual: np.ndarray) -> np.ndarray:
        return self.inputs @ self.potential.link(dual @ self.inputs) - self.targets

    def velocity(self, log_time: float, dual: np.ndarray) -> np.ndarray:
        return -self.pace * np.exp(log_time) * self.residual(dual)

    def jacobian(self, log_time: float, dual: np.ndarray) -> np.ndarray:
        scaled = self.inputs * self.potential.curvature(dual @ self.inputs)
        return -self.pace * np.exp(log_time) * (scaled @ self.inputs.T)

    def first(self) -> float:
        """log of a time at which nothing has happened yet."""
        start = np.zeros(len(self.targets))
        pull = np.abs(self.residual(start) @ self.inputs).max()
        stiffness = np.linalg.norm(self.jacobian(0.0, start), 2)
        if pull == 0:
            return 0.0
        return float(np.log(_FIRST) - np.log(max(self.pace * pull, stiffness)))

    def rounding(self, dual: np.ndarray) -> float:
        """The rounding of the residual."""
        sizes = np.abs(self.inputs) @ np.abs(self.potential.link(dual @ self.inputs)) + np.abs(self.targets)
        return np.finfo(float).eps * float(np.linalg.norm(sizes))

    def slowest(self, log_time: float, dual: np.ndarray) -> float:
        """How many relaxation times of the slowest direction fit into the time passed."""
        return float(np.linalg.eigvalsh(-self.jacobian(log_time, dual))[len(self.targets) - self.rank])

    def rested(self, dual: np.ndarray, within: float) -> np.ndarray:
        """The equilibrium next to a dual point, by one step of Newton; the point itself where that is further than `within`."""
        move = np.linalg.lstsq(self.jacobian(0.0, dual), -self.velocity(0.0, dual), rcond=None)[0]
        return dual + move if np.abs(move).max() <= within else dual

    def noise(self, log_time: float, dual: np.ndarray, slowest: float) -> float:
        """What rounding of the residual makes of the dual variable: it drifts with t until its slowest direction relaxes."""
        return self.rounding(dual) * self.pace * np.exp(log_time) / max(slowest, 1.0)


class _Frame:
    """Coordinates for the integrator, in which rounding can be heard direction by direction.

    The drift that rounding causes is large only along the directions that relax slowly. Once it is felt, the dual variable is
    turned to the eigenvectors of the Jacobian, so that the fast directions keep their tolerance while the slow ones are not
    asked for less than the rounding: no step length would meet that.
    """

    def __init__(self, field: _Field, basis: np.ndarray, since: float, *, tuned: bool = False):
        self.field, self.basis, self.since, self.tuned = field, basis, since, tuned

    def turned(self, log_time: float, dual: np.ndarray) -> "_Frame":
        return _Frame(self.field, np.linalg.eigh(-self.field.jacobian(log_time, dual))[1], log_time, tuned=True)

    def dual(self, point: np.ndarray) -> np.ndarray:
        return self.basis @ point

    def record(self, log_time: float, point: np.ndarray) -> tuple[float, np.ndarray]:
        """A point of the path; in turned coordinates, where the inner iteration is coarse, with its fast directions at their equilibrium."""
        dual = self.dual(point)
        if not self.tuned:
            return log_time, dual
        pace, basis = np.linalg.eigh(-self.field.jacobian(log_time, dual))
        fast = pace > (_AT_REST if pace[len(dual) - self.field.rank] > _AT_REST else _FAST)
        push = basis.T @ self.field.velocity(log_time, dual)
        return log_time, dual + basis @ np.where(fast, push / np.where(fast, pace, 1.0), 0.0)

    def solver(
        self, begin: float, dual: np.ndarray, end: float, rtol: float, atol: float, step: float | None = None
    ) -> "Radau":
        from scipy.integrate import Radau

        velocity = lambda x, y: self.basis.T @ self.field.velocity(x, self.basis @ y)
        jacobian = lambda x, y: self.basis.T @ self.field.jacobian(x, self.basis @ y) @ self.basis
        first = None if step is None else min(step, end - begin)
        point = self.basis.T @ dual
        found = Radau(velocity, begin, point, end, rtol=rtol, atol=atol, jac=jacobian, first_step=first)
        self.inner = found.newton_tol
        return found

    def heed(self, solver: "Radau", base: float) -> None:
        """Tolerances no finer than what rounding leaves, for the error of a step and for its inner iteration."""
        dual = self.dual(solver.y)
        pace = -np.einsum("ij,ik,kj->j", self.basis, self.field.jacobian(float(solver.t), dual), self.basis)
        noise = self.field.noise(float(solver.t), dual, 1.0) / np.maximum(pace, 1.0)
        solver.atol = base + _SHARE * noise
        solver.newton_tol = max(self.inner, 3 * float((noise / solver.atol).max()))


@np.errstate(over="ignore", invalid="ignore")  # trial points of rejected steps may overflow
def follow_dual(
    setting: Setting,
    start: PyTree = None,
    *,
    log_times: Sequence[float] | np.ndarray | None = None,
    until: float = np.inf,
    tolerance: float = 1e-8,
    log_excess: float = -np.inf,
    steps: int | None = None,
) -> DualPath:
    """The dual flow from a start, at the steps of the integrator or at the given `log_times`, until log t = `until`, log(L - L*) = `log_excess` or rounding.

    >>> import penchant as pt
    >>> data = pt.Regression([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [2.0, 1.0])
    >>> setting = pt.Setting(data, pt.SignedSquares(1e-30), pt.Squared(), "sum")
    >>> path = follow_dual(setting)
    >>> setting.parametrisation.moved(setting.start(), path.dual[-1] @ data.inputs)[0].round(6).tolist()    # w+
    [0.0, 1.0, 0.0]
    """
    check_setting(setting)
    potential = setting.parametrisation.potential(setting.start() if start is None else start)
    field = _Field(setting, potential)
    begin = field.first()
    wanted = None if log_times is None else np.sort(np.asarray(log_times, float))
    end = float(min(until, 700.0 if wanted is None else wanted[-1]))
    first = field.velocity(begin, np.zeros(len(field.targets)))
    rows = [(-np.inf, np.zeros_like(first))]
    if wanted is not None and wanted[0] <= begin:
        rows += [(x, np.exp(x - begin) * first) for x in wanted[wanted <= begin]]
    if end <= begin or not np.any(first):
        return _path(rows, Status.reached_target if np.any(first) else Status.settled, 0)
    scale, rested = float(np.abs(first).max()), first
    frame = _Frame(field, np.eye(len(first)), begin)
    solver = frame.solver(begin, first, end, tolerance, tolerance * scale)
    status, count = Status.running, 0
    while status is Status.running:
        try:
            solver.step()
        except ValueError:  # of the factorisation: a Jacobian with numbers beyond float64
            status = Status.resolution_exhausted
            break
        count += 1
        rows += _records(frame, solver, wanted)
        now, dual = float(solver.t), frame.dual(solver.y)
        slowest = field.slowest(now, dual)
        noise = field.noise(now, dual, slowest)
        base = tolerance * max(scale, float(np.abs(dual).max()))
        if solver.status == "running" and noise > _AUDIBLE * base and now > frame.since + _TURN:
            frame = frame.turned(now, dual)
            solver = frame.solver(now, dual, end, tolerance, base, solver.h_abs)
        frame.heed(solver, base)
        if np.log(field.half_scale) + 2 * np.log(np.linalg.norm(field.residual(dual))) <= log_excess:
            status = Status.reached_target
            break
        rested = field.rested(frame.record(now, solver.y)[1], base) if slowest > _AT_REST else dual
        status = _ending(field, solver, rested, noise, slowest, count, _STEPS if steps is None else steps)
    last = rested if status is Status.settled else frame.record(float(solver.t), solver.y)[1]
    return _path(_closed(rows, last, wanted, float(solver.t)), status, count)


def _closed(
    rows: list[tuple[float, np.ndarray]], last: np.ndarray, wanted: np.ndarray | None, now: float
) -> list[tuple[float, np.ndarray]]:
    """The records with where the flow ended; at rest, later ones repeat the last point."""
    if wanted is None:
        return [*rows[:-1], (rows[-1][0], last)]
    return rows + [(x, last) for x in wanted[wanted > max(rows[-1][0], now)]]


def _ending(
    field: _Field, solver: "Radau", dual: np.ndarray, noise: float, slowest: float, count: int, most: int
) -> Status:
    if solver.status == "failed":
        room = 1 - float(np.abs(dual @ field.inputs).max()) / field.potential.radius
        return Status.step_failed if room > _ROOM else Status.resolution_exhausted
    residual = float(np.linalg.norm(field.residual(dual)))
    arrived = slowest > _AT_REST and residual <= _FITTED * field.begin  # small starts wait long, then move fast
    if arrived or residual <= _FLOOR * field.rounding(dual):
        return Status.settled if residual <= _FITTED * field.size else Status.resolution_exhausted
    if solver.status == "finished":
        return Status.reached_target
    if noise * field.reach > _RESOLUTION:
        return Status.resolution_exhausted
    return Status.out_of_steps if count >= most else Status.running


def _records(frame: _Frame, solver: "Radau", wanted: np.ndarray | None) -> list[tuple[float, np.ndarray]]:
    if wanted is None:
        return [frame.record(float(solver.t), solver.y)]
    inside = wanted[(wanted > solver.t_old) & (wanted <= solver.t)]
    dense = solver.dense_output() if len(inside) else None
    return [frame.record(float(x), np.asarray(dense(x))) for x in inside] if dense is not None else []


def _path(rows: list[tuple[float, np.ndarray]], status: Status, steps: int) -> DualPath:
    return DualPath(np.array([x for x, _ in rows]), np.stack([dual for _, dual in rows]), status, steps)


_read_all = eqx.filter_jit(
    lambda setting, params: jax.vmap(lambda one: (read(setting, one), setting.norm(one)))(params)
)


def _warn_of_unused(flow: GradientFlow) -> None:
    """The dual flow has one clock and one integrator; settings of the flow in margin space that are not its own do nothing here."""
    usual = GradientFlow()
    unused = [name for name in ("order", "margin_tolerance") if getattr(flow, name) != getattr(usual, name)]
    if type(flow.clock) not in (RelativeArc, LogTime):
        unused = [f"clock ({type(flow.clock).__name__})", *unused]
    if unused:
        warn(
            f"GradientFlow on a regression is integrated in its dual variable and in log t: {', '.join(unused)} of the flow "
            "without effect. `tolerance` counts."
        )


def follow_regression(
    setting: Setting,
    flow: GradientFlow,
    start: PyTree,
    levels: Limits,
    steps: int | None,
    recorder: Levels | None = None,
) -> tuple[dict, PyTree, Status, dict]:
    """Gradient flow on a regression as the series of a trajectory; `dual` is nu / c, so that Direct weights are start + X' dual."""
    check_setting(setting)
    if np.isfinite(levels.margin) or np.isfinite(levels.norm) or flow_only(levels):
        raise ArgumentError(
            "until", "train on Regression", "LogTimeAbove or LogExcessBelow: the infimum is attained", "another event"
        )
    if recorder is not None and recorder.quantity != "log_time":
        raise ArgumentError(
            "recorder", "train on Regression", "Levels('log_time', ...)", f"Levels('{recorder.quantity}', ...)"
        )
    _warn_of_unused(flow)
    path = follow_dual(
        setting,
        start,
        log_times=None if recorder is None else recorder.values,
        until=float(levels.log_time),
        log_excess=float(levels.log_excess),
        tolerance=_FINER * float(flow.tolerance),
        steps=steps,
    )
    potential = setting.parametrisation.potential(start)
    params = np.stack(
        [setting.parametrisation.moved(start, dual @ np.asarray(setting.data.inputs)) for dual in path.dual]
    )
    size = 1 << (len(params) - 1).bit_length()  # a power of two: flows of other lengths need no program of their own
    padded = params[np.minimum(np.arange(size), len(params) - 1)]
    readings, norm = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(params)], _read_all(setting, padded))
    with np.errstate(invalid="ignore"):  # a start that fits exactly has no slope
        log_slope = readings.log_scale + readings.log_slope_norm - readings.log_excess
    series = {
        "steps": np.arange(len(params)),
        "log_time": path.log_time,
        "log_excess": readings.log_excess,
        "log_slope": log_slope,
        "norm": norm,
        "margins": readings.margins,
        "weights": readings.weights,
        "dual": path.dual / potential.rate,
    }
    status = path.status
    size = float(np.linalg.norm(setting.data.fitted)) or np.inf  # as in the field: without a target, to rest is to fit
    if status is Status.settled and readings.log_excess[-1] > np.log(loss_scale(setting) / 2) + 2 * np.log(
        _FITTED * size
    ):
        status = Status.resolution_exhausted  # of the parameters, whose differences are the weight
    return series, params, status, {"integrator": {"steps": path.steps, "variable": "dual, n numbers, in log t"}}
