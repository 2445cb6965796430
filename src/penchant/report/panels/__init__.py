"""The panels of a case, in the order in which they are told: this tuple is the one list. A new diagnostic is a function and a row here."""

from ..panel import Panel
from .joint import JOINT
from .network import ACCURACY, DESCENT, LAWS
from .run import FAILED, LOSS, MADE, PREDICTED, RUN, VERDICT
from .selection import BOUNDS, BRACKET, DIRECTIONS, LIMIT, MARGIN, SINGULAR_VALUES

PANELS: tuple[Panel, ...] = (
    MADE,
    PREDICTED,
    RUN,
    JOINT,
    ACCURACY,
    FAILED,
    DIRECTIONS,
    MARGIN,
    LOSS,
    DESCENT,
    BRACKET,
    BOUNDS,
    SINGULAR_VALUES,
    LIMIT,
    LAWS,
    VERDICT,
)
