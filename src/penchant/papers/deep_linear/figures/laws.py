"""Deep linear networks along the flow: the laws to risk e^-1000000, what is left of them where the support vectors do not span, and how far Lemma 4 is from sharp."""

from itertools import product

import numpy as np

from ....diagnostics.alignment import alignments, sine
from ....diagnostics.rates import end_slope, log_log_slope
from ....exhibits import Figure, Line, Shown, Table, table
from ....lab import Lab, Study
from ....settings.losses import Exponential, Logistic
from ....training.trajectory import Trajectory
from .. import laws, lemmas
from ..evidence import few_supports, flow, flow_at, geometry, layers, levels, size_law
from . import words


def exponents(lab: Lab) -> tuple:
    """Exponents for depths 2, 3, 4, 6 against theory, with intervals over starts, for both losses."""
    seeds, rows, figures = range(1 + lab.seed, (13 if lab.full else 7) + lab.seed), [], []
    for depth, logistic, start in product(laws.DEPTHS, (False, True), seeds):
        lab.progress(f"depth {depth}, start {start}, {'logistic' if logistic else 'exponential'}")
        flow(lab, depth, logistic, start)
    for depth in laws.DEPTHS:
        slopes = [laws.measured_exponents(lab, depth, logistic, seeds) for logistic in (False, True)]
        for name, wanted in laws.exponents(depth).items():
            rows.append((depth, name, f"{wanted:.4f}", *(str(found[name]) for found in slopes)))
    caption = "Exponential loss, to risk e^-1000000. Slopes in the table."
    for name in laws.exponents(2):
        curves = []
        for depth in laws.DEPTHS:
            at, values = levels(flow(lab, depth, seed=seeds[0])), laws.series(lab, depth, seed=seeds[0])[name]
            curves.append(Line(f"L = {depth}", at[at > 1], values[at > 1]))
        title = f"The law of the {name}"
        figures.append(Figure(name.replace(" ", "-"), title, "-log R", name, tuple(curves), caption, "log", "log"))
    text = (
        f"Slopes over -log R from 1e5 to 1e6, mean over {len(seeds)} starts; ± is the 95 % interval over starts plus the drift since the decade before. "
        "The first layer's is the slope of the root mean square over the starts from 1e4 to 1e6, and its drift that since 1e2 to 1e4: its constant is a "
        "signed number that some starts nearly lack."
    )
    columns = ("L", "quantity", "theory", "exponential loss", "logistic loss")
    return *figures, Table("exponents", "Exponents in -log R", columns, tuple(rows), text)


def slopes(lab: Lab) -> Table:
    """One start over one decade, pair by pair: what a single run shows before the limit."""
    rows, decade, start = [], (1e4, 1e5), 1 + lab.seed
    for depth in laws.DEPTHS:
        path, found, unit = flow(lab, depth, seed=start), layers(lab, depth, seed=start), geometry(lab).direction
        level = levels(path)
        late = level > 1
        at = lambda values, level=level, late=late: float(
            np.interp(np.log(decade[1]), np.log(level[late]), values[late])
        )
        slope = lambda values, level=level: f"{end_slope(level, values, decade):.3f}"
        law = depth * geometry(lab).margin ** (2 / depth) * level ** (2 - 2 / depth)
        pairs = (", ".join(slope(values[:, k]) for k in range(depth - 1)) for values in (found.deficit, found.misfit))
        first = np.array([sine(vector, unit) for vector in found.first])
        sines = (slope(laws.series(lab, depth, seed=start)["weight"]), slope(first))
        ends = (f"{at(np.exp(2 * path.log_slope) / law):.5f}", f"{at(path.log_time - level):.4f}")
        rows.append((depth, *pairs, *sines, *ends))
    ratios, fits = "1 - ratio, layers 1 to L-1", "1 - |<v, u>|, pairs 1 to L-1"
    columns = ("L", ratios, fits, "sine of w", "sine of v_1", "|grad log R|^2 / law", "log t + log R")
    text = "Slopes in -log R from 1e4 to 1e5, end to end; the last two columns at 1e5, where the law is L margin^(2/L) (-log R)^(2-2/L)."
    return Table("slopes", f"One start (seed {start}), exponential loss", columns, tuple(rows), text)


