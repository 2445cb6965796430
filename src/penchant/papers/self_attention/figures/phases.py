"""Where training ends globally and where in a local direction: runs from zero, basins of all starts, and phase diagrams."""

from itertools import product

import equinox as eqx
import numpy as np

from ....diagnostics.direction import misalignments
from ....errors import InfeasibleSVM
from ....exhibits import DEFINITIONS, Figure, Line, Table, log_figure, table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study, recipe
from ....optimisers.base import gradient_descent, normalised_descent, polyak
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....settings.generators import local_pair, random_tokens
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct, Gram
from ....settings.tokens import TokenSelection
from ....theory.selections import Limit, detect_limit, is_locally_optimal, locally_optimal_selections
from ....theory.token_hypotheses import attention_floor, near_orthogonal_pairs
from ....training.events import NormAbove
from ....training.recorders import At, LogSpaced
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import assumptions

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
    for case, make in assumptions.CASES.items():
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
        limit = detect_limit(run)
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
        for case, make in assumptions.CASES.items()
        for found in locally_optimal_selections(make())
    ]
    columns = {"data": "", "tokens": "", "score slack": ".4g", "norm of the direction": ".6f"}
    return table("selections", "Locally optimal selections", columns, rows, "By enumeration.")


def paths_figure(lab: Lab) -> Figure:
    lines = []
    for case in assumptions.CASES:
        run = local_runs(lab)[case, "NGD"]
        limit, steps = detect_limit(run), run.steps[1:]
        lines.append(Line(f"{case}: to W_mm", steps, misalignments(run, max_margin(run.setting.data))[1:]))
        if limit.kind == "local" and limit.reached is not None and limit.reached.solution is not None:
            distance = misalignments(run, limit.reached.solution)[1:]
            lines.append(Line(f"{case}: to the reached selection", steps, distance, "prediction"))
    caption = "A run that leaves W_mm for good is on its way to the direction of other tokens."
    return log_figure("paths", "Normalised descent from zero", "step", "1 - corr", lines, caption)


class Group(eqx.Module):
    """The data sets of one dimension, kind of scores and common part that have a solution, and where training on each ended."""

    dimension: int
    equal: bool
    shift: float
    limits: tuple[Limit, ...]

    def of_kind(self, kind: str) -> list[Limit]:
        return [limit for limit in self.limits if limit.kind == kind]

    def share(self) -> float:
        """Of global runs; not a number without data sets, which decide nothing."""
        return len(self.of_kind("global")) / len(self.limits) if self.limits else float("nan")

    def row(self) -> tuple:
        known = [limit.misalignment for limit in self.limits if not np.isnan(limit.misalignment)]
        share, scores = f"{len(self.of_kind('global'))}/{len(self.limits)}", "equal" if self.equal else "random"
        local, still_open = self.of_kind("local"), len(self.of_kind("undecided"))
        optimal = sum(limit.reached is not None and limit.reached.locally_optimal for limit in local)
        median = np.median(known) if known else ""
        return (self.dimension, scores, self.shift, share, len(local), optimal, still_open, median)


def shifted(d: int, seed: int, equal: bool, shift: float = 0.0) -> TokenSelection | None:
    """Random tokens with a common vector of length `shift` added, the scores unchanged; None where nothing separates them."""
    data = random_tokens(5, 4, d, seed, equal_scores=equal)
    common = np.zeros(d)
    common[0] = shift
    moved = TokenSelection(np.asarray(data.tokens) + common, scores=np.asarray(data.scores))
    try:
        max_margin(moved)
    except InfeasibleSVM:
        return None
    return moved


def group(d: int, equal: bool, shift: float, seeds: range) -> Group:
    """Where 20 000 normalised steps end on the data sets of these seeds that have a solution."""
    found = [data for data in (shifted(d, seed, equal, shift) for seed in seeds) if data is not None]
    settings = [Setting(data, Gram(data), Exponential()) for data in found]
    runs = train(settings, normalised_descent(0.05), steps=20_000, recorder=LogSpaced(3)) if settings else ()
    return Group(d, equal, shift, tuple(map(detect_limit, runs)))


