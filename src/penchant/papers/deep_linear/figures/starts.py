"""Deep linear networks: how slow the proved steps are, and which starts escape."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ....diagnostics.alignment import conservation_drift
from ....errors import quietly
from ....exhibits import Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....optimisers.layerwise import BallStep, LayerDescent, LineSearch, RiskScaled, SharpStep
from ....settings.base import Setting
from ....training.events import LogExcessBelow, LogTimeAbove
from ....training.recorders import LogSpaced
from ....training.train import train
from ....verdict import at_least, at_most
from ..evidence import FAR, mirrored, problem
from ..theorems import JI, start_below_zero
from .alignment import words
from .escape_map import basin_map
from .saddle import escape

_LONG = 1_500_000


def _rules(setting: Setting) -> dict[str, tuple[Any, int]]:
    """Rules with the number of steps after which a quick study gives up."""
    return {
        "A5": (BallStep(), 320_000),
        "A5 tight": (BallStep(tight=True), 320_000),
        "sharp": (SharpStep(), 320_000),
        "risk scaled": (RiskScaled(), 320_000),
        "line search, capped": (LineSearch(setting, capped=True), 1000),
        "line search": (LineSearch(setting), 1000),
    }


def _steps_to(setting: Setting, rule: Any, start: Any, risk: float, cap: int) -> tuple[int | None, Any]:
    run = train(
        setting, LayerDescent(rule), start, steps=cap, until=LogExcessBelow(float(np.log(risk))), recorder=LogSpaced(60)
    )
    return (int(run.steps[-1]) if run.log_excess[-1] <= np.log(risk) else None), run


def _far(setting: Setting, rule: Any, start: Any) -> str:
    """Steps to risk 1e-100, which only the uncapped line search reaches: every other rule has bounded steps while the risk tends to 0."""
    steps, _ = _steps_to(setting, rule, start, 1e-100, 3000)
    return "> 3000" if steps is None else str(steps)


def run_rules(lab: Lab) -> Result:
    """E4: steps to risk 0.3 and 0.01 under every rule."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    rows, counts, violations, figures = [], {}, [], []
    for depth in (2, 3, 4):
        setting, start = problem(lab, depth, logistic=True, seed=1 + seed)
        lines = []
        for name, (rule, quick) in _rules(setting).items():
            cap = _LONG if full and quick > 1000 else quick
            progress(f"depth {depth}: {name}")
            first, last = _steps_to(setting, rule, start, 0.3, cap)
            second = None
            if first is not None:
                second, last = _steps_to(setting, rule, start, 0.01, cap)
            counts[depth, name] = first or cap
            shown = tuple(f"> {cap}" if steps is None else str(steps) for steps in (first, second))
            drift, traces = float(conservation_drift(last)[-1]), float(last.account["traces"][-1].sum())
            rows.append(
                (
                    depth,
                    name,
                    *shown,
                    f"{drift:.1e}",
                    f"{traces:.3g}",
                    f"{last.account['log_step'][-1]:.3g}",
                    f"{last.account['violation'][-1]:.1e}",
                    _far(setting, rule, start) if name == "line search" else "",
                )
            )
            violations.append(float(last.account["violation"][-1]))
            lines.append(Line(name, np.maximum(last.steps, 1), np.exp(last.log_excess)))
        figures.append(
            Figure(
                f"risk-{depth}",
                f"Risk against the step, depth {depth}",
                "step",
                "risk",
                tuple(lines),
                "Logistic risk on the strips, width 8.",
                "log",
                "log",
            )
        )
    table = Table(
        "steps",
        "Steps to a risk",
        (
            "L",
            "rule",
            "to 0.3",
            "to 0.01",
            "conservation drift",
            "sum of the traces",
            "log of the last step",
            "largest violation of descent",
            "to 1e-100",
        ),
        tuple(rows),
        "A run that gave up shows its number of steps; `--full` goes on to 1500000. Violations are in log R; negative means that every step descended more than promised.",
    )
    speed = counts[3, "A5"] / counts[3, "line search"]
    findings = (
        Finding(
            "Every rule descends as promised at every step.",
            at_most(max(violations), 0.0, "largest violation of the descent inequality, in log R"),
            f"{JI}, Lemma 5",
        ),
        Finding(
            "The steps of Assumption 5 are slower than a line search by orders of magnitude.",
            at_least(speed, 1000.0, "A5 steps over line-search steps to risk 0.3, depth 3"),
            "measured",
        ),
    )
    return Result(findings, tuple(figures), (table,), {}, words("conservation drift", "traces", "violation"))