def _across(lab: Lab) -> np.ndarray:
    unit = geometry(lab).direction
    return np.array([-unit[1], unit[0]])


def _signed_offset(lab: Lab, path: Trajectory) -> np.ndarray:
    return np.array([path.weight(k) @ _across(lab) for k in range(len(path))])


def offset(lab: Lab) -> Figure:
    paths = {depth: flow(lab, depth, seed=1 + lab.seed) for depth in laws.DEPTHS}
    lines = [Line(f"L = {depth}", levels(path), _signed_offset(lab, path)) for depth, path in paths.items()]
    wanted = np.full(2, float(geometry(lab).offset @ _across(lab)))
    lines.append(Line("predicted", np.array([1.0, 1e6]), wanted, "prediction"))
    title, caption = "One offset for every depth", "It overshoots before it settles."
    return Figure("offset", title, "-log R", "offset, signed", tuple(lines), caption, "log")


def along(lab: Lab) -> Table:
    path, unit = flow_at(lab, (2.229, 107.1, 1123.0, 11689.0, 1e5, 1e6), 1 + lab.seed), geometry(lab).direction
    found, rows, at = alignments(path), [], levels(path)
    # A run ends with a record of its own, here at the last level once more.
    for k in (k for k in range(1, len(path)) if at[k] > at[k - 1] * (1 + 1e-9)):
        fits = (f"{found.deficit[k, 1]:.3g}", f"{found.misfit[k, 1]:.2g}", f"{_signed_offset(lab, path)[k]:.6f}")
        sines = (f"{sine(vector, unit):.3g}" for vector in (path.weight(k), found.first[k]))
        rows.append((f"{at[k]:.6g}", *fits, *sines, f"{1 - found.product[k]:.5f}"))
    fits = ("1 - ratio of layer 2", "1 - |<v_3, u_2>|", "offset")
    columns = ("-log R", *fits, "sine of w", "sine of v_1", "|w| / product of norms")
    return Table("levels", "Depth 4 along the flow", columns, tuple(rows), "2-8-8-8-1, exponential loss.")


def kept_run(lab: Lab) -> dict[str, Trajectory]:
    return {"flow-depth-4": flow(lab, 4, seed=1 + lab.seed)} if lab.full else {}


def directions(lab: Lab) -> tuple[Figure, Table]:
    """The regime where the support vectors do not span."""
    lines, rows, window = [], [], (1e4, 1e6)
    for depth in (1, 2, 3, 4):
        lab.progress(f"depth {depth}")
        found, path = few_supports(lab, depth, 3 + lab.seed)
        level, weights = levels(path), np.stack([path.weight(k) for k in range(len(path))])
        component = np.linalg.norm(weights @ found.outside().T, axis=1)
        sines = np.array([sine(weight, found.direction) for weight in weights])
        late = level > 10
        lines.append(Line(f"L = {depth}", level[late], sines[late]))
        fits = (log_log_slope(level, component, window), 1 - 1 / depth, log_log_slope(level, sines, window))
        ways = (component, 1 - np.sqrt(1 - sines**2))
        logs = np.log(level[late])
        at = lambda values, x, logs=logs, late=late: np.exp(np.interp(np.log(x), logs, np.log(values[late])))
        size = size_law(found, path, path.setting.samples)
        slopes = (f"{value:.4f}" for value in (*fits, end_slope(level, sines, window), -1 / depth))
        passed = (f"{at(values, x):.4g}" for values in ways for x in (1150, 1e5))
        rows.append((depth, len(found.support), *slopes, *passed, f"{size:.7f}", f"{found.entropy:.7f}"))
    caption = "Blobs in ten dimensions with fewer support vectors. With spanning support vectors every curve would have slope -1."
    title, label = "Support vectors that do not span slow the direction down", "sine of the angle to the maximum margin"
    columns = (
        *("L", "support vectors", "exponent of the outside part", "theory", "exponent of the sine", "end to end"),
        *("theory", "outside part at 1150", "at 1e5", "1 - cos at 1150", "at 1e5", "size law at the end"),
        "entropy of p",
    )
    text = "Slopes over -log R from 1e4 to 1e6, fitted to all records there, and between its two ends."
    return (
        Figure("direction", title, "-log R", label, tuple(lines), caption, "log", "log"),
        Table("exponents", "Outside the span of the support vectors", columns, tuple(rows), text),
    )