@recipe
def groups(lab: Lab) -> tuple[Group, ...]:
    found, seeds = [], range(lab.seed, lab.seed + (16 if lab.full else 8))
    for shift, equal in product((0.0, 0.5, 1.0) if lab.full else (0.0, 1.0), (True, False)):
        for d in (3, 4, 6, 8, 12) if lab.full else (3, 6, 12):
            lab.progress(f"d = {d}, common part {shift:g}, {'equal' if equal else 'random'} scores")
            found.append(group(d, equal, shift, seeds))
    return tuple(found)


def phase(lab: Lab) -> tuple[Figure, Table]:
    """Share of runs that reach the optimal tokens: against the dimension, the scores and the correlation of tokens."""
    lines = []
    for equal, shift in dict.fromkeys((one.equal, one.shift) for one in groups(lab)):
        same = [one for one in groups(lab) if (one.equal, one.shift) == (equal, shift)]
        name = f"{'equal' if equal else 'random'} scores and a common part of length {shift:g}"
        x, y = np.array([(float(one.dimension), one.share()) for one in same]).T
        lines.append(Line(name, x, y, "line" if equal else "prediction"))
    columns = {
        "d": "",
        "scores": "",
        "common part": "g",
        "global / feasible": "",
        "local": "",
        "of these on a locally optimal selection": "",
        "open": "",
        "median 1 - corr to the reached direction": ".1e",
    }
    rows, title = [one.row() for one in groups(lab)], "Share of runs that reach the optimal tokens"
    caption = "n = 5, T = 4; 20 000 normalised steps of length 0.05 from zero; a common vector of the given length is added to every token."
    text = f"{16 if lab.full else 8} data sets per point."
    return (
        Figure("phase", title, "dimension", "share of feasible data sets", tuple(lines), text),
        table("phase", "Global runs among feasible data sets", columns, rows, caption),
    )


def _portrait(name: str, case: str, found: assumptions.Basins) -> Figure:
    flat, points, lines = [one for ring in found.reached for one in ring], found.starts.reshape(-1, 2), []
    for tokens in [*found.selections(), *([None] if None in flat else [])]:
        at = points[[one == tokens for one in flat]]
        lines.append(Line("open" if tokens is None else f"tokens {list(tokens)}", at[:, 0], at[:, 1], "points"))
    caption = (
        f"Every point is a start, its colour the selection that was reached; the optimal one is {found.data.optimal.tolist()}. "
        "10 000 normalised steps of length 0.05. W enters by the two entries that are shown."
    )
    axes = "first entry of the start", "second entry of the start"
    return Figure(name, f"Basins: {case}", *axes, tuple(lines), caption)


