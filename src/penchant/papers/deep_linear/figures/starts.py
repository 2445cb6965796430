"""Starts above the risk of zero: which escape and when, and the saddle that a few never leave (appendix A)."""

from itertools import product

import numpy as np
from jaxtyping import PyTree
from scipy.integrate import solve_ivp

from ....errors import quietly
from ....exhibits import Figure, Line, Shown, Table
from ....lab import Lab, Study, recipe
from ....optimisers.layerwise import ConstantStep, LayerDescent
from ....settings.base import Setting
from ....training.events import LogExcessBelow, LogTimeAbove
from ....training.train import train
from .. import saddle
from ..alignment import other_starts
from ..evidence import FINEST, escaped, mirrored
from . import words

_HALF, _END = 6.0, 200.0  # of the map in |w|, and of its integration in time
_ROUNDED = 80.0  # time until which rounding is watched


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


def plane(lab: Lab) -> Figure:
    """Escape times over the plane of balanced products."""
    lab.progress("map of balanced starts")
    grid = np.linspace(-_HALF, _HALF, 120 if lab.full else 60)  # an even number: weight 0 is no start
    starts = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    above = saddle.log_risk(lab, starts) > np.log(np.log(2))
    values = np.full(len(starts), np.nan)
    values[above] = saddle.escape_times(lab, starts[above], _END)
    curve = saddle.stable_curve(lab, np.sqrt(2) * _HALF)
    curve = curve[np.abs(curve).max(axis=1) <= _HALF]
    lines = (
        Line("time to risk 0.1", starts[:, 0], starts[:, 1], "map", values=values),
        Line("ends in the saddle", curve[:, 0], curve[:, 1], "prediction"),
    )
    caption = f"Strips, two balanced layers, logistic risk: the flow of the product w is a flow in the plane. Empty cells lie below the risk of weight 0, or on the curve (no escape before t = {_END:g})."
    return Figure("map", "Starts above the risk of zero, by the time to risk 0.1", "w1", "w2", lines, caption)


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


def _integrated(lab: Lab, method: str, tolerance: float) -> float:
    """When an integration of the unperturbed start, written down as anyone would, reaches risk 1/2; nan if it does not."""
    field = lambda t, flat: np.exp(-flat[:3] @ flat[3:]) * np.concatenate([flat[3:], flat[:3]])
    reached = saddle.until(lambda flat: flat[:3] @ flat[3:] - np.log(2))
    flat = np.concatenate([np.ravel(layer) for layer in mirrored(lab)[1]])
    found = solve_ivp(field, (0, _ROUNDED), flat, method=method, rtol=tolerance, atol=tolerance / 100, events=reached)
    return float(found.t_events[0][0]) if len(found.t_events[0]) else float("nan")


def rounding(lab: Lab) -> Table:
    """Unperturbed runs: the time at which rounding lifts them off the stable manifold, and the perturbation that this time amounts to."""
    lab.progress("rounding")
    sizes, found = _escapes(lab)
    constant, rows = found[-1] - float(np.log(1 / sizes[-1])), []
    for method, tolerance in product(("DOP853", "RK45", "Radau", "LSODA"), (1e-6, 1e-8, 1e-10)):
        time = _integrated(lab, method, tolerance)
        left = (Shown(time, ".1f"), Shown(np.exp(constant - time), ".0e")) if np.isfinite(time) else ("never", "0")
        rows.append((f"SciPy {method}", f"{tolerance:.0e}", *left))
    setting, start = mirrored(lab)
    until = LogTimeAbove(float(np.log(_ROUNDED)))
    with quietly():
        run = train(setting, LayerDescent(ConstantStep(0.01)), start, steps=8000, until=until)
    apart = float(np.abs(run.at()[0][:, 0] + run.at()[1][0]).max())
    rows.append(("descent, step 0.01", "", "never" if apart == 0 else "drifts", f"{apart:.0e}"))
    columns = ("integration", "relative tolerance", "time to risk 1/2", "perturbation of that escape time")
    text = f"Unperturbed, to t = {_ROUNDED:.0f}; the exact flow never leaves. The time depends on the method and hardly on the tolerance, because it tells of rounding."
    return Table("rounding", "What rounding does to the start w1 = -w2", columns, tuple(rows), text)


STUDIES = (
    Study(
        "deep-linear-basin",
        "Starts above the risk of zero, and the saddle (appendix A)",
        claims=(saddle.appendix, other_starts, saddle.curve_times),
        exhibits=(times, plane, escapes, rounding),
        definitions=words()
        | {
            "w1, w2": "the entries of the product of the two layers at the start",
            "E1(q), q, q0": "the exponential integral, the integral of e^-s / s from q on, of q = |w_1|^2, which is q0 at the start; the risk is e^q",
            "e, perturbation": "length of what is added to both w_1 and w_2 = -w_1, along w_1",
        },
    ),
)
