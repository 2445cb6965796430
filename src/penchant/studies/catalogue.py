"""Every study, in an explicit tuple."""

from . import deep_linear, deep_linear_starts, local_directions, max_margin, self_attention
from .base import Study

STUDIES: tuple[Study, ...] = (
    max_margin.STUDY,
    *self_attention.STUDIES,
    local_directions.STUDY,
    *deep_linear.STUDIES,
    *deep_linear_starts.STUDIES,
)
