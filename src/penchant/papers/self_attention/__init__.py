"""Vasudeva, Deora, Thrampoulidis: normalised and Polyak steps on self-attention, with a fixed decoder and trained jointly."""

from ...lab import Paper
from . import theorems

PAPER = Paper(
    "self_attention",
    theorems.VASUDEVA,
    __name__,
    theorems.THEOREMS,
    ("fixed", "drawn", "bounds", "joint", "joint_findings"),
    ("figures", "real_networks"),
    aliases=("self_attention_rates",),
)
