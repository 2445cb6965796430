"""Beyond the theorems on token selection: sharp and measured exponents, two ways to be faster, where Polyak's step is stable, and local directions."""

from functools import partial

import numpy as np

from ....diagnostics.rates import linear_slope
from ....exhibits import DEFINITIONS, Figure, Line, Table, table
from ....lab import Lab, Study, recipe
from ....optimisers.base import polyak
from ....sweeps.sweep import Runs, sweep
from ....theory.selections import locally_optimal_selections
from ....theory.token_hypotheses import stability_number
from ....training.recorders import At
from ....training.train import train
from .. import fixed, sharp
from ..evidence import preset
from .directions import WORDS, values_table

_DROP = "drop of log(L - L*) per step, times c"


def _hard(lab: Lab) -> dict[int, tuple]:
    """Settings of preset H with their references, by seed."""
    return {seed: preset(lab, "H", seed) for seed in range(lab.seed, lab.seed + (10 if lab.full else 5))}


def drops(lab: Lab) -> tuple:
    """The drop of log(L - L*) per Polyak step times c against chi/c: exactly 1 below 2, less above."""
    pairs, rows = _hard(lab), []
    for c in (1.0, 2.0, 4.0) if lab.full else (1.0, 2.0):
        lab.progress(f"Polyak with c = {c:g}, {len(pairs)} data sets")
        settings = [setting for setting, _ in pairs.values()]
        runs = train(settings, polyak(c), steps=10_000, recorder=At(tuple(range(2500, 10_000, 125))))
        for (seed, (setting, found)), run in zip(pairs.items(), runs, strict=True):
            chi = stability_number(setting.data, found)
            drop = -c * linear_slope(run.steps, run.log_excess, (5e3, 1e4))
            rows.append((seed, c, chi, chi / c, drop, "stable" if chi / c < 2 else "unstable"))
    ratio, drop = np.array(sorted(row[3:5] for row in rows)).T
    limit = Line("stable limit", np.array([2.0, 2.0]), np.array([drop.min(), 1.0]), "prediction")
    columns = {"seed": "", "c": "g", "chi": ".4f", "chi / c": ".4f", "c * drop": ".4f", "predicted": ""}
    caption, title = "Preset H; fitted over steps 5 000 to 10 000.", "Polyak's step against the stability number"
    lines = (Line("runs", ratio, drop, "points"), limit)
    return (
        Figure("stability", "The stability number decides", "chi / c", _DROP, lines, caption),
        table("stability", title, columns, rows, "chi is computed from the data alone."),
    )


_RULES: dict[str, dict] = {
    "GD": {"optimiser": "gd", "step_size": 1.0, "steps": 5_000},
    "NGD": {"optimiser": "ngd", "step_size": 0.05, "steps": 5_000},
    "Polyak, cap 50": {"optimiser": "polyak", "cap": 50.0, "steps": 2_000},
    "flow": {"optimiser": "flow", "log_time": 12.0},
}


@recipe
def phases(lab: Lab) -> dict[str, Runs]:
    """Two samples whose score gaps are 1 and D2, over D2 by every rule, from zero."""
    lab.progress(f"score gaps by {', '.join(_RULES)}")
    spec = {"generator": "local_pair", "measures": ["limit"]}
    spec["grid"] = {"second": np.geomspace(0.02, 2.0, 41 if lab.full else 21)}
    return {name: sweep(spec | rule, engine="here") for name, rule in _RULES.items()}


def phase_figure(lab: Lab) -> tuple[Figure, Table]:
    """Where training stops to find the global direction."""
    lines, rows = [], []
    for name, found in phases(lab).items():
        gaps, limits = found.column("second"), found.column("limit")
        lines.append(Line(name, gaps, found.column("smallest_margin") / found.column("norm")))
        ends = max(gaps[limits == "local"], default=np.nan), min(gaps[limits == "global"], default=np.nan)
        rows.append((name, *ends, *(int((limits == kind).sum()) for kind in ("local", "undecided", "global"))))
    caption = "Gaps D1 = 1 and D2; from zero. Below its threshold D2* the second sample attends to its other token, whose margin is then negative."
    columns = {"rule": "", "largest D2, local": ".4g", "smallest D2, global": ".4g"}
    columns |= dict.fromkeys(("local", "undecided", "global"), "")
    text = "GD: 5000 steps of step size 1; NGD: 5000 steps of length 0.05; Polyak: 2000 steps with a cap of 50; flow: to time e^12."
    title, axes = "The threshold between local and global directions", ("D2", "smallest margin / norm")
    return (
        Figure("phases", title, *axes, tuple(lines), caption, "log"),
        table("phases", "Where the runs ended", columns, rows, text),
    )


def selections_table(lab: Lab) -> Table:
    rows = [
        (case, str(list(found.tokens)), found.slack, "" if found.solution is None else found.solution.value)
        for case, make in fixed.CASES.items()
        for found in locally_optimal_selections(make())
    ]
    columns = {"data": "", "tokens": "", "score slack": ".4g", "norm of the direction": ".6f"}
    return table("selections", "Locally optimal selections", columns, rows, "By enumeration.")


_LOCAL_WORDS = {
    **DEFINITIONS,
    "W_mm": "maximum-margin direction of the optimal tokens",
    "GD, NGD, Polyak": "gradient descent; steps of fixed length along the gradient; steps (L - L*) / |gradient|^2 times the gradient, that multiplier at most the cap",
    "global, local, undecided": "all samples give 0.9 of their attention to an optimal token; some to another one; some to none yet (open)",
    "locally optimal": "a selection whose maximum-margin direction exists, and whose tokens have higher scores than their active neighbours; score slack: by how much",
}
_WORDS = {
    **WORDS,
    "GD, NGD, Polyak": "gradient descent of step size 1; normalised steps of fixed length (0.05 on preset E, 0.1 on H); steps (L - L*) / |gradient|^2 times the gradient, without a cap",
    "momentum, heavy ball": "NGD that keeps the share beta of its last step",
    "dual acceleration": "weighted average of all gradients of log(L - L*), by which W moves; step size half of 1 over the largest squared feature",
    "proved, sharp": "exponent p of 1 - corr ~ t^p: what the paper proves (up to powers of log t), and what theory beyond the paper predicts",
    "chi": "largest curvature of log(L - L*) across W_mm relative to the step Polyak takes; stable below 2c",
    "predicted": "the constant to which norm^2 (1 - corr) tends, from the data alone",
}
STUDIES = (
    Study(
        "self-attention-rates",
        "Proved, sharp and measured exponents of token selection, and two ways to be faster",
        claims=(fixed.theorem1_rate, sharp.heavy_ball, sharp.acceleration),
        exhibits=(partial(values_table, name="E"), partial(values_table, name="H")),
        definitions=_WORDS,
        aliases=("momentum-and-acceleration",),
    ),
    Study(
        "polyak-stability",
        "Where Polyak's step is stable",
        claims=(sharp.polyak_drop, sharp.critical_steps),
        exhibits=(drops,),
        definitions=_WORDS,
    ),
    Study(
        "local-directions",
        "Local directions: when global convergence fails",
        claims=(fixed.without_orthogonality,),
        exhibits=(phase_figure, selections_table),
        definitions=_LOCAL_WORDS,
        aliases=("local-global-phase",),
    ),
)
