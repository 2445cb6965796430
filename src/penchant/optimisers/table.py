"""One row per optimiser that has a name: how it is made, which options it takes, and the size of its steps where none is given."""

from collections.abc import Callable
from typing import Any, NamedTuple

from .adam import Adam
from .base import Accelerated, gradient_descent, momentum, normalised_descent, polyak, sign_descent
from .joint import (
    AbstractJointRule,
    BlockNormalised,
    JointAccelerated,
    JointDescent,
    JointHeavyBall,
    JointNormalised,
    JointPolyak,
)
from .layerwise import AbstractLayerRule, BallStep, LineSearch, RiskScaled, SharpStep

SIZE, CAP, BETA, DECAYS = "step_size", "cap", "beta", "decays"


class Given(NamedTuple):
    """The options of an optimiser: a `size` of steps, a `beta` of momentum, a `cap` on multipliers, and two `decays` of lengths."""

    size: float
    beta: float = 0.9
    cap: float = float("inf")
    decays: tuple[float, float] = (0.0, 0.0)


class Scale(NamedTuple):
    """What a safe first step depends on: the longest feature, how many losses add up, and whether the infimum is attained."""

    longest: float
    terms: int = 1
    attained: bool = False


class Row(NamedTuple):
    """An optimiser of one weight: its `size` where none is given comes from the scale of the data and beta."""

    name: str
    make: Callable[[Given], Any]
    takes: tuple[str, ...]
    size: Callable[[Scale, float], float]


class JointRow(NamedTuple):
    """A rule for attention and decoder: its `size` where none is given comes from the 1/(4 B^2) of the theorem and beta."""

    name: str
    make: Callable[[Given], AbstractJointRule]
    takes: tuple[str, ...]
    size: Callable[[float, float], float]
    decays: tuple[float, float] = (0.0, 0.0)


def _rows(*rows: Any) -> dict[str, Any]:
    return {row.name: row for row in rows}


def _tiny(scale: Scale, beta: float) -> float:
    """Rules that move every coordinate alike go round a minimum at the distance of a step."""
    return (0.01 if scale.attained else 0.001) / scale.longest


OPTIMISERS: dict[str, Row] = _rows(
    Row("gd", lambda g: gradient_descent(g.size), (SIZE,), lambda s, beta: 1 / (s.longest**2 * s.terms)),
    Row("ngd", lambda g: normalised_descent(g.size, g.cap), (SIZE, CAP), lambda s, beta: 0.5 / s.longest),
    Row(
        "momentum",
        lambda g: momentum(g.size, g.beta, g.cap),
        (SIZE, CAP, BETA),
        lambda s, beta: 0.5 * (1 - beta) / s.longest,
    ),
    Row("polyak", lambda g: polyak(g.size, g.cap), (SIZE, CAP), lambda s, beta: 1.0),
    Row("accelerated", lambda g: Accelerated(g.size), (SIZE,), lambda s, beta: 0.5 / s.longest**2),
    Row("adam", lambda g: Adam(g.size, eps=0.0), (SIZE,), _tiny),
    Row("sign", lambda g: sign_descent(g.size), (SIZE,), _tiny),
)


def _blocks(given: Given) -> BlockNormalised:
    return BlockNormalised(given.size, *given.decays, given.cap)


JOINT: dict[str, JointRow] = _rows(
    JointRow("gd", lambda g: JointDescent(g.size), (SIZE,), lambda short, beta: short),
    JointRow("ngd", _blocks, (SIZE, CAP, DECAYS), lambda short, beta: short),
    JointRow(
        "momentum",
        lambda g: JointHeavyBall(_blocks(g), g.beta),
        (SIZE, CAP, BETA, DECAYS),
        lambda short, beta: short * (1 - beta),
    ),
    JointRow("joint-ngd", lambda g: JointNormalised(g.size, g.cap), (SIZE, CAP), lambda short, beta: short),
    JointRow("scheduled", _blocks, (SIZE, DECAYS), lambda short, beta: short, (2 / 3, 1.0)),
    JointRow("polyak", lambda g: JointPolyak(g.size, g.cap), (SIZE, CAP), lambda short, beta: 1.0),
    JointRow("accelerated", lambda g: JointAccelerated(g.size), (SIZE,), lambda short, beta: 2 * short),
)

# Rules for the layers of a network, from the setting and the bounds beta, G of its loss: they choose their own steps.
LAYER_RULES: dict[str, Callable[[Any, tuple[float, float]], AbstractLayerRule]] = {
    "line-search": lambda setting, bounds: LineSearch(setting),
    "line-search-capped": lambda setting, bounds: LineSearch(setting, capped=True),
    "assumption5": lambda setting, bounds: BallStep(False, *bounds),
    "assumption5-tight": lambda setting, bounds: BallStep(True, *bounds),
    "sharp": lambda setting, bounds: SharpStep(*bounds),
    "risk-scaled": lambda setting, bounds: RiskScaled(),
}
