"""Keys and queries from starts the theorem does not cover: their scale, plateaus of large ones, narrow heads."""

import jax.numpy as jnp
import numpy as np

from ....exhibits import Figure, Finding, Line, Result, Shown, Table
from ....flow.flow import GradientFlow, Levels
from ....lab import Lab, Study
from ....norms import L2, Nuclear
from ....references.euclidean_margin import max_margin
from ....references.nuclear_margin import nuclear_margin
from ....settings.base import Setting
from ....settings.factored import Factors, KeyQuery
from ....settings.losses import Exponential
from ....settings.token_generators import equal_score_tokens
from ....theory.least_norm import excess
from ....theory.selections import detect_limit
from ....theory.uniqueness import certified_rank
from ....training.events import LogTimeAbove, MarginAbove, Stalled
from ....training.status import Status
from ....training.train import train
from ....training.trajectory import Trajectory
from ....verdict import at_least, at_most
from ..hypotheses import initial_loss
from ..limits import dual_spectrum
from .curves import DEFINED, Progress, excesses, flow_to, late
from .decades import decade_rows, decades_table, falling

_SMALL, _LARGE = (1.0, 0.1, 0.01), (2.0, 4.0, 8.0)


def _excess_line(label: str, run: Trajectory, value: float) -> Line:
    return Line(label, run.smallest_margin()[late(run)], np.maximum(excesses(run, value, Nuclear()), 1e-16))


