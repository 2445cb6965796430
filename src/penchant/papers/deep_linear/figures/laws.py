"""Deep linear networks along the flow: the laws to risk e^-1000000, and what is left of them where the support vectors do not span."""

from itertools import product

import numpy as np

from ....diagnostics.alignment import sine
from ....diagnostics.rates import log_log_slope
from ....exhibits import Figure, Line, Table
from ....lab import Lab, Study
from ....training.trajectory import Trajectory
from .. import laws, steps
from ..evidence import few_supports, flow, geometry, levels
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


def directions(lab: Lab) -> tuple[Figure, Table]:
    """The regime where the support vectors do not span."""
    lines, rows, window = [], [], (1e4, 1e6)
    for depth in (1, 2, 3, 4):
        lab.progress(f"support vectors that do not span, depth {depth}")
        found, path = few_supports(lab, depth, 3 + lab.seed)
        level, weights = levels(path), np.stack([path.weight(k) for k in range(len(path))])
        sines = np.array([sine(weight, found.direction) for weight in weights])
        lines.append(Line(f"L = {depth}", level[level > 10], sines[level > 10]))
        outside = log_log_slope(level, np.linalg.norm(weights @ found.outside().T, axis=1), window)
        slopes = (outside, 1 - 1 / depth, log_log_slope(level, sines, window), -1 / depth)
        rows.append((depth, len(found.support), *(f"{value:.4f}" for value in slopes)))
    caption = "Blobs in ten dimensions with fewer support vectors. With spanning support vectors every curve would have slope -1."
    title, label = "Support vectors that do not span slow the direction down", "sine of the angle to the maximum margin"
    columns = ("L", "support vectors", "exponent of the outside part", "theory", "exponent of the sine", "theory")
    text = "Slopes over -log R from 1e4 to 1e6."
    return (
        Figure("direction", title, "-log R", label, tuple(lines), caption, "log", "log"),
        Table("outside", "Outside the span of the support vectors", columns, tuple(rows), text),
    )


STUDIES = (
    Study(
        "deep-linear-laws",
        "Deep linear networks: rates and constants to risk e^-1000000",
        claims=(
            *(laws.offset, laws.time, laws.ratio_exponent, laws.alignment_exponent),
            *(laws.direction_exponent, laws.first_layer_exponent, laws.no_span, steps.critical, steps.momentum),
        ),
        exhibits=(exponents, offset, directions),
        definitions=words("-log R", "ratio", "alignment", "offset"),
        aliases=("deep-linear-no-span", "deep-linear-discretisation"),
    ),
)
