"""Ma et al., lecture notes, chapter 9: minimum norm, sparse recovery, Q_alpha, maximum margin, the noise of SGD."""

from ...lab import Paper
from . import interpolation_theorems, margin_theorems

PAPER = Paper(
    "notes",
    margin_theorems.NOTES,
    __name__,
    (*margin_theorems.THEOREMS, *interpolation_theorems.THEOREMS),
    (
        "max_margin",
        "margin_steps",
        "min_norm",
        "mirror",
        "min_norm_rates",
        "q_alpha",
        "depth",
        "sparse_face",
        "sparse_recovery",
        "time_window",
        "isometry",
        "errata",
        "noise",
        "label_noise",
        "label_noise_law",
        "label_noise_squares",
        "label_noise_time",
        "lasso",
    ),
    (
        "figures.max_margin",
        "figures.min_norm",
        "figures.sparse_recovery",
        "figures.kernel_to_rich",
        "figures.early_stopping",
        "figures.noise",
    ),
    aliases=("linear_models",),
)