def basin_exhibits(lab: Lab) -> tuple:
    """Portraits and volumes of the basins."""
    figures, rows, (rings, directions) = [], [], (24, 96) if lab.full else (8, 32)
    for number, case in enumerate(assumptions.CASES):
        lab.progress(f"basins: {case}")
        found = assumptions.basins(lab, case, rings, directions)
        figures.append(_portrait(f"basins-{number}", case, found))
        for tokens in found.selections():
            good = "yes" if is_locally_optimal(found.data, tokens).locally_optimal else "no"
            ends = found.shares(tokens)[[0, rings // 2, -1]]
            rows.append((case, str(list(tokens)), good, found.volume(tokens), *ends))
        rows.append((case, "open", "", found.volume(None), "", "", ""))
    shown = (f"of directions at radius {8 * part:.3g}" for part in (1 / rings, (rings // 2 + 1) / rings, 1.0))
    numbers = dict.fromkeys(("share of the disc of radius 8", *shown), ".3f")
    caption = f"{rings} radii, {directions} directions each; the disc lies in the plane of the features, the only one that margins see."
    columns = {"data": "", "reached": "", "locally optimal": "", **numbers}
    return (*figures, table("basins", "Volume of the basin of each selection", columns, rows, caption))


def gap_map(lab: Lab) -> tuple[Figure, Table]:
    """Score gaps of the pair, from zero: where training is global, with the ratio of Assumption 1 on either side of the border."""
    lab.progress("score gaps of the pair")
    firsts, ratios = np.geomspace(0.25, 4.0, 17 if lab.full else 5), np.linspace(0.05, 0.5, 46 if lab.full else 10)
    grid = np.array(list(product(firsts, ratios)))
    sets = [local_pair(float(first), float(first * ratio)) for first, ratio in grid]
    settings = [Setting(data, Gram(data), Exponential()) for data in sets]
    runs = train(settings, normalised_descent(0.01), steps=40_000, recorder=At(()))
    ends = [assumptions.selected(data, run.margins[-1]) for data, run in zip(sets, runs, strict=True)]
    optimal = tuple(sets[0].optimal.tolist())
    kinds = np.array(["open" if end is None else "global" if end == optimal else "local" for end in ends])
    present = [kind for kind in ("global", "local", "open") if (kinds == kind).any()]
    lines = tuple(Line(kind, grid[kinds == kind, 1], grid[kinds == kind, 0], "points") for kind in present)
    rows = []
    for k, first in enumerate(firsts):
        row = np.arange(k * len(ratios), (k + 1) * len(ratios))
        border = row[kinds[row] == "local"][-1:], row[kinds[row] == "global"][:1]
        cells = ((grid[end[0], 1], _assumption(settings[end[0]])) if len(end) else ("", "") for end in border)
        rows.append((first, *(cell for pair in cells for cell in pair)))
    columns = {
        "first gap": ".3g",
        "largest local ratio": ".3f",
        "pull / push there": ".3g",
        "smallest global ratio": ".3f",
        "pull / push there too": ".3g",
    }
    caption = "Ratio: second score gap over the first. Assumption 1 in pairs asks for a pull / push of at most 1; it is sufficient, not necessary."
    text = "Two samples of two tokens; 40 000 normalised steps of length 0.01 from zero."
    axes = "second score gap over the first", "first score gap"
    title = "Score gaps of the pair that end globally"
    return (
        Figure("gaps", title, *axes, lines, text, "linear", "log"),
        table("gaps", "Border between local and global", columns, rows, caption),
    )


def _assumption(setting: Setting) -> float:
    floor = attention_floor(setting, setting.start(), 0.01)
    return 1 - near_orthogonal_pairs(setting.data, setting.loss, floor).slack


_WORDS = {
    **DEFINITIONS,
    "W_mm": "maximum-margin direction of the optimal tokens",
    "GD, NGD, Polyak": "gradient descent; steps of fixed length along the gradient; steps (L - L*) / |gradient|^2 times the gradient, that multiplier at most the cap",
    "global, local, undecided": "all samples give 0.9 of their attention to an optimal token; some to another one; some to none yet (open)",
    "feasible": "with a weight that separates the optimal tokens from all others",
    "locally optimal": "a selection whose maximum-margin direction exists, and whose tokens have higher scores than their active neighbours; score slack: by how much",
    "plateau of log excess": "log excess with all attention on the tokens that were reached; -inf where these are optimal",
    "score gap": "score of the optimal token minus that of the other one",
    "pull / push": "largest ratio, over samples and pairs, of how far other samples can pull attention back to how far the sample's own gradient pushes it",
}
STUDIES = (
    Study(
        "local-directions",
        "Local directions: when global convergence fails",
        claims=(assumptions.without_orthogonality, assumptions.locally_optimal),
        exhibits=(limits_table, selections_table, paths_figure, basin_exhibits),
        definitions=_WORDS,
    ),
    Study(
        "local-global-phase",
        "Where training ends globally",
        claims=(assumptions.critical_gap,),
        exhibits=(phase, gap_map),
        definitions=_WORDS,
    ),
)
