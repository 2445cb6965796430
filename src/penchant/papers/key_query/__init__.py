"""Sheen, Chen, Wang, Zhou: gradient flow on keys and queries minimises the nuclear norm."""

from ...lab import Paper
from . import theorems

PAPER = Paper(
    "key_query",
    theorems.SHEEN,
    __name__,
    theorems.THEOREMS,
    ("flow", "proof", "limits"),
    ("figures",),
    aliases=("kq_attention",),
)
