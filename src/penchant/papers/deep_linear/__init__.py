"""Ji, Telgarsky: descent aligns the layers of deep linear networks and finds the maximum margin."""

from ...lab import Paper
from . import theorems

PAPER = Paper(
    "deep_linear",
    theorems.JI,
    __name__,
    theorems.THEOREMS,
    ("saddle", "flow", "descent", "lemmas", "pull", "span", "steps", "laws"),
    tuple(f"figures.{file}" for file in ("alignment", "laws", "span", "starts", "steps", "nonlinear_layers")),
)