def outside(lab: Lab) -> tuple[Table, Figure]:
    """What W_1 has outside the span at the start, on data that see it and on data that do not."""
    rows, lines, sizes = [], [], (0.0, 0.25, 1.0, 4.0)
    lab.progress("starts outside the span")
    for where, depth in (("as they are", 2), ("as they are", 3), ("projected", 2), ("projected", 3)):
        found = [laws.outside_constant(*laws.span_run(lab, where, depth, size), depth) for size in sizes]
        rows += [(where, depth, size, *pair) for size, pair in zip(sizes, found, strict=True)]
        lines.append(Line(f"{where}, L = {depth}", np.array(sizes), np.array(found)[:, 0]))
    size, turn = "size of the outside part of W_1(0)", "sin(angle) (-log R / margin)^(1/L)"
    text = "At risk e^-1000000, size 1 a normal start of scale 0.3. Projected data never move W_1 outside the span, so that a start without an outside part keeps none."
    caption = "Blobs in ten dimensions. On projected data the curves are lines through 0; data with parts outside the span add their own to W_1 before they fall silent."
    title, columns = "The start outside the span of the support vectors", {"data": "", "L": "", size: ""}
    columns |= dict.fromkeys((turn, "|u_1' W_1| outside"), ".6g")
    return (
        table("outside", title, columns, rows, text),
        Figure("outside", "The slow turn remembers the start", size, turn, tuple(lines), caption),
    )


def shares(lab: Lab) -> Table:
    """How many data sets satisfy Assumption 3: in five dimensions and more the support vectors of two blobs seldom span."""
    lab.progress("draws of data")
    share = lambda kind, d, n: laws.spanning(lab, kind, d, n, lab.seed * laws.DRAWS) / laws.DRAWS
    rows = tuple((kind, d, n, Shown(share(kind, d, n), ".3f")) for kind in laws.KINDS for d, n in laws.SIZES)
    columns = ("data", "dimension", "samples", "share of draws whose support vectors span")
    text = f"{laws.DRAWS} draws each. Where it fails the direction turns like (-log R)^(-1/L) instead of (-log R)^-1."
    return Table("shares", "Assumption 3 is seldom satisfied", columns, rows, text)


def gaps(lab: Lab) -> Table:
    """How far below the K of Lemma 4 violations end on random data that span."""
    rows = []
    for name, loss in (("exponential", Exponential()), ("logistic", Logistic())):
        found = [
            (threshold / longest, d) for d, longest, threshold in lemmas.violations(lab, loss, name) if longest > 0
        ]
        least, d = min(found)
        rows.append((name, len(found), Shown(least, ".4g"), d))
    columns = ("loss", "data sets with violations", "smallest K / longest violation", "in dimension")
    text = "K bounds the orthogonal parts that the gradient may lengthen; 20 000 weights on each of twelve data sets."
    return Table("gaps", "Lemma 4 on random data: only parts far below K are lengthened", columns, tuple(rows), text)


STUDIES = (
    Study(
        "deep-linear-laws",
        "Deep linear networks: rates and constants to risk e^-1000000",
        claims=(
            *(laws.offset, laws.size, laws.gradient, laws.time, laws.excess_limit, laws.misfit_limit),
            *(laws.ratio_exponent, laws.alignment_exponent, laws.direction_exponent, laws.first_layer_exponent),
        ),
        exhibits=(exponents, offset, slopes, along, kept_run),
        definitions=words("-log R", "ratio", "alignment", "offset", "excess", "H(p)"),
    ),
    Study(
        "deep-linear-no-span",
        "Deep linear networks: support vectors that do not span",
        claims=(laws.no_span, laws.no_span_inside, laws.projected, laws.constant),
        exhibits=(directions, outside, shares, gaps),
        definitions=words("-log R", "offset", "H(p)", "size law"),
    ),
)
