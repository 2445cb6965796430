"""Deep linear networks where the support vectors do not span: what is left of the laws, and how far Lemma 4 is from sharp where they do."""

import numpy as np

from ....diagnostics.alignment import sine
from ....diagnostics.rates import end_slope, log_log_slope
from ....exhibits import Figure, Line, Shown, Table
from ....lab import Lab, Study
from ....settings.losses import Exponential, Logistic
from .. import laws, pull, span
from ..evidence import few_supports, levels, size_law
from . import words


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
        at = lambda values, x, level=level, late=late: np.exp(
            np.interp(np.log(x), np.log(level[late]), np.log(values[late]))
        )
        size = size_law(found, path, path.setting.samples)
        rows.append(
            (
                *(depth, len(found.support)),
                *(f"{value:.4f}" for value in (*fits, end_slope(level, sines, window), -1 / depth)),
                *(f"{at(values, x):.4g}" for values in ways for x in (1150, 1e5)),
                *(f"{size:.7f}", f"{found.entropy:.7f}"),
            )
        )
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
        found = [span.outside_constant(*span.span_run(lab, where, depth, size), depth) for size in sizes]
        rows += [
            (where, depth, size, *(Shown(value, ".6g") for value in pair))
            for size, pair in zip(sizes, found, strict=True)
        ]
        lines.append(Line(f"{where}, L = {depth}", np.array(sizes), np.array(found)[:, 0]))
    size, turn = "size of the outside part of W_1(0)", "sin(angle) (-log R / margin)^(1/L)"
    text = "At risk e^-1000000, size 1 a normal start of scale 0.3. Projected data never move W_1 outside the span, so that a start without an outside part keeps none."
    caption = "Blobs in ten dimensions. On projected data the curves are lines through 0; data with parts outside the span add their own to W_1 before they fall silent."
    title, columns = (
        "The start outside the span of the support vectors",
        ("data", "L", size, turn, "|u_1' W_1| outside"),
    )
    return (
        Table("outside", title, columns, tuple(rows), text),
        Figure("outside", "The slow turn remembers the start", size, turn, tuple(lines), caption),
    )


def shares(lab: Lab) -> Table:
    """How many data sets satisfy Assumption 3: in five dimensions and more the support vectors of two blobs seldom span."""
    lab.progress("draws of data")
    share = lambda kind, d, n: span.spanning(lab, kind, d, n, lab.seed * span.DRAWS) / span.DRAWS
    rows = tuple((kind, d, n, Shown(share(kind, d, n), ".3f")) for kind in span.KINDS for d, n in span.SIZES)
    columns = ("data", "dimension", "samples", "share of draws whose support vectors span")
    text = f"{span.DRAWS} draws each. Where it fails the direction turns like (-log R)^(-1/L) instead of (-log R)^-1."
    return Table("shares", "Assumption 3 is seldom satisfied", columns, rows, text)


def gaps(lab: Lab) -> Table:
    """How far below the K of Lemma 4 violations end on random data that span."""
    rows = []
    for name, loss in (("exponential", Exponential()), ("logistic", Logistic())):
        found = [(threshold / longest, d) for d, longest, threshold in pull.violations(lab, loss, name) if longest > 0]
        least, d = min(found)
        rows.append((name, len(found), Shown(least, ".4g"), d))
    columns = ("loss", "data sets with violations", "smallest K / longest violation", "in dimension")
    text = "K bounds the orthogonal parts that the gradient may lengthen; 20 000 weights on each of twelve data sets."
    return Table("gaps", "Lemma 4 on random data: only parts far below K are lengthened", columns, tuple(rows), text)


STUDIES = (
    Study(
        "deep-linear-no-span",
        "Deep linear networks: support vectors that do not span",
        claims=(laws.no_span, laws.no_span_inside, span.projected, span.frozen, span.constant),
        exhibits=(directions, outside, shares, gaps),
        definitions=words("-log R", "offset", "H(p)", "size law"),
    ),
)
