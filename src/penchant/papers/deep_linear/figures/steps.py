"""Deep linear networks in discrete time: how slow the proved steps are."""

import numpy as np

from ....diagnostics.alignment import conservation_drift
from ....exhibits import Line, Table, log_figure
from ....lab import Lab, Study
from ....optimisers.layerwise import AbstractLayerRule, BallStep, LayerDescent, LineSearch, RiskScaled, SharpStep
from ....settings.base import Setting
from ....settings.deep_linear import Layers
from ....training.events import LogExcessBelow
from ....training.recorders import LogSpaced
from ....training.train import train
from ....training.trajectory import Trajectory
from ..evidence import account, problem
from ..lemmas import steady_descent
from . import words

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


STUDIES = (
    Study(
        "step-rules",
        "How slow are the proved step sizes?",
        claims=(steady_descent,),
        exhibits=(rules,),
        definitions=words("conservation drift", "traces", "violation"),
    ),
)
