"""Starts above the risk of zero: which escape and when, and the saddle that a few never leave (appendix A)."""

import numpy as np
from jaxtyping import PyTree

from ....errors import quietly
from ....exhibits import Figure, Line, Table
from ....lab import Lab, Study, recipe
from ....settings.base import Setting
from ....training.events import LogExcessBelow
from ....training.train import train
from .. import saddle
from ..alignment import other_starts
from ..evidence import FINEST, escaped, mirrored
from . import words


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
        "deep-linear-basin",
        "Starts above the risk of zero, and the saddle (appendix A)",
        claims=(saddle.appendix, other_starts),
        exhibits=(times, escapes),
        definitions=words()
        | {
            "E1(q), q, q0": "the exponential integral, the integral of e^-s / s from q on, of q = |w_1|^2, which is q0 at the start; the risk is e^q",
            "e, perturbation": "length of what is added to both w_1 and w_2 = -w_1, along w_1",
        },
    ),
)
