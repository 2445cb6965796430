"""Ma et al., lecture notes, chapter 9: minimum norm, sparse recovery, Q_alpha, maximum margin, the noise of SGD."""

from ...lab import Paper
from . import interpolation_theorems, margin_theorems

_CLAIMS = "max_margin min_norm q_alpha depth sparse_recovery errata noise label_noise"
_STUDIES = "max_margin sparse_recovery noise"
PAPER = Paper(
    "notes",
    margin_theorems.NOTES,
    __name__,
    (*margin_theorems.THEOREMS, *interpolation_theorems.THEOREMS),
    tuple(_CLAIMS.split()),
    tuple(f"figures.{name}" for name in _STUDIES.split()),
    aliases=("linear_models",),
)
