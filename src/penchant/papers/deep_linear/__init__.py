"""Ji, Telgarsky: descent aligns the layers of deep linear networks and finds the maximum margin."""

from ...lab import Paper
from . import theorems

PAPER = Paper(
    "deep_linear",
    theorems.JI,
    __name__,
    theorems.THEOREMS,
    ("basin", "flow", "descent", "lemmas", "pull", "span", "steps", "exact", "laws", "idle", "tails"),
    (
        "figures.alignment",
        "figures.laws",
        "figures.span",
        "figures.starts",
        "figures.saddle",
        "figures.steps",
        "figures.nonlinear_layers",
    ),
)
