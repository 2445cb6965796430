"""Beyond the theorems on token selection: local directions."""

from ....diagnostics.direction import misalignments
from ....exhibits import DEFINITIONS, Figure, Line, log_figure, table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study, recipe
from ....optimisers.base import gradient_descent, normalised_descent, polyak
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct
from ....theory.selections import token_limit
from ....training.events import NormAbove
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import fixed

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
STUDIES = (
    Study(
        "local-directions",
        "Local directions: when global convergence fails",
        claims=(fixed.without_orthogonality,),
        exhibits=(limits_table, paths_figure),
        definitions=_LOCAL_WORDS,
        aliases=("local-global-phase",),
    ),
)