def run_scales(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    lines, rows, kept, decades = [], [], {}, []
    for number in range(8) if full else range(seed, seed + 4):
        data = equal_score_tokens(3, 4, 5, number)
        setting, reference = Setting(data, KeyQuery(), Exponential()), nuclear_margin(data)
        found = []
        for scale in _SMALL:
            progress(f"data {number}, start {scale:g}")
            run = flow_to(setting, setting.start(100 + number, scale / np.sqrt(5)), 1e6)
            lines.append(_excess_line(f"data {number}, start {scale:g}", run, reference.value))
            found.append(excess(data, run.weight(), reference))
            decades += decade_rows(f"{number}", scale, run, reference)
            kept[f"data-{number}-start-{scale:g}"] = run
        far = excess(data, max_margin(data).weight, reference)
        rows.append(
            (
                number,
                *(Shown(value, ".3e") for value in found),
                Shown(far, ".3f"),
                Shown(_SMALL[int(np.argmin(found))], "g"),
            )
        )
    worst = max(cell.value for row in rows for cell in row[1:4])
    findings = (
        Finding(
            f"From starts of scale {', '.join(f'{scale:g}' for scale in _SMALL)} the flow minimises the nuclear norm, on all of {len(rows)} data sets.",
            at_most(worst, 1e-2, "largest nuclear excess at margin 1e6"),
            "conjecture",
        ),
        Finding("In every run the nuclear excess falls over margins 1e2, 1e4 and 1e6.", falling(decades), "conjecture"),
    )
    caption = "A smaller start is not always better at a given margin."
    title = "Nuclear excess for three scales of the start"
    figures = (
        Figure("scales", title, "margin", "excess", tuple(lines), caption, "log", "log"),
        _kernel_figure(progress),
    )
    columns = (
        "data",
        *(f"excess, start {scale:g}" for scale in _SMALL),
        "excess of the Frobenius solution",
        "best start",
    )
    note = "Three samples of four tokens in five dimensions; K and Q start with normal entries of deviation scale / sqrt(5)."
    table = Table("scales", "Nuclear excess at margin 1e6", columns, tuple(rows), note)
    return Result(findings, figures, (table, decades_table(decades)), kept if full else {}, DEFINED)


def _kernel_figure(progress: Progress) -> Figure:
    """Starts K = scale I, Q = 0 from large to small, against margin / scale^2."""
    data = equal_score_tokens(3, 4, 5, 1)
    setting, lines = Setting(data, KeyQuery(), Exponential()), []
    programs = (("nuclear", nuclear_margin(data).value, Nuclear()), ("Frobenius", max_margin(data).value, L2()))
    for scale in (100.0, 10.0, 3.0, 1.0):
        progress(f"start {scale:g} I")
        run = flow_to(setting, Factors(scale * jnp.eye(5), jnp.zeros((5, 5))), max(1e3 * scale**2, 1e3))
        time = run.smallest_margin()[late(run)] / scale**2
        for label, value, norm in programs:
            lines.append(Line(f"{label} excess, start {scale:g}", time, np.maximum(excesses(run, value, norm), 1e-16)))
    caption = "From K = scale I, Q = 0: below margin = scale^2 the flow is at the Frobenius solution, far above it at the nuclear one."
    title = "From the Frobenius to the nuclear solution"
    return Figure("kernel-to-rich", title, "margin / scale^2", "excess", tuple(lines), caption, "log", "log")


def run_large(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    rows, lines, reached, left = [], [], [], []
    for scale in _LARGE:
        for number in (seed, seed + 1):
            for draw in range(5 if full else 2):
                progress(f"start {scale:g}, data {number}, draw {draw}")
                run = _large_run(number, draw, scale)
                slack = initial_loss(run.setting, run.setting.data, run.at(0)).slack
                reached.append(run.status is Status.reached_target)
                left.append(_leaving(run))
                ending = f"{run.status.name}, {detect_limit(run).kind}, log t = {run.log_time[-1]:.4g}"
                rows.append(
                    (
                        scale,
                        number,
                        draw,
                        Shown(slack, ".2f"),
                        Shown(run.log_excess[0], ".4f"),
                        Shown(left[-1], ".4g"),
                        ending,
                    )
                )
                shown = np.isfinite(run.log_time) & (run.log_time > 0)
                if draw == 0:
                    lines.append(Line(f"start {scale:g}, data {number}", run.log_time[shown], -run.log_excess[shown]))
    findings = (
        Finding(
            "From large starts, where Assumption 3 fails, the flow reaches the infimum all the same.",
            at_least(float(np.mean(reached)), 1.0, "share of runs that reach margin 1e4"),
            "observed",
        ),
        Finding(
            "It stands on plateaus first, for longer than a run in plain physical time can last.",
            at_least(max(left), 100.0, "largest log t at which a run leaves the plateau of its start"),
            "observed",
        ),
    )
    caption = (
        "Each step is a plateau: some samples attend to a wrong token, and only their own e^-margin pull turns them."
    )
    figure = Figure("plateaus", "Large starts", "log t", "-log(L - L*)", tuple(lines), caption, "log", "log")
    columns = (
        "start",
        "data",
        "draw",
        "slack of Assumption 3",
        "log(L - L*) at the start",
        "log t of leaving it",
        "end",
    )
    note = "Normal entries of deviation start / sqrt(5). A run leaves its start when log(L - L*) has fallen by 1."
    return Result(
        findings, (figure,), (Table("large", "Where large starts end", columns, tuple(rows), note),), {}, DEFINED
    )


def _leaving(run: Trajectory) -> float:
    """log t at which the loss has left where it stood at the start; infinite if it has not."""
    fallen = np.flatnonzero(run.log_excess < run.log_excess[0] - 1)
    return float(run.log_time[fallen[0]]) if len(fallen) else float("inf")


def _large_run(number: int, draw: int, scale: float) -> Trajectory:
    setting = Setting(equal_score_tokens(3, 4, 5, number), KeyQuery(), Exponential())
    until = (MarginAbove(1e4), Stalled(1e4), LogTimeAbove(1e7))
    return train(setting, GradientFlow(), setting.start(draw, scale / np.sqrt(5)), until=until, steps=5000)


def run_widths(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    rows, lines, fitting, narrow = [], [], [], []
    for number in (1 + seed, 3 + seed, 4 + seed):
        data = equal_score_tokens(3, 4, 5, number)
        reference = nuclear_margin(data)
        rank = certified_rank(data, reference)
        for width in (1, 2, 3, 5, 8) if full else (1, 2, 5):
            for draw in range(3):
                progress(f"data {number}, width {width}, draw {draw}")
                setting = Setting(data, KeyQuery(width), Exponential())
                start = setting.start(draw, 0.1 / np.sqrt(width))
                levels = Levels("margin", 10.0 ** np.arange(6))
                run = train(setting, GradientFlow(), start, until=MarginAbove(1e6), steps=5000, recorder=levels)
                value, sizes = excess(data, run.weight(), reference), dual_spectrum(run)
                (fitting if width >= rank else narrow).append(value)
                nearest = float(sizes[np.abs(sizes - 1).argmin()])
                rows.append(
                    (number, rank, width, draw, Shown(value, ".3e"), Shown(nearest, ".5f"), Shown(sizes[0], ".4f"))
                )
                if draw == 0:
                    lines.append(_excess_line(f"data {number}, width {width}", run, reference.value))
    findings = (
        Finding(
            "A width of at least the rank of the solution reaches it.",
            at_most(max(fitting), 1e-2, "largest nuclear excess at margin 1e6, width at least the rank"),
            "conjecture",
        ),
        Finding(
            "A narrower head ends at stationary points above the relaxation, several on the same data.",
            at_least(min(narrow), 1e-2, "smallest nuclear excess at margin 1e6, width below the rank"),
            "derived for penchant",
        ),
    )
    caption = "Keys and queries with few columns: rank W <= width makes the program non-convex."
    figure = Figure("widths", "Nuclear excess by width", "margin", "excess", tuple(lines), caption, "log", "log")
    columns = ("data", "rank", "width", "draw", "excess", "singular value nearest 1", "largest singular value")
    note = "Singular values of the multipliers' matrix, scaled so that a stationary point of the factors has one equal to 1; it is optimal if none is larger."
    table = Table("widths", "Where heads of each width end", columns, tuple(rows), note)
    return Result(findings, (figure,), (table,), {}, DEFINED)


STUDIES = (
    Study("key-query-init-scale", "Keys and queries: the scale of the start", run_scales),
    Study("key-query-large-start", "Keys and queries: plateaus of large starts", run_large),
    Study("key-query-width", "Keys and queries with few columns", run_widths),
)
