"""Keys and queries where the theorem does not speak: small and large starts, plateaus, the basin, narrow heads, and steps instead of the flow."""

from itertools import product

import jax.numpy as jnp
import numpy as np

from ....exhibits import Figure, Line, Table, log_figure, table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study, recipe
from ....norms import L2, Norm, Nuclear, SignProduct
from ....references.base import Solution
from ....references.euclidean_margin import max_margin
from ....settings.factored import Factors
from ....theory.selections import detect_limit
from ....theory.uniqueness import certified_rank
from ....theory.verdicts import excess
from ....training.events import LogTimeAbove, MarginAbove, Stalled
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import discrete, limits
from ..evidence import keys_and_queries, matrix_run, nuclear
from ..hypotheses import initial_loss
from . import DEFINED, excess_line, path_to

_GRADIENTS = ("gradient descent", "normalised descent")  # all other rules have steps of equal size in every entry
_BINS = np.array([-np.inf, -1.0, -0.75, -0.5, 0.0, np.inf])  # of the slack of Assumption 3


def kernel_figure(lab: Lab) -> Figure:
    """Starts K = scale I, Q = 0 from large to small, against margin / scale^2."""
    setting, lines = keys_and_queries(1)[0], []
    programs = {"nuclear": (nuclear(lab, 1), Nuclear()), "Frobenius": (max_margin(setting.data), L2())}
    for scale in (100.0, 10.0, 3.0, 1.0):
        lab.progress(f"start {scale:g} I")
        run = path_to(setting, Factors(scale * jnp.eye(5), jnp.zeros((5, 5))), max(1e3 * scale**2, 1e3))
        for label, (found, norm) in programs.items():
            lines.append(excess_line(f"{label} excess, start {scale:g}", run, found.value, norm, scale**2))
    caption = "From K = scale I, Q = 0: below margin = scale^2 the flow is at the Frobenius solution, far above it at the nuclear one."
    title = "From the Frobenius to the nuclear solution"
    return log_figure("kernel-to-rich", title, "margin / scale^2", "excess", lines, caption)


def scales_table(lab: Lab) -> Table:
    rows = []
    for number in range(8) if lab.full else range(lab.seed, lab.seed + 4):
        data, scales = keys_and_queries(number)[0].data, (1.0, 0.1, 0.01)
        lab.progress(f"data {number} from {len(scales)} starts")
        runs = [matrix_run(lab, number, scale) for scale in scales]
        found = [[excess(data, run.weight(k), reference) for k in (1, 3, -1)] for run, reference in runs]
        far, best = excess(data, max_margin(data).weight, runs[0][1]), min(values[-1] for values in found)
        rows += [
            (number, scale, *values, far, "best" if values[-1] == best else "")
            for scale, values in zip(scales, found, strict=True)
        ]
    columns = {"data": "", "start": "g", **dict.fromkeys(("excess at 1e2", "at 1e4", "at margin 1e6"), ".2e")}
    columns |= {"excess of the Frobenius solution": ".3f", "least": ""}
    caption = (
        "Three samples of four tokens in five dimensions; K and Q start with normal entries of deviation scale / sqrt(5). "
        "A smaller start is not always better at a given margin."
    )
    return table("scales", "Nuclear excess for three scales of the start", columns, rows, caption)


@recipe
def large_starts(lab: Lab) -> tuple[tuple[float, int, int, Trajectory], ...]:
    """Flows from starts at which Assumption 3 fails, to margin 1e4: scale, data, draw and run."""
    found = []
    until = (MarginAbove(1e4), Stalled(1e4), LogTimeAbove(1e7))
    for scale, number, draw in product((2.0, 4.0, 8.0), (lab.seed, lab.seed + 1), range(5 if lab.full else 2)):
        lab.progress(f"start {scale:g}, data {number}, draw {draw}")
        setting, start = keys_and_queries(number, scale, draw=draw)
        found.append((scale, number, draw, train(setting, GradientFlow(), start, until=until, steps=5000)))
    return tuple(found)