def run_basin(lab: Lab) -> Result:
    """E7: starts above the risk of zero, and a slice of starts through the saddle."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    setting, _ = problem(lab, 3, logistic=True, width=6)
    times, count = [], 1000 if full else 200
    for start in (setting.start(s, 0.6) for s in range(seed * count, (seed + 1) * count)):
        if start_below_zero(setting, start).holds:
            continue
        progress(f"start {len(times) + 1} above the risk of zero")
        until = (LogExcessBelow(float(np.log(0.1))), LogTimeAbove(5.0))
        with quietly():
            run = train(setting, FAR, start, until=until, steps=20_000)
        times.append(float(np.exp(run.log_time[-1])) if run.log_excess[-1] <= np.log(0.1) + 1e-9 else np.inf)
    reached = np.sort(np.array(times))
    share = float(np.isfinite(reached).mean())
    figure = Figure(
        "times",
        "Time to risk 0.1 from starts above the risk of zero",
        "time",
        "share of the starts",
        (Line("starts", reached, np.arange(1, len(reached) + 1) / len(reached)),),
        f"{len(reached)} of {count} normal starts of scale 0.6 violate Assumption 2; depth 3, width 6, logistic.",
    )
    table = Table(
        "times",
        "Starts above the risk of zero",
        ("starts", "violating", "reach risk 0.1", "median time", "largest time"),
        ((count, len(reached), f"{share:.3f}", f"{np.median(reached):.2f}", f"{reached.max():.2f}"),),
        "Gradient flow.",
    )
    finding = Finding(
        "Assumption 2 is far from necessary.",
        at_least(share, 1.0, "share of violating starts that reach risk 0.1 before t = e^5"),
        "open in the paper",
    )
    progress("map of balanced starts")
    plane, found = basin_map(lab, full)
    meant = {**words(), "w1, w2": "the entries of the product of the two layers at the start"}
    return Result((finding, *found), (figure, plane, _slice(lab, full, progress)), (table,), {}, meant)


def _slice(lab: Lab, full: bool, progress: Callable[[str], None]) -> Figure:
    """Escape times of e^-<w1, w2> over starts (a u, b u): the line b = -a is the stable manifold of the saddle."""
    setting, (first, _) = mirrored(lab)
    unit = np.asarray(first)[:, 0] / np.linalg.norm(first)
    lines = []
    for a in (0.3, 0.6, 1.0):
        offsets, times = np.geomspace(1e-6, 1.0, 13 if full else 7), []
        for gap in offsets:
            progress(f"slice: a = {a}, distance {gap:.1e}")
            times.append(escape(setting, (a * unit[:, None], (gap - a) * unit[None])))
        lines.append(Line(f"a = {a}", offsets, np.array(times)))
    return Figure(
        "slice",
        "Escape times near the stable manifold of the saddle",
        "distance b + a",
        "time to risk 1/2",
        tuple(lines),
        "Starts w1 = a u, w2 = b u. Only the line b = -a is never left; the time grows like log(1/distance).",
        "log",
    )


STUDIES = (
    Study("step-rules", "How slow are the proved step sizes?", run_rules),
    Study("deep-linear-basin", "Starts above the risk of zero", run_basin),
)
