"""Deep linear networks in discrete time: how slow the proved steps are, and when descent leaves the flow."""

import numpy as np

from ....diagnostics.alignment import conservation_drift
from ....exhibits import Figure, Line, Table, log_figure, table
from ....lab import Lab, Study
from ....optimisers.layerwise import AbstractLayerRule, BallStep, LayerDescent, LineSearch, RiskScaled, SharpStep
from ....settings.base import Setting
from ....settings.deep_linear import Layers
from ....theory.families.layers import critical_step
from ....training.events import LogExcessBelow
from ....training.recorders import LogSpaced
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import steps
from ..evidence import account, geometry, problem
from ..lemmas import steady_descent
from . import words

_SHARES = (0.1, 0.2, 0.4, 0.7, 0.9, 0.98, 1.02, 1.1, 1.4, 2.0)
_QUICK, _LONG = 320_000, 1_500_000  # steps after which a study gives up


def _rules(setting: Setting) -> dict[str, AbstractLayerRule]:
    return {
        "A5": BallStep(),
        "A5 tight": BallStep(tight=True),
        "sharp": SharpStep(),
        "risk scaled": RiskScaled(),
        "line search, capped": LineSearch(setting, capped=True),
        "line search": LineSearch(setting),
    }


def _steps_to(
    setting: Setting, rule: AbstractLayerRule, start: Layers, risk: float, cap: int
) -> tuple[int | None, Trajectory]:
    until = LogExcessBelow(float(np.log(risk)))
    run = train(setting, LayerDescent(rule), start, steps=cap, until=until, recorder=LogSpaced(60))
    return (int(run.steps[-1]) if run.log_excess[-1] <= np.log(risk) else None), run


def _far(setting: Setting, rule: AbstractLayerRule, start: Layers) -> str:
    """Steps to risk 1e-100, which only the uncapped line search reaches: every other rule has bounded steps while the risk tends to 0."""
    steps, _ = _steps_to(setting, rule, start, 1e-100, 3000)
    return "> 3000" if steps is None else str(steps)


def rules(lab: Lab) -> tuple:
    """Steps to risk 0.3 and 0.01 under every rule."""
    rows, figures = [], []
    for depth in (2, 3, 4):
        setting, start = problem(lab, depth, logistic=True, seed=1 + lab.seed)
        lines = []
        for name, rule in _rules(setting).items():
            cap = 1000 if "line search" in name else _LONG if lab.full else _QUICK
            lab.progress(f"depth {depth}: {name}")
            first, last = _steps_to(setting, rule, start, 0.3, cap)
            second, last = (None, last) if first is None else _steps_to(setting, rule, start, 0.01, cap)
            drift, traces = float(conservation_drift(last)[-1]), float(account(last)["traces"][-1].sum())
            length, violation = (account(last)[key][-1] for key in ("log_step", "violation"))
            shown = (f"> {cap}" if count is None else str(count) for count in (first, second))
            told = (f"{drift:.1e}", f"{traces:.3g}", f"{length:.3g}", f"{violation:.1e}")
            rows.append((depth, name, *shown, *told, _far(setting, rule, start) if name == "line search" else ""))
            lines.append(Line(name, np.maximum(last.steps, 1), np.exp(last.log_excess)))
        title, caption = f"Risk against the step, depth {depth}", "Logistic risk on the strips, width 8."
        figures.append(log_figure(f"risk-{depth}", title, "step", "risk", lines, caption))
    told = ("conservation drift", "sum of the traces", "log of the last step", "largest violation of descent")
    columns = ("L", "rule", "to 0.3", "to 0.01", *told, "to 1e-100")
    text = f"A run that gave up shows its number of steps; `--full` goes on to {_LONG}. Violations are in log R; negative means that every step descended more than promised."
    return *figures, Table("steps", "Steps to a risk", columns, tuple(rows), text)


def discretised(lab: Lab) -> tuple[Figure, Table]:
    """Descent with steps that promise a fixed drop of log R, on both sides of the critical one."""
    rows, offsets = [], []
    shares = (0.05, *_SHARES) if lab.full else _SHARES
    for depth in (2, 3, 4):
        lab.progress(f"relative steps, depth {depth}")
        runs = [steps.relative_descent(lab, share, depth) for share in shares]
        errors = [steps.offset_error(run.weight(), geometry(lab)) for run in runs]
        for share, run, error in zip(shares, runs, errors, strict=True):
            found = steps.measures(run.setting, run.at(), run.at(0))
            drop, left = share * critical_step(geometry(lab), depth), (found["drift"], found["1 - |<v, u>|"])
            rows.append((depth, share, drop, int(run.steps[-1]), error, *left, found["margin / best margin"]))
        offsets.append(Line(f"L = {depth}", np.array(shares), np.array(errors)))
    x_label = "drop of log R per step / critical drop"
    title, error = "Beyond the critical step the offset never settles", "relative error of the offset"
    settles = f"Strips in the plane, descent to risk e^-{steps.LEVEL:g}. The critical drop is 2 L margin^2 / variance, known before training."
    columns = {"L": "", "share of the critical drop": "", "drop of log R per step": ".4f", "steps": ""}
    columns |= dict.fromkeys(("error of the offset", "conservation drift", "1 - |<v, u>|"), ".2g")
    columns |= {"margin / best margin": ".6f"}
    text = (
        f"Strips, descent to risk e^-{steps.LEVEL:g}. Alignment and margin survive on both sides of the critical step."
    )
    return (
        log_figure("offset", title, x_label, error, offsets, settles),
        table("steps", "Relative steps", columns, rows, text),
    )


STUDIES = (
    Study(
        "step-rules",
        "How slow are the proved step sizes?",
        claims=(steady_descent,),
        exhibits=(rules,),
        definitions=words("conservation drift", "traces", "violation"),
    ),
    Study(
        "deep-linear-discretisation",
        "Deep linear networks: descent and momentum against the flow",
        claims=(steps.critical, steps.momentum),
        exhibits=(discretised,),
        definitions=words("-log R", "alignment", "offset", "conservation drift")
        | {
            "drop of log R per step": "step size times |grad R|^2 / R: what the step promises to first order, the relative step",
            "critical drop": "2 L margin^2 / (largest variance of the support vectors across the margin, under their dual weights)",
        },
    ),
)