def plateaus_figure(lab: Lab) -> Figure:
    lines = []
    for scale, number, draw, run in large_starts(lab):
        shown = np.isfinite(run.log_time) & (run.log_time > 0)
        if draw == 0:
            lines.append(Line(f"start {scale:g}, data {number}", run.log_time[shown], -run.log_excess[shown]))
    caption = (
        "Each step is a plateau: some samples attend to a wrong token, and only their own e^-margin pull turns them."
    )
    return log_figure("plateaus", "Large starts", "log t", "-log(L - L*)", lines, caption)


def _leaving(run: Trajectory) -> float:
    """log t at which the loss has left where it stood at the start; infinite if it has not."""
    fallen = np.flatnonzero(run.log_excess < run.log_excess[0] - 1)
    return float(run.log_time[fallen[0]]) if len(fallen) else float("inf")


def large_table(lab: Lab) -> Table:
    rows = []
    for scale, number, draw, run in large_starts(lab):
        slack = initial_loss(run.setting, run.setting.data, run.at(0)).slack
        ending = f"{run.status.name}, {detect_limit(run).kind}, log t = {run.log_time[-1]:.4g}"
        rows.append((scale, number, draw, slack, run.log_excess[0], _leaving(run), ending))
    columns = {"start": "g", "data": "", "draw": "", "slack of Assumption 3": ".2f"}
    columns |= {"log(L - L*) at the start": ".4f", "log t of leaving it": ".4g", "end": ""}
    caption = (
        "Normal entries of deviation start / sqrt(5). A run leaves its start when log(L - L*) has fallen by 1: "
        "often later than a run in plain physical time can last."
    )
    return table("large", "Where large starts end", columns, rows, caption)


def basin_figure(lab: Lab) -> Figure:
    found = limits.all_starts(lab, lab.seed, lab.full)
    slack, reached = np.array([one.slack for one in found]), np.array([one.reached for one in found])
    places = np.digitize(slack, _BINS) - 1
    full = [k for k in range(len(_BINS) - 1) if (places == k).any()]
    middle, share = (np.array([one[places == k].mean() for k in full]) for one in (slack, reached))
    order = np.argsort(slack)
    points = Line("starts", slack[order], reached[order].astype(float), "points")
    caption = "1: margin 20 by log t = 100. At a slack of 0 or more the assumption holds."
    lines = (Line("share of the starts in a bin", middle, share), points)
    return Figure("basin", "Global starts", "slack of Assumption 3", "share that is global", lines, caption)


def basin_table(found: list[limits.Started]) -> Table:
    rows = []
    for size, gap, scale in dict.fromkeys(one[:3] for one in found):
        cell = [one for one in found if one[:3] == (size, gap, scale)]
        slacks, wrong = [one.slack for one in cell], sorted(one.wrong for one in cell if not one.reached)
        counts = ", ".join(f"{wrong.count(k)} with {k} of {size[0]}" for k in dict.fromkeys(wrong)) or "-"
        share, span = np.mean([one.reached for one in cell]), f"{min(slacks):.2f} to {max(slacks):.2f}"
        rows.append((f"{size[0]}, {size[1]}", gap, scale, span, share, counts))
    columns = {"n, L": "", "score gap": "g", "start": "g", "slack of Assumption 3": ""}
    columns |= {"share global": ".2f", "others: samples on a wrong token": ""}
    caption = (
        "Random data and starts, followed to margin 20 or log t = 100: what is not global by then may still become so."
    )
    return table("basin", "Which starts are global", columns, rows, caption)


def widths_table(lab: Lab) -> Table:
    rows = []
    for number, width in product((1, 3, 4), (1, 2, 3, 5, 8) if lab.full else (1, 2, 5)):
        lab.progress(f"data {number + lab.seed}, width {width}")
        for draw in range(3):
            run, reference = matrix_run(lab, number + lab.seed, 0.1, width, draw)
            sizes, data = limits.dual_spectrum(run), run.setting.data
            head = number + lab.seed, certified_rank(data, reference), width, draw
            nearest = sizes[np.abs(sizes - 1).argmin()]
            rows.append((*head, excess(data, run.weight(), reference), nearest, sizes[0]))
    columns = {"data": "", "rank": "", "width": "", "draw": "", "excess": ".3e"}
    columns |= {"singular value nearest 1": ".5f", "largest singular value": ".4f"}
    caption = (
        "At margin 1e6. Rank W <= width makes the program non-convex. Singular values of the multipliers' matrix, scaled so that a "
        "stationary point of the factors has one equal to 1; it is optimal if none is larger."
    )
    return table("widths", "Where heads of each width end", columns, rows, caption)


