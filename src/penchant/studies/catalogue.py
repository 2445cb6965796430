"""Every study, in an explicit tuple."""

from . import interpolation, local_directions, max_margin, noise, self_attention
from .base import Study

STUDIES: tuple[Study, ...] = (
    max_margin.STUDY,
    *interpolation.STUDIES,
    *noise.STUDIES,
    *self_attention.STUDIES,
    local_directions.STUDY,
)
