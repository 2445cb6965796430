"""Goel, Soltanolkotabi, Bartlett: structure-aware descent on softmax attention for linear regression, and its scaling law."""

from ...lab import Paper
from . import theorems

PAPER = Paper(
    "attention_regression",
    theorems.GOEL,
    __name__,
    theorems.THEOREMS,
    ("contraction", "rates", "lemmas", "samples"),
    ("figures",),
)
