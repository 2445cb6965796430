"""Beyond the theorems on token selection: local directions."""

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line, Table, table
from ....lab import Lab, Study, recipe
from ....sweeps.sweep import Runs, sweep
from ....theory.selections import locally_optimal_selections
from .. import fixed

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
STUDIES = (
    Study(
        "local-directions",
        "Local directions: when global convergence fails",
        claims=(fixed.without_orthogonality,),
        exhibits=(phase_figure, selections_table),
        definitions=_LOCAL_WORDS,
        aliases=("local-global-phase",),
    ),
)
