"""Deep linear networks where the support vectors do not span: what is left of the laws."""

import numpy as np

from ....diagnostics.alignment import sine
from ....diagnostics.rates import end_slope, log_log_slope
from ....exhibits import Figure, Finding, Line, Result, Shown, Table
from ....lab import Lab, Study, claims_in
from ....verdict import all_of, at_most
from .. import laws, span
from ..evidence import few_supports, levels
from ..theorems import JI
from .alignment import claim_finding, words


def run_no_span(lab: Lab) -> Result:
    """E8: the regime where the support vectors do not span."""
    seed, progress = lab.seed, lab.progress
    lines, rows = [], []
    for depth in (1, 2, 3, 4):
        progress(f"depth {depth}")
        found, path = few_supports(lab, depth, 3 + seed)
        outside, level = found.outside(), levels(path)
        weights = np.stack([path.weight(k) for k in range(len(path))])
        component = np.linalg.norm(weights @ outside.T, axis=1)
        sines = np.array([sine(weight, found.direction) for weight in weights])
        late, window = level > 10, (1e4, 1e6)
        lines.append(Line(f"L = {depth}", level[late], sines[late]))
        rows.append(
            (
                depth,
                len(found.support),
                f"{log_log_slope(level, component, window):.4f}",
                f"{1 - 1 / depth:.4f}",
                f"{log_log_slope(level, sines, window):.4f}",
                f"{end_slope(level, sines, window):.4f}",
                f"{-1 / depth:.4f}",
                *(
                    f"{np.exp(np.interp(np.log(at), np.log(level[late]), np.log(values[late]))):.4g}"
                    for values in (component, 1 - np.sqrt(1 - sines**2))
                    for at in (1150, 1e5)
                ),
                f"{found.margin * float(weights[-1] @ found.direction) - level[-1] + np.log(path.setting.samples):.7f}",
                f"{found.entropy:.7f}",
            )
        )
    figure = Figure(
        "direction",
        "Support vectors that do not span slow the direction down",
        "-log R",
        "sine of the angle to the maximum margin",
        tuple(lines),
        "Blobs in ten dimensions with fewer support vectors. With spanning support vectors every curve would have slope -1.",
        "log",
        "log",
    )
    table = Table(
        "exponents",
        "Outside the span of the support vectors",
        (
            "L",
            "support vectors",
            "exponent of the outside part",
            "theory",
            "exponent of the sine",
            "end to end",
            "theory",
            "outside part at 1150",
            "at 1e5",
            "1 - cos at 1150",
            "at 1e5",
            "size law at the end",
            "entropy of p",
        ),
        tuple(rows),
        "Slopes over -log R from 1e4 to 1e6, fitted to all records there, and between its two ends.",
    )
    findings = tuple(claim_finding(lab, name, claims_in(laws), seed) for name in ("no-span", "no-span-inside"))
    progress("starts outside the span")
    sizes, turned = _outside(lab)
    findings += tuple(claim_finding(lab, claim.name.split("/")[1], claims_in(span), seed) for claim in claims_in(span))
    progress("draws of data")
    one_layer = all_of(at_most(abs(float(rows[0][2])), 1e-3, "exponent of the outside part at L = 1"))
    return Result(
        (*findings, Finding("With one layer the outside part never moves.", one_layer, JI)),
        (figure, turned),
        (table, sizes, _shares(lab, seed)),
        {},
        words("-log R", "offset", "H(p)", "size law"),
    )


def _shares(lab: Lab, seed: int) -> Table:
    """How many data sets satisfy Assumption 3."""
    rows = tuple(
        (kind, d, n, Shown(span.spanning(lab, kind, d, n, seed * span.DRAWS) / span.DRAWS, ".3f"))
        for kind in span.KINDS
        for d, n in span.SIZES
    )
    return Table(
        "shares",
        "Assumption 3 is seldom satisfied",
        ("data", "dimension", "samples", "share of draws whose support vectors span"),
        rows,
        f"{span.DRAWS} draws each. Where it fails the direction turns like (-log R)^(-1/L) instead of (-log R)^-1.",
    )


def _outside(lab: Lab) -> tuple[Table, Figure]:
    """What W_1 has outside the span at the start, on data that see it and on data that do not."""
    rows, lines = [], []
    for where in ("as they are", "projected"):
        for depth in (2, 3):
            sizes, constants = (0.0, 0.25, 1.0, 4.0), []
            for size in sizes:
                found, path = span.span_run(lab, where, depth, size)
                measured, predicted = span.outside_constant(found, path, depth)
                constants.append(measured)
                rows.append((where, depth, size, Shown(measured, ".6g"), Shown(predicted, ".6g")))
            lines.append(Line(f"{where}, L = {depth}", np.array(sizes), np.array(constants)))
    table = Table(
        "outside",
        "The start outside the span of the support vectors",
        ("data", "L", "size of the outside part of W_1(0)", "sin(angle) (-log R / margin)^(1/L)", "|u_1' W_1| outside"),
        tuple(rows),
        "At risk e^-1000000, size 1 a normal start of scale 0.3. Projected data never move W_1 outside the span, so that a start without an outside part keeps none.",
    )
    figure = Figure(
        "outside",
        "The slow turn remembers the start",
        "size of the outside part of W_1(0)",
        "sin(angle) (-log R / margin)^(1/L)",
        tuple(lines),
        "Blobs in ten dimensions. On projected data the curves are lines through 0; data with parts outside the span add their own to W_1 before they fall silent.",
    )
    return table, figure


STUDIES = (Study("deep-linear-no-span", "Deep linear networks: support vectors that do not span", run_no_span),)
