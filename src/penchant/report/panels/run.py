"""The run itself: how it ended, its loss, its size, the hypotheses that fail, and the verdict."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from ...case import Case
from ...exhibits import Figure, Line
from ...flow import flow
from ...references.base import Solution
from ...references.interpolation import reachable
from ...settings.parametrisations import Squares, trains_weight
from ...theory.describe import describe, hypothesis_lines
from ...theory.families.interpolation import relative_residual
from ..panel import Panel, Told, drawn_elsewhere, hypotheses


def is_flow(case: Case) -> bool:
    return flow.is_flow(case.optimiser)


def axis(case: Case) -> tuple[np.ndarray, str, str]:
    """What a run is drawn against, its name and its scale: log time for the flow, steps otherwise; without the start, where both are empty."""
    if is_flow(case):
        x = case.run.log_time[1:]
        return x, "log t", "log" if not case.regression and len(x) and x[-1] > 100 else "linear"
    x = case.run.steps[1:].astype(float)
    return x, "step", "log" if case.regression or case.joint or (len(x) and x[-1] > 100) else "linear"


def series(
    case: Case, name: str, title: str, label: str, values: ArrayLike, caption: str, scale: str = "linear"
) -> Figure:
    """One series of a run against its axis, without the start."""
    x, what, x_scale = axis(case)
    return Figure(name, title, what, label, (Line("run", x, np.asarray(values)[1:]),), caption, x_scale, scale)


def _what_log_excess_is(case: Case) -> str:
    """Above what the loss is counted: an infimum that the data keep out of reach is not that of the run."""
    setting, floor = case.run.setting, case.run.setting.infimum()
    name = setting.name_of_loss(case.prediction is not None)
    if case.regression:
        if isinstance(setting.parametrisation, Squares) and not reachable(setting.data):
            return "log(L - L*): L* is that of least squares, which no nonnegative weight attains"
        return name if setting.data.consistent else f"{name}: no weight interpolates, L* = {floor.value:.6g}"
    if case.prediction is not None or floor.attained:
        return name
    if case.separable:
        return f"{name}: whether all margins can be positive is not known, and so is L*"
    if floor.value == 0:
        return "log L: no weight has only positive margins, so L* > 0 is not known"
    return f"{name}: the loss above that of {floor.why}, which these data do not allow"


def _log_loss(log_excess: float, floor: float) -> float:
    """log L, also where L has underflowed; not a number where L is negative, as that of the correlation loss may be."""
    if floor >= 0:
        return float(np.logaddexp(log_excess, np.log(floor))) if floor > 0 else log_excess
    loss = floor + np.exp(log_excess)
    return float(np.log(loss)) if loss > 0 else float("nan")


def _numbers(case: Case) -> dict:
    run = case.run
    log_excess = float(run.log_excess[-1])
    reached = {"margin": float(run.smallest_margin()[-1])} if not case.regression else {}
    return {
        "status": run.status.name,
        "message": run.ending,
        "steps": int(run.steps[-1]),
        "log_excess": log_excess,
        "log_excess_is": _what_log_excess_is(case),
        "log_loss": _log_loss(log_excess, run.setting.infimum().value),
        "log_time": float(run.log_time[-1]),
        "first_capped": run.header.get("first_capped"),
        **(reached or {"residual": relative_residual(run.setting.data, run.margins[-1])}),
        **_norms(case),
    }


def _norms(case: Case) -> dict:
    """The l2 norm of the weight, and where that is made of other parameters theirs, and the norm that theory says is minimised."""
    run, parametrisation = case.run, case.run.setting.parametrisation
    if trains_weight(case.run.setting):
        return {"norm": float(run.norm[-1])}
    names, weight = ", ".join(parametrisation.named(run.at(), run.setting.data)), run.weight()
    found = None if case.prediction is None else case.prediction.reference
    predicted = {found.norm: found.measure.value(weight)} if isinstance(found, Solution) else {}
    return {
        "norm": float(np.linalg.norm(weight)),
        "weight_norm": {"l2": float(np.linalg.norm(weight)), **predicted},
        "parameters": f"({names})",
        "parameter_norm": float(run.norm[-1]),
    }


def _lines(case: Case, found: dict) -> Iterator[str]:
    yield f"status     {found['status']}: {found['message']}"
    name, _, why = found["log_excess_is"].partition(":")
    loss = f", log L {found['log_loss']:.8g}" if why and name != "log L" else ""
    reached = f"margin {found['margin']:.6g}" if "margin" in found else f"residual {found['residual']:.3g}"
    norms = [f"{norm} norm of the weight {value:.6g}" for norm, value in found.get("weight_norm", {}).items()]
    own = f"l2 norm of the parameters {found['parameters']} {found['parameter_norm']:.6g}" if norms else ""
    norms = [*norms, own or f"norm {found['norm']:.6g}"]
    sizes = f"{name} {found['log_excess']:.8g}{loss}, log time {found['log_time']:.8g}, {reached}, {', '.join(norms)}"
    yield f"run        {found['steps']} steps, {sizes}"
    if why:
        yield f"note       {found['log_excess_is']}"
    if found["first_capped"] is not None:
        then = "the rule is then gradient descent with the cap as step size"
        yield f"cap        first binds at step {found['first_capped']}: {then}"


def _draw(case: Case) -> Iterator[Figure]:
    if not case.regression:
        level, what = axis(case)[2] == "log", "The loss above its infimum, in logarithms."
        label, values = ("-log(L - L*)", -case.run.log_excess) if level else ("log(L - L*)", case.run.log_excess)
        yield series(case, "excess", "Log excess", label, values, what, "log" if level else "linear")
        return
    residual = [relative_residual(case.run.setting.data, margins) for margins in case.run.margins]
    what = "Norm of X theta - y over the norm of y (y: its least-squares fit)."
    yield series(case, "residual", "Residual", "relative residual", residual, what, "log")


def _verdict(case: Told) -> dict:
    found = case.verdict
    return {"verdict": found.headline, "facts": found.facts, "inequality": found.inequality, "detail": found.detail}


MADE = Panel(
    lambda case: "optimiser" in case.made,
    lambda case: {"optimiser": case.made["optimiser"]},
    lambda case, found: (f"optimiser  {found['optimiser']}",),
    drawn_elsewhere,
)
PREDICTED = Panel[Case](
    lambda case: True,
    lambda case: {"prediction": case.prediction and describe(case.prediction, None if case.joint else case.run.at(0))},
    rows=lambda case: (
        (("theorem", case.foreseen.theorem.name), ("predicted rate", case.foreseen.rate)) if case.prediction else ()
    ),
    draw=lambda case: (hypotheses(case.prediction.hypotheses),) if case.prediction else (),
)
RUN = Panel(lambda case: not case.joint, _numbers, _lines)
LOSS = Panel(lambda case: not case.joint, draw=_draw)
FAILED = Panel[Case](
    lambda case: case.prediction is not None and not case.joint,
    lines=lambda case, found: hypothesis_lines(vars(one) for one in case.foreseen.hypotheses if one.holds is False),
    rows=drawn_elsewhere,
)
VERDICT = Panel(
    lambda case: True,
    _verdict,
    lambda case, found: (
        f"{'' if number else 'verdict':10} {line}" for number, line in enumerate(case.verdict.lines())
    ),
    drawn_elsewhere,
)
