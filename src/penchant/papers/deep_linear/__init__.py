"""Ji, Telgarsky: descent aligns the layers of deep linear networks and finds the maximum margin."""

from ...lab import Paper
from . import theorems

PAPER = Paper(
    "deep_linear",
    theorems.JI,
    __name__,
    theorems.THEOREMS,
    ("alignment", "drawn", "lemmas", "laws"),
    ("figures",),
)
