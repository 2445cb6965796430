"""Every study, in an explicit tuple."""

from . import key_query, local_directions, max_margin, self_attention
from .base import Study

STUDIES: tuple[Study, ...] = (max_margin.STUDY, *self_attention.STUDIES, local_directions.STUDY, *key_query.STUDIES)
