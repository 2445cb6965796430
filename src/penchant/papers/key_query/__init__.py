"""Sheen, Chen, Wang, Zhou: gradient flow on keys and queries minimises the nuclear norm."""

from ...lab import Paper
from . import sign_theorems, theorems

PAPER = Paper(
    "key_query",
    theorems.SHEEN,
    __name__,
    (*sign_theorems.THEOREMS, *theorems.THEOREMS),  # signs before the conjecture that would speak about every optimiser
    ("flow", "rates", "limits", "discrete"),
    ("figures.selection", "figures.diagonal", "figures.beyond"),
    aliases=("kq_attention",),
)
