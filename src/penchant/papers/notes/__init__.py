"""Ma et al., lecture notes, chapter 9: minimum norm, sparse recovery, Q_alpha, maximum margin, the noise of SGD."""

from ...lab import Paper
from . import theorems

PAPER = Paper(
    "notes",
    theorems.NOTES,
    __name__,
    theorems.THEOREMS,
    ("max_margin", "min_norm", "q_alpha", "sparse_recovery", "designs", "errata", "noise"),
    ("figures",),
    aliases=("linear_models",),
)
