"""Deep linear networks by line search: Figure 1 of the paper."""

import numpy as np

from ....diagnostics.alignment import alignments, sandwich, sine
from ....exhibits import Figure, Line, Table
from ....lab import Lab, Study, recipe
from ....optimisers.layerwise import LayerDescent, LineSearch
from ....training.recorders import Every
from ....training.train import train
from ....training.trajectory import Trajectory
from ..evidence import descent, geometry, levels, problem
from ..flow import descent_margin, layers_align
from ..lemmas import descent_bounds
from . import words


@recipe
def _runs(lab: Lab) -> tuple[Trajectory, Trajectory, Trajectory]:
    """Four layers, four layers from a small start, and one layer from 0."""
    steps, seed = 1000 if lab.full else 250, 1 + lab.seed
    lab.progress("line search")
    one = problem(lab, 1, logistic=True)[0]
    single = train(one, LayerDescent(LineSearch(one)), (np.zeros((1, 2)),), steps=steps, recorder=Every())
    return descent(lab, steps=steps, seed=seed), descent(lab, steps=steps, scale=0.15, seed=seed), single


def _angles(lab: Lab, run: Trajectory) -> np.ndarray:
    unit = geometry(lab).direction
    weights = [run.weight(k) for k in range(len(run))]
    return np.array([np.degrees(np.arcsin(min(1.0, sine(w, unit)))) if w.any() else np.nan for w in weights])


def risks(lab: Lab) -> tuple[Figure, Figure]:
    deep, small, single = _runs(lab)
    named = {"start 0.4": deep, "start 0.15": small, "1 layer": single}
    lines = tuple(Line(name, run.steps, levels(run)) for name, run in named.items())
    plain = tuple(Line(name, run.steps, np.exp(run.log_excess)) for name, run in list(named.items())[:2])
    caption = "The first panel on a linear axis, where it looks finished after ten steps."
    return (
        Figure("risk", "Risk against the step", "step", "-log R", lines, "Logistic risk, uncapped line search."),
        Figure("risk-linear", "Risk against the step, as the paper draws it", "step", "R", plain, caption),
    )


def aligned(lab: Lab) -> tuple[Figure, Figure]:
    run = _runs(lab)[1]
    found, step = alignments(run), np.maximum(run.steps, 1)
    ratios = tuple(Line(f"layer {k + 1}", step, 1 - found.deficit[:, k]) for k in range(4))
    misfits = tuple(Line(f"layers {k + 1} and {k + 2}", step, found.misfit[:, k]) for k in range(3))
    caption = "Start 0.15. The last layer is a row, so its ratio is always 1."
    title, label = "Adjacent layers align", "1 - |<v, u>|"
    return (
        Figure("ratios", "Every layer tends to rank one", "step", "spectral / Frobenius", ratios, caption, "log"),
        Figure("alignment", title, "step", label, misfits, "Start 0.15.", "log", "log"),
    )


def angles(lab: Lab) -> tuple[Figure, Table]:
    deep, _, single = _runs(lab)
    lines = tuple(
        Line(name, run.steps[1:], _angles(lab, run)[1:]) for name, run in (("4 layers", deep), ("1 layer", single))
    )
    caption = "Not monotone: the line search works at the edge of stability."
    rows = tuple(
        (name, k, *_of_direction(lab, run, k), f"{np.exp(run.log_excess[k]):.2g}")
        for name, run in (("4 layers, start 0.4", deep), ("1 layer, start 0", single))
        for k in (0, 1, 10, 100, 250, *((1000,) if lab.full else ()))
    )
    columns = ("network", "step", "degrees to the maximum margin", "margin / best margin", "risk")
    return (
        Figure("angle", "Angle to the maximum margin", "step", "degrees", lines, caption, "log", "log"),
        Table("angles", "Angles, margins and risks", columns, rows, "Strips in the plane, n = 40."),
    )


def _of_direction(lab: Lab, run: Trajectory, record: int) -> tuple[str, str]:
    """Angle and relative margin; the weight 0 has neither."""
    if not run.weight(record).any():
        return "no direction", ""
    return f"{_angles(lab, run)[record]:.4g}", f"{sandwich(run)[0][record] / geometry(lab).margin:.6g}"


def layers(lab: Lab) -> Table:
    """Figure 1b as numbers: risk, ratios and alignments on the way."""
    rows = []
    for start, run in zip(("0.4", "0.15"), _runs(lab)[:2], strict=True):
        found = alignments(run)
        for k in (10, 100, 250):
            ratios, fits = (f"{r:.4f}" for r in 1 - found.deficit[k]), (f"{fit:.5f}" for fit in 1 - found.misfit[k])
            rows.append((start, k, f"{np.exp(run.log_excess[k]):.2g}", *ratios, *fits))
    named = (*(f"ratio {k}" for k in range(1, 5)), *(f"alignment {k}, {k + 1}" for k in range(1, 4)))
    columns, caption = ("start", "step", "risk", *named), "Uncapped line search, four layers."
    return Table("layers", "Risk, ratios and alignments", columns, tuple(rows), caption)


def separators(lab: Lab) -> Figure:
    """Signed points, and the line each network separates them with."""
    deep, _, single = _runs(lab)
    signed, reach = np.asarray(deep.setting.data.signed), np.linspace(-1, 1, 2)
    half = len(signed) // 2
    points = {"+1": signed[:half], "-1": -signed[half:]}
    lines = [Line(name, those[:, 0], those[:, 1], "points") for name, those in points.items()]
    across = lambda w: np.outer([-w[1], w[0]], reach) / np.linalg.norm(w)
    for name, weight in (("1 layer", single.weight()), ("4 layers", deep.weight())):
        lines.append(Line(name, *across(weight)))
    lines.append(Line("maximum margin", *across(geometry(lab).direction), style="prediction"))
    title, caption = "Separators of one and of four layers", "After the last step; all three lines coincide to the eye."
    return Figure("separators", title, "x1", "x2", tuple(lines), caption)


def kept_runs(lab: Lab) -> dict[str, Trajectory]:
    deep, _, single = _runs(lab)
    return {"four-layers": deep, "one-layer": single} if lab.full else {}


STUDIES = (
    Study(
        "deep-linear",
        "Deep linear networks: aligned layers, maximum margin (Figure 1)",
        claims=(descent_margin, layers_align, descent_bounds),
        exhibits=(separators, risks, aligned, angles, layers, kept_runs),
        definitions=words("-log R", "ratio", "alignment", "excess", "D", "R_0", "traces", "violation"),
    ),
)
