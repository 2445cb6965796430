"""Every study, in an explicit tuple."""

from . import (
    attention_phases,
    attention_rates,
    deep_linear,
    deep_linear_laws,
    deep_linear_starts,
    interpolation,
    joint_attention,
    key_query,
    local_directions,
    max_margin,
    noise,
    nonlinear_layers,
    self_attention,
)
from .base import Study

STUDIES: tuple[Study, ...] = (
    max_margin.STUDY,
    *interpolation.STUDIES,
    *noise.STUDIES,
    *self_attention.STUDIES,
    joint_attention.STUDY,
    local_directions.STUDY,
    *attention_rates.STUDIES,
    *attention_phases.STUDIES,
    *key_query.STUDIES,
    *deep_linear.STUDIES,
    *deep_linear_laws.STUDIES,
    *deep_linear_starts.STUDIES,
    *nonlinear_layers.STUDIES,
)
