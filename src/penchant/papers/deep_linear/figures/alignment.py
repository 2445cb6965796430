"""The figures of the deep linear paper: linear networks by line search (Figure 1), and starts above the risk of zero (appendix A)."""

import numpy as np
from jaxtyping import PyTree

from ....diagnostics.alignment import alignments, sandwich, sine
from ....errors import quietly
from ....exhibits import Figure, Line, Table
from ....lab import Lab, Study, recipe
from ....optimisers.layerwise import LayerDescent, LineSearch
from ....settings.base import Setting
from ....training.events import LogExcessBelow
from ....training.recorders import Every
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import lemmas
from ..alignment import descent_margin, layers_align, other_starts
from ..evidence import FINEST, descent, escaped, geometry, levels, mirrored, problem
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


def times(lab: Lab) -> tuple[Figure, Table]:
    """Starts above the risk of zero."""
    count = 1000 if lab.full else 200
    lab.progress("starts above the risk of zero")
    reached = np.sort(escaped(lab, range(lab.seed * count, (lab.seed + 1) * count)))
    share = f"{float(np.isfinite(reached).mean()):.3f}"
    lines = (Line("starts", reached, np.arange(1, len(reached) + 1) / len(reached)),)
    title = "Time to risk 0.1 from starts above the risk of zero"
    caption = f"{len(reached)} of {count} normal starts of scale 0.6 violate Assumption 2; depth 3, width 6, logistic."
    columns = ("starts", "violating", "reach risk 0.1", "median time", "largest time")
    row = (count, len(reached), share, f"{np.median(reached):.2f}", f"{reached.max():.2f}")
    return (
        Figure("times", title, "time", "share of the starts", lines, caption),
        Table("times", "Starts above the risk of zero", columns, (row,), "Gradient flow."),
    )


def _escape(setting: Setting, start: PyTree) -> float:
    with quietly():
        run = train(setting, FINEST, start, until=LogExcessBelow(float(np.log(0.5))), steps=20_000)
    return float(np.exp(run.log_time[-1]))


@recipe
def _escapes(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of perturbations of the start w1 = -w2, and the times they need."""
    sizes = np.array([10.0**-k for k in range(2, 13, 1 if lab.full else 2)])
    lab.progress("perturbations of the saddle")
    return sizes, np.array([_escape(*mirrored(lab, float(size))) for size in sizes])


def escapes(lab: Lab) -> tuple[Figure, Table]:
    """The antisymmetric start and perturbations of it: the time is log(1/perturbation) plus a constant."""
    sizes, found = _escapes(lab)
    slope = float(np.polyfit(np.log(1 / sizes[1:]), found[1:], 1)[0])
    law = found[-1] + np.log(1 / sizes) - np.log(1 / sizes[-1])
    lines = (Line("flow", sizes, found), Line("log(1/e) + constant", sizes, law, "prediction"))
    caption = "Starts w1 = -w2 moved by e along (w, w)."
    rows = tuple((f"{size:.0e}", f"{time:.3f}") for size, time in zip(sizes, found, strict=True))
    text = f"Slope {slope:.6f} in log(1/perturbation). Rounding is a perturbation too: unperturbed runs must not be read beyond t = 20."
    return (
        Figure("escape", "Escape from the saddle", "perturbation", "time to risk 1/2", lines, caption, "log"),
        Table("escape", "Escape times", ("perturbation", "time to risk 1/2"), rows, text),
    )


STUDIES = (
    Study(
        "deep-linear",
        "Deep linear networks: aligned layers, maximum margin (Figure 1)",
        claims=(descent_margin, layers_align, descent_bounds, lemmas.steady_descent),
        exhibits=(separators, risks, aligned, angles),
        definitions=words("-log R", "ratio", "alignment", "excess", "D", "R_0", "traces", "violation"),
        aliases=("step-rules",),
    ),
    Study(
        "deep-linear-basin",
        "Starts above the risk of zero, and the saddle (appendix A)",
        claims=(lemmas.appendix, other_starts),
        exhibits=(times, escapes),
        definitions=words()
        | {
            "E1(q), q, q0": "the exponential integral, the integral of e^-s / s from q on, of q = |w_1|^2, which is q0 at the start; the risk is e^q",
            "e, perturbation": "length of what is added to both w_1 and w_2 = -w_1, along w_1",
        },
    ),
)
