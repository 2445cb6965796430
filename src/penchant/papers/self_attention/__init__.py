"""Vasudeva, Deora, Thrampoulidis: normalised and Polyak steps on self-attention, with a fixed decoder and trained jointly."""

from ...lab import Paper
from . import joint_theorems, theorems

PAPER = Paper(
    "self_attention",
    theorems.VASUDEVA,
    __name__,
    (*theorems.THEOREMS, *joint_theorems.THEOREMS),
    (
        "fixed",
        "sharp",
        "stability",
        "assumptions",
        "losses",
        "joint",
        "joint_lemmas",
        "joint_findings",
        "joint_growth",
    ),
    (
        "figures.directions",
        "figures.joint",
        "figures.local_directions",
        "figures.rates",
        "figures.phases",
        "figures.real_networks",
    ),
    aliases=("self_attention_rates",),
)
