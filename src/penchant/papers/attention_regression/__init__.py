"""Goel, Soltanolkotabi, Bartlett: structure-aware descent on softmax attention for linear regression, and its scaling law."""

from ...lab import Paper
from . import theorems

PAPER = Paper(
    "attention_regression",
    theorems.GOEL,
    __name__,
    theorems.THEOREMS,
    (
        "contraction",
        "rates",
        "landscape",
        "identities",
        "context",
        "samples",
        "perturbed",
        "gradient_noise",
        "covariates",
    ),
    (
        "figures.contraction",
        "figures.rates",
        "figures.landscape",
        "figures.scaling_law",
        "figures.context",
        "figures.gradient_noise",
        "figures.covariates",
        "figures.ablation",
        "figures.time_scales",
    ),
)
