"""One row per optimiser that has a name: how it is made, of which options, and the size of its steps where none is given.

Nothing heavy is imported before an optimiser is made, so that the command line can show its help at once.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..settings.base import Setting
    from .base import Optimiser
    from .layerwise import AbstractLayerRule

SIZE, CAP, BETA, DECAYS = "size", "cap", "beta", "decays"
DECAY, NESTEROV, NORM, ORTHOGONALISER = "decay", "nesterov", "norm", "orthogonaliser"
EPS = ("eps", "log_eps")
_FALLING = (SIZE, DECAY)  # sizes of steps that may fall like t^-decay


class Given(NamedTuple):
    """The options of an optimiser: a `size` of steps that fall like t^-decay, a `beta` of momentum, a `cap` on multipliers, two `decays` of
    lengths, the name of a `norm`, an epsilon or its logarithm, what stands for a polar factor, and decoupled `weight_decay`."""

    size: float
    beta: float | None = None
    cap: float = float("inf")
    decays: tuple[float, float] | None = None
    decay: float | None = None
    nesterov: bool = False
    norm: str = "frobenius"
    eps: float | None = None
    log_eps: float | None = None
    orthogonaliser: str = "polar"
    weight_decay: float | None = None


class Scale(NamedTuple):
    """What a safe first step depends on: the longest feature (or token), how many losses add up, and whether the infimum is attained."""

    longest: float
    terms: int = 1
    attained: bool = False


class Row(NamedTuple):
    """An optimiser: `maker` names a function of this folder, called with the options it `takes`; `size` is the step where none is given,
    from the scale of the data and beta. One that does not combine gradients needs the coordinates of the weight."""

    name: str
    maker: str
    takes: tuple[str, ...]
    size: Callable[[Scale, float], float]
    beta: float = 0.9
    combines: bool = True
    decays: tuple[float, float] | None = None

    def make(self, given: Given) -> "Optimiser":
        beta = self.beta if given.beta is None else given.beta
        given = given._replace(beta=beta, decays=self.decays if given.decays is None else given.decays)
        found = _made(self.maker, **{name: getattr(given, name) for name in self.takes})
        if given.weight_decay is None:
            return found
        return import_module(".base", __package__).Decayed(found, given.weight_decay)

    def step(self, scale: Scale, beta: float | None) -> float:
        """The size of a step where none is given."""
        return self.size(scale, self.beta if beta is None else beta)


def _made(maker: str, size: float, decays: tuple[float, float] | None = None, **options: object) -> "Optimiser":
    file, _, name = maker.partition(".")
    make = getattr(import_module(f".{file}", __package__), name)
    if "norm" in options:
        options["norm"] = import_module("..norms", __package__).norm_named(options["norm"])
    if decays is not None:
        options |= {"decay_u": decays[0], "decay_W": decays[1]}
    return make(size, **options)


def _rows(*rows: Row) -> dict[str, Row]:
    return {row.name: row for row in rows}


def _tiny(scale: Scale, beta: float) -> float:
    """Rules that move every coordinate alike go round a minimum at the distance of a step."""
    return (0.01 if scale.attained else 0.001) / scale.longest


def _short(scale: Scale, beta: float) -> float:
    """The 1/(4 B^2) of the theorem on joint training, with B the longest token."""
    return 1 / (4 * scale.longest**2)


OPTIMISERS = _rows(
    Row("gd", "base.gradient_descent", (SIZE,), lambda s, beta: 1 / (s.longest**2 * s.terms)),
    Row("ngd", "base.normalised_descent", (SIZE, CAP, DECAY), lambda s, beta: 0.5 / s.longest),
    Row("momentum", "base.momentum", (SIZE, CAP, BETA), lambda s, beta: 0.5 * (1 - beta) / s.longest),
    Row("polyak", "base.polyak", (SIZE, CAP), lambda s, beta: 1.0),
    Row("accelerated", "base.Accelerated", (SIZE,), lambda s, beta: 0.5 / s.longest**2),
    Row("adam", "base.adam", (*_FALLING, *EPS), _tiny, combines=False),
    Row("sign", "base.sign_descent", _FALLING, _tiny, combines=False),
    Row("signum", "base.signum", (*_FALLING, BETA), _tiny, combines=False),
    Row("muon", "base.muon", (*_FALLING, BETA, NESTEROV, ORTHOGONALISER, *EPS), _tiny, 0.95, combines=False),
    Row("steepest", "base.steepest", (*_FALLING, NORM, BETA, NESTEROV), _tiny, 0.0, combines=False),
)
JOINT = _rows(  # for attention and decoder together; its first row is the default
    Row("scheduled", "base.block_normalised", (SIZE, DECAYS), _short, decays=(2 / 3, 1.0)),
    Row("gd", "base.gradient_descent", (SIZE,), _short),
    Row("ngd", "base.block_normalised", (SIZE, CAP, DECAYS), _short),
    Row("momentum", "base.block_momentum", (SIZE, CAP, BETA, DECAYS), lambda s, beta: _short(s, beta) * (1 - beta)),
    Row("joint-ngd", "base.normalised_descent", (SIZE, CAP), _short),
    Row("polyak", "base.polyak", (SIZE, CAP), lambda s, beta: 1.0),
    Row("accelerated", "base.Accelerated", (SIZE,), lambda s, beta: 2 * _short(s, beta)),
)
# Rules for the layers of a network, by class and options: they choose their own steps, some from the bounds beta, G of the loss.
LAYER_RULES = {
    "line-search": ("LineSearch", {}),
    "line-search-capped": ("LineSearch", {"capped": True}),
    "assumption5": ("BallStep", {"tight": False}),
    "assumption5-tight": ("BallStep", {"tight": True}),
    "sharp": ("SharpStep", {}),
    "risk-scaled": ("RiskScaled", {}),
}


def layer_rule(name: str, setting: "Setting", bounds: tuple[float, float]) -> "AbstractLayerRule":
    """The rule of this name, for the setting and the bounds beta, G of its loss."""
    kind, options = LAYER_RULES[name]
    known = {"setting": setting, "beta": bounds[0], "slope": bounds[1]}
    make = getattr(import_module(".layerwise", __package__), kind)
    return make(**options, **{key: value for key, value in known.items() if key in make.__dataclass_fields__})
