"""Vasudeva, Deora, Thrampoulidis: normalised and Polyak steps on self-attention, with a fixed decoder and trained jointly."""

from ...lab import Paper
from . import joint_theorems, theorems

PAPER = Paper(
    "self_attention",
    theorems.VASUDEVA,
    __name__,
    (*theorems.THEOREMS, *joint_theorems.THEOREMS),
    ("fixed", "drawn", "bounds", "sharp", "joint", "joint_drawn", "joint_findings"),
    ("figures.directions", "figures.joint", "figures.beyond", "figures.real_networks"),
    aliases=("self_attention_rates",),
)
