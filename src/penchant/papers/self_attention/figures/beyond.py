"""Beyond the theorems on token selection: sharp and measured exponents, two ways to be faster, where Polyak's step is stable, and local directions."""

from functools import partial

import numpy as np

from ....diagnostics.direction import misalignments
from ....diagnostics.rates import linear_slope
from ....exhibits import DEFINITIONS, Figure, Line, Table, log_figure, table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study, recipe
from ....optimisers.base import gradient_descent, normalised_descent, polyak
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct
from ....theory.selections import locally_optimal_selections, token_limit
from ....theory.token_hypotheses import stability_number
from ....training.events import NormAbove
from ....training.recorders import At
from ....training.train import train
from ....training.trajectory import Trajectory
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


_RULES = {
    "GD": (gradient_descent(1.0), 20_000),
    "NGD": (normalised_descent(0.05), 5_000),
    "Polyak, cap 50": (polyak(1.0, 50.0), 2_000),
    "Polyak": (polyak(), 2_000),
}


@recipe
def local_runs(lab: Lab) -> dict[tuple[str, str], Trajectory]:
    """Every case by every rule, from zero."""
    runs = {}
    for case, make in fixed.CASES.items():
        setting = Setting(make(), Direct(), Exponential())
        lab.progress(f"{case}: {', '.join(_RULES)} and the flow")
        for name, (rule, steps) in _RULES.items():
            runs[case, name] = train(setting, rule, steps=steps)
        runs[case, "flow"] = train(setting, GradientFlow(), until=NormAbove(1e5))
    return runs


def limits_table(lab: Lab) -> tuple:
    """Where the runs ended, and with `full` the runs."""
    rows, kept = [], {}
    for (case, name), run in local_runs(lab).items():
        limit = token_limit(run)
        optimal = "yes" if limit.reached is not None and limit.reached.locally_optimal else "no"
        numbers = limit.misalignment, limit.global_misalignment, limit.plateau
        rows.append((case, name, run.status.name, limit.kind, str(list(limit.tokens)), optimal, *numbers))
        kept[f"{case}-{name}".replace(" ", "-").replace(",", "")] = run
    numbers = ("1 - corr to their direction", "1 - corr to W_mm", "plateau of log excess")
    words = dict.fromkeys(("data", "rule", "ending", "limit", "tokens", "locally optimal"), "")
    caption = (
        "Token indices from 0; all runs start at 0. GD: 20 000 steps of step size 1; NGD: 5 000 steps of length 0.05; Polyak: 2 000 steps, with a cap of 50 or "
        "without; flow: to norm 1e5. Uncapped Polyak ends when its linear model stops describing the loss."
    )
    columns = {**words, **dict.fromkeys(numbers, ".6g")}
    return table("limits", "Where the runs ended", columns, rows, caption), kept if lab.full else {}


def selections_table(lab: Lab) -> Table:
    rows = [
        (case, str(list(found.tokens)), found.slack, "" if found.solution is None else found.solution.value)
        for case, make in fixed.CASES.items()
        for found in locally_optimal_selections(make())
    ]
    columns = {"data": "", "tokens": "", "score slack": ".4g", "norm of the direction": ".6f"}
    return table("selections", "Locally optimal selections", columns, rows, "By enumeration.")


def paths_figure(lab: Lab) -> Figure:
    lines = []
    for case in fixed.CASES:
        run = local_runs(lab)[case, "NGD"]
        limit, steps = token_limit(run), run.steps[1:]
        lines.append(Line(f"{case}: to W_mm", steps, misalignments(run, max_margin(run.setting.data))[1:]))
        if limit.kind == "local" and limit.reached is not None and limit.reached.solution is not None:
            distance = misalignments(run, limit.reached.solution)[1:]
            lines.append(Line(f"{case}: to the reached selection", steps, distance, "prediction"))
    caption = "A run that leaves W_mm for good is on its way to the direction of other tokens."
    return log_figure("paths", "Normalised descent from zero", "step", "1 - corr", lines, caption)


_LOCAL_WORDS = {
    **DEFINITIONS,
    "W_mm": "maximum-margin direction of the optimal tokens",
    "GD, NGD, Polyak": "gradient descent; steps of fixed length along the gradient; steps (L - L*) / |gradient|^2 times the gradient, that multiplier at most the cap",
    "global, local, undecided": "all samples give 0.9 of their attention to an optimal token; some to another one; some to none yet (open)",
    "locally optimal": "a selection whose maximum-margin direction exists, and whose tokens have higher scores than their active neighbours; score slack: by how much",
    "plateau of log excess": "log excess with all attention on the tokens that were reached; -inf where these are optimal",
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
        exhibits=(limits_table, selections_table, paths_figure),
        definitions=_LOCAL_WORDS,
        aliases=("local-global-phase",),
    ),
)
