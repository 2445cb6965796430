"""Deep linear networks along the flow: the laws to risk e^-1000000."""

import numpy as np

from ....diagnostics.alignment import alignment_limits, alignments, clock_error, conservation_drift, sandwich, sine
from ....diagnostics.rates import end_slope
from ....exhibits import Figure, Line, Result, Table
from ....lab import Lab, Study, claims_in
from ....training.trajectory import Trajectory
from .. import laws
from ..evidence import flow, flow_at, geometry, layers, levels, tight_flow
from .alignment import claim_finding, words


def run_laws(lab: Lab) -> Result:
    """E3: exponents for depths 2, 3, 4, 6 against theory, with intervals over starts, for both losses."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    seeds = range(1 + seed, (13 if full else 7) + seed)
    rows, figures, findings = [], [], []
    for depth in laws.DEPTHS:
        for logistic in (False, True):
            for start in seeds:
                progress(f"depth {depth}, start {start}, {'logistic' if logistic else 'exponential'}")
                flow(lab, depth, logistic, start)
        slopes = [laws.measured_exponents(lab, depth, logistic, seeds) for logistic in (False, True)]
        for name, wanted in laws.exponents(depth).items():
            rows.append((depth, name, f"{wanted:.4f}", *(str(found[name]) for found in slopes)))
    for name in laws.exponents(2):
        curves = []
        for depth in laws.DEPTHS:
            at = levels(flow(lab, depth, seed=seeds[0]))
            values = laws.series(lab, depth, seed=seeds[0])[name]
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
        findings.append(claim_finding(lab, name, claims_in(laws), seed))
    exponents = Table(
        "exponents",
        "Exponents in -log R",
        ("L", "quantity", "theory", "exponential loss", "logistic loss"),
        tuple(rows),
        f"Slopes over -log R from 1e5 to 1e6, mean over {len(seeds)} starts; ± is the 95 % interval over starts plus the drift since the decade before. "
        "The first layer's is the slope of the root mean square over the starts from 1e4 to 1e6, and its drift that since 1e2 to 1e4: its constant is a "
        "signed number that some starts nearly lack.",
    )
    start = 1 + seed
    meant = words("-log R", "ratio", "alignment", "offset", "excess", "H(p)", "conservation drift", "margin sandwich")
    return Result(
        tuple(findings),
        (*figures, _offset_figure(lab, start)),
        (
            exponents,
            _slopes_table(lab, start),
            _levels_table(lab, start),
            _limits_table(lab, start),
            _integration_table(lab, start),
        ),
        {"flow-depth-4": flow(lab, 4, seed=start)} if full else {},
        meant,
    )


def _slopes_table(lab: Lab, start: int) -> Table:
    """One start over one decade, pair by pair: what a single run shows before the limit."""
    rows, decade = [], (1e4, 1e5)
    for depth in laws.DEPTHS:
        path, found, unit = flow(lab, depth, seed=start), layers(lab, depth, seed=start), geometry(lab).direction
        level = levels(path)
        at = lambda values, level=level: float(
            np.interp(np.log(decade[1]), np.log(level[level > 1]), values[level > 1])
        )
        slope = lambda values, level=level: f"{end_slope(level, values, decade):.3f}"
        slopes = laws.series(lab, depth, seed=start)
        law = depth * geometry(lab).margin ** (2 / depth) * level ** (2 - 2 / depth)
        rows.append(
            (
                depth,
                ", ".join(slope(found.deficit[:, k]) for k in range(depth - 1)),
                ", ".join(slope(found.misfit[:, k]) for k in range(depth - 1)),
                slope(slopes["weight"]),
                slope(np.array([sine(vector, unit) for vector in found.first])),
                f"{at(np.exp(2 * path.log_slope) / law):.5f}",
                f"{at(path.log_time - level):.4f}",
            )
        )
    columns = (
        "L",
        "1 - ratio, layers 1 to L-1",
        "1 - |<v, u>|, pairs 1 to L-1",
        "sine of w",
        "sine of v_1",
        "|grad log R|^2 / law",
        "log t + log R",
    )
    text = "Slopes in -log R from 1e4 to 1e5, end to end; the last two columns at 1e5, where the law is L margin^(2/L) (-log R)^(2-2/L)."
    return Table("slopes", f"One start (seed {start}), exponential loss", columns, tuple(rows), text)


def _signed_offset(lab: Lab, path: Trajectory) -> np.ndarray:
    across = np.array([-geometry(lab).direction[1], geometry(lab).direction[0]])
    return np.array([path.weight(k) @ across for k in range(len(path))])


def _offset_figure(lab: Lab, start: int) -> Figure:
    paths = {depth: flow(lab, depth, seed=start) for depth in laws.DEPTHS}
    lines = [Line(f"L = {depth}", levels(path), _signed_offset(lab, path)) for depth, path in paths.items()]
    wanted = float(geometry(lab).offset @ np.array([-geometry(lab).direction[1], geometry(lab).direction[0]]))
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


def _levels_table(lab: Lab, start: int) -> Table:
    path, unit = flow_at(lab, (2.229, 107.1, 1123.0, 11689.0, 1e5, 1e6), start), geometry(lab).direction
    found, rows, at = alignments(path), [], levels(path)
    # A run ends with a record of its own, here at the last level once more.
    for k in (k for k in range(1, len(path)) if at[k] > at[k - 1] * (1 + 1e-9)):
        rows.append(
            (
                f"{at[k]:.6g}",
                f"{found.deficit[k, 1]:.3g}",
                f"{found.misfit[k, 1]:.2g}",
                f"{_signed_offset(lab, path)[k]:.6f}",
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


def _limits_table(lab: Lab, start: int) -> Table:
    rows = []
    for logistic in (False, True):
        path, found = flow(lab, 4, logistic, start), layers(lab, 4, logistic, start)
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


def _integration_table(lab: Lab, start: int) -> Table:
    paths = {str(depth): flow(lab, depth, seed=start) for depth in laws.DEPTHS} | {"4, tighter": tight_flow(lab, start)}
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


STUDIES = (Study("deep-linear-laws", "Deep linear networks: rates and constants to risk e^-1000000", run_laws),)
