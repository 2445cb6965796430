"""Every study, in an explicit tuple."""

from . import (
    attention_context,
    attention_landscape,
    attention_phases,
    attention_rates,
    attention_regression,
    attention_regression_rates,
    attention_scaling,
    attention_time_scales,
    deep_linear,
    deep_linear_starts,
    interpolation,
    joint_attention,
    key_query,
    local_directions,
    max_margin,
    noise,
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
    *deep_linear_starts.STUDIES,
    attention_regression.STUDY,
    attention_regression_rates.STUDY,
    attention_landscape.STUDY,
    attention_scaling.STUDY,
    *attention_context.STUDIES,
    attention_time_scales.STUDY,
)
