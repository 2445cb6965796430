"""Deep linear networks along the flow: the laws to risk e^-1000000, and what is left of them where the support vectors do not span."""

from collections.abc import Callable

import numpy as np

from ..diagnostics.alignment import alignment_limits, alignments, clock_error, conservation_drift, sandwich, sine
from ..diagnostics.rates import log_log_slope
from ..theorems import deep_linear_laws as laws
from ..theorems.deep_linear import JI
from ..theorems.deep_linear_problems import few_supports, flow, flow_at, geometry, layers, levels, tight_flow
from ..training.trajectory import Trajectory
from ..verdict import all_of, at_most
from .base import Figure, Finding, Line, Result, Study, Table
from .deep_linear import WORDS, claim_finding


def run_laws(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    """E3: exponents for depths 2, 3, 4, 6 against theory, with intervals over starts, for both losses."""
    seeds = range(1 + seed, (13 if full else 7) + seed)
    rows, figures, findings = [], [], []
    for depth in laws.DEPTHS:
        for logistic in (False, True):
            for start in seeds:
                progress(f"depth {depth}, start {start}, {'logistic' if logistic else 'exponential'}")
                flow(depth, logistic, start)
        slopes = [laws.measured_exponents(depth, logistic, seeds) for logistic in (False, True)]
        for name, wanted in laws.exponents(depth).items():
            rows.append((depth, name, f"{wanted:.4f}", *(str(found[name]) for found in slopes)))
    for name in laws.exponents(2):
        curves = []
        for depth in laws.DEPTHS:
            at = levels(flow(depth, seed=seeds[0]))
            values = laws.series(depth, seed=seeds[0])[name]
            curves.append(Line(f"L = {depth}", at[at > 1], values[at > 1]))
        figures.append(
            Figure(
                name.replace(" ", "-"),
                f"The law of the {name}",
                "-log R",
                name,
                tuple(curves),
                "Exponential loss, to risk e^-1000000. Slopes in the table.",
                "log",
                "log",
            )
        )
    for name in (
        "offset",
        "size",
        "gradient",
        "time",
        "excess-limit",
        "alignment-limit",
        "ratio-exponent",
        "alignment-exponent",
        "direction-exponent",
        "first-layer-exponent",
    ):
        findings.append(claim_finding(name, laws.CLAIMS))
    exponents = Table(
        "exponents",
        "Exponents in -log R",
        ("L", "quantity", "theory", "exponential loss", "logistic loss"),
        tuple(rows),
        f"Slopes over -log R from 1e5 to 1e6, mean over {len(seeds)} starts; ± is the 95 % interval over starts plus the drift since the decade before.",
    )
    return Result(
        tuple(findings),
        (*figures, _offset_figure()),
        (exponents, _levels_table(), _limits_table(), _integration_table()),
        {"flow-depth-4": flow(4)} if full else {},
        WORDS,
    )


def _signed_offset(path: Trajectory) -> np.ndarray:
    across = np.array([-geometry().direction[1], geometry().direction[0]])
    return np.array([path.weight(k) @ across for k in range(len(path))])


def _offset_figure() -> Figure:
    lines = [Line(f"L = {depth}", levels(flow(depth)), _signed_offset(flow(depth))) for depth in laws.DEPTHS]
    wanted = float(geometry().offset @ np.array([-geometry().direction[1], geometry().direction[0]]))
    lines.append(Line("predicted", np.array([1.0, 1e6]), np.full(2, wanted), "prediction"))
    return Figure(
        "offset",
        "One offset for every depth",
        "-log R",
        "offset, signed",
        tuple(lines),
        "It overshoots before it settles.",
        "log",
    )


def _levels_table() -> Table:
    path, unit = flow_at((2.229, 107.1, 1123.0, 11689.0, 1e5, 1e6)), geometry().direction
    found, rows = alignments(path), []
    for k in range(1, len(path)):
        rows.append(
            (
                f"{levels(path)[k]:.6g}",
                f"{found.deficit[k, 1]:.3g}",
                f"{found.misfit[k, 1]:.2g}",
                f"{_signed_offset(path)[k]:.6f}",
                f"{sine(path.weight(k), unit):.3g}",
                f"{sine(found.first[k], unit):.3g}",
                f"{1 - found.product[k]:.5f}",
            )
        )
    columns = (
        "-log R",
        "1 - ratio of layer 2",
        "1 - |<v_3, u_2>|",
        "offset",
        "sine of w",
        "sine of v_1",
        "|w| / product of norms",
    )
    return Table(
        "levels",
        "Depth 4 along the flow",
        columns,
        tuple(rows),
        "2-8-8-8-1, exponential loss.",
    )


def _limits_table() -> Table:
    rows = []
    for logistic in (False, True):
        path, found = flow(4, logistic), layers(4, logistic)
        limits = alignment_limits(path.at(0), path.at())
        measured = found.spectral[-1, 1:] ** 4 * found.misfit[-1] * (2 - found.misfit[-1])
        for k in range(3):
            rows.append(
                (
                    "logistic" if logistic else "exponential",
                    k + 1,
                    f"{found.excess[-1, k]:.4f}",
                    f"{limits.excess[k]:.4f}",
                    f"{measured[k]:.5f}",
                    f"{limits.misfit[k]:.5f}",
                )
            )
    return Table(
        "limits",
        "Constants at risk e^-1000000",
        ("loss", "layer", "excess", "predicted", "spectral^4 (1 - <v, u>^2)", "predicted"),
        tuple(rows),
        "Predictions from the conserved matrices of the start.",
    )


def _integration_table() -> Table:
    paths = {str(depth): flow(depth) for depth in laws.DEPTHS} | {"4, tighter": tight_flow()}
    rows = []
    for name, path in paths.items():
        lower, upper = sandwich(path)
        rows.append(
            (
                name,
                f"{path.header['optimiser']['tolerance']:.0e}",
                path.header["integrator"]["steps"],
                f"{conservation_drift(path).max():.1e}",
                f"{clock_error(path):.1e}",
                f"{upper[-1] - lower[-1]:.3g}",
                f"{path.log_time[-1] - 1e6:.4f}",
            )
        )
    columns = (
        "L",
        "tolerance",
        "steps",
        "conservation drift",
        "clock error",
        "width of the margin sandwich",
        "log t - 1e6",
    )
    return Table(
        "integration",
        "The integration itself",
        columns,
        tuple(rows),
        "Flow to risk e^-1000000. The drift is the error of matrices that the exact flow conserves; the clock error is that of -log R against the clock, "
        "an error along the path which landing on a risk level removes.",
    )


def run_no_span(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    """E8: the regime where the support vectors do not span."""
    lines, rows = [], []
    for depth in (1, 2, 3, 4):
        progress(f"depth {depth}")
        found, path = few_supports(depth, 3 + seed)
        outside, level = found.outside(), levels(path)
        weights = np.stack([path.weight(k) for k in range(len(path))])
        component = np.linalg.norm(weights @ outside.T, axis=1)
        sines = np.array([sine(weight, found.direction) for weight in weights])
        late = level > 10
        lines.append(Line(f"L = {depth}", level[late], sines[late]))
        rows.append(
            (
                depth,
                len(found.support),
                f"{log_log_slope(level, component, (1e4, 1e6)):.4f}",
                f"{1 - 1 / depth:.4f}",
                f"{log_log_slope(level, sines, (1e4, 1e6)):.4f}",
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
        "Blobs in ten dimensions, six support vectors. With spanning support vectors every curve would have slope -1.",
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
            "theory",
            "outside part at 1150",
            "at 1e5",
            "1 - cos at 1150",
            "at 1e5",
            "size law at the end",
            "entropy of p",
        ),
        tuple(rows),
        "Slopes over -log R from 1e4 to 1e6; the size law is margin <w, u> + log n + log R.",
    )
    findings = (claim_finding("no-span", laws.CLAIMS), claim_finding("no-span-inside", laws.CLAIMS))
    one_layer = all_of(at_most(abs(float(rows[0][2])), 1e-3, "exponent of the outside part at L = 1"))
    return Result(
        (*findings, Finding("With one layer the outside part never moves.", one_layer, JI)),
        (figure,),
        (table,),
        {},
        WORDS,
    )


STUDIES = (
    Study("deep-linear-laws", "Deep linear networks: rates and constants to risk e^-1000000", "deep_linear", run_laws),
    Study("deep-linear-no-span", "Deep linear networks: support vectors that do not span", "deep_linear", run_no_span),
)