def _programs(lab: Lab, number: int) -> tuple[tuple[Solution, Norm], ...]:
    data = discrete.stepped(lab, _GRADIENTS[0], number).setting.data
    least = nuclear(lab, number), max_margin(data), discrete.signs(lab, number)
    return tuple(zip(least, (Nuclear(), L2(), SignProduct()), strict=True))


def _excess(run: Trajectory, record: int, reference: Solution, norm: Norm) -> float:
    return norm.value(run.weight(record)) / float(run.smallest_margin()[record]) / reference.value - 1


def steps_table(lab: Lab) -> Table:
    rows = []
    for number in range(lab.seed, lab.seed + (8 if lab.full else 3)):
        for rule in discrete.RULES:
            lab.progress(f"data {number}, {rule}")
            run, norm = discrete.stepped(lab, rule, number), Nuclear() if rule in _GRADIENTS else SignProduct()
            margin = float(run.smallest_margin()[-1])
            gap = norm.value(run.weight()) / margin / discrete.best_bound(run, norm) - 1
            rows.append((number, rule, margin, *(_excess(run, -1, *one) for one in _programs(lab, number)), gap))
    norms = dict.fromkeys(("nuclear excess", "Frobenius excess", "sign-product excess", "certified gap"), ".2e")
    caption = (
        "The gap is in the nuclear norm for gradient steps and in the norm of sign products for steps of equal size in every entry. Adam with a memory of 100 or 1000 "
        "steps stands between the norms: its steps shrink with the gradients that it remembers."
    )
    columns = {"data": "", "optimiser": "", "margin": ".3g", **norms}
    return table("steps", "Where each optimiser ends", columns, rows, caption)


def steps_figures(lab: Lab) -> tuple[Figure, ...]:
    """One figure per norm: where each rule stands in it."""
    figures, programs = [], _programs(lab, lab.seed)
    for name, title, (found, norm) in (
        ("steps-nuclear", "Nuclear norm", programs[0]),
        ("steps-signs", "Norm of sign products", programs[2]),
    ):
        lines = []
        for rule in discrete.RULES:
            run = discrete.stepped(lab, rule, lab.seed)
            margin = run.smallest_margin()
            rising = [k for k in range(len(run)) if margin[k] > max(0.5, margin[:k].max(initial=0.0))][::4]
            if len(rising) > 1:
                lines.append(Line(rule, margin[rising], np.array([_excess(run, k, found, norm) for k in rising])))
        caption = "Excess over the minimum of this norm, first data set."
        figures.append(log_figure(name, title, "margin", "excess", lines, caption))
    return tuple(figures)


_SIGNS = "least sum of coefficients of products of sign vectors that make up W; width times the largest |entry| of K and of Q bounds it"
STUDIES = (
    Study(
        "key-query-starts",
        "Keys and queries: scale of the start, plateaus, the basin, few columns",
        claims=(
            *(limits.kernel_to_rich, limits.spectral_prediction, limits.large_start),
            *(limits.basin, limits.wide_as_the_rank, limits.narrow),
        ),
        exhibits=(
            *(kernel_figure, plateaus_figure, basin_figure, scales_table, large_table),
            *(lambda lab: basin_table(limits.all_starts(lab, lab.seed, lab.full)), widths_table),
        ),
        definitions=DEFINED,
        aliases=("key-query-init-scale", "key-query-large-start", "key-query-width", "key-query-basin"),
    ),
    Study(
        "key-query-steps",
        "Keys and queries trained in steps: which norm?",
        claims=(
            *(discrete.descent_follows_flow, discrete.normalised_nuclear),
            *(discrete.sign_norm, discrete.adam_norm, discrete.sign_diagonal),
        ),
        exhibits=(steps_figures, steps_table),
        definitions={**DEFINED, "norm of sign products": _SIGNS},
    ),
)
