"""From options by name, of the command line or of a sweep, to a setting, an optimiser and a budget."""

from argparse import Namespace
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError
from ..flow.clocks import RelativeArc, RelativeDrop
from ..flow.flow import FLOW_STEPS, GradientFlow
from ..norms import Schatten, norm_named
from ..optimisers.base import Minibatches, Optimiser
from ..optimisers.layerwise import ConstantStep, LayerDescent, risk_bounds, safe_step
from ..optimisers.table import LAYER_RULES, OPTIMISERS, Given, Scale, layer_rule
from ..settings.base import Data, Setting
from ..settings.deep_linear import NAMED, layered
from ..settings.factored import Hadamard, KeyQuery
from ..settings.files import Arrays, Request, read_arrays, setting_of
from ..settings.losses import AbstractLoss
from ..settings.parametrisations import trains_weight
from .events import Event, Inaccurate, LogExcessBelow, LogTimeAbove, MarginAbove, events

Options = Namespace | SimpleNamespace  # of the command line, or of a row of a sweep
Trainer = GradientFlow | Optimiser
Until = Event | tuple[Event, ...] | None
_MOST = 1e8  # steps that a time may be: some minutes
_POSITIVE = dict.fromkeys(
    ("step_size", "scale", "time", "margin", "risk_level"), ("positive and finite", lambda x: 0 < x < np.inf)
)
_ALLOWED = _POSITIVE | {
    "cap": ("positive", lambda x: x > 0),
    "steps": ("a nonnegative integer", lambda x: x >= 0),
    "batch": ("at least 1", lambda x: x >= 1),
    "beta": ("in [0, 1)", lambda x: 0 <= x < 1),
    "tolerance": ("between 0 and 1", lambda x: 0 < x < 1),
    "step_decay": ("nonnegative and finite", lambda x: 0 <= x < np.inf),
    "log_time": ("finite", np.isfinite),
}
_NETWORK_TOLERANCE = 1e-11  # fine enough to keep what the flow of a deep linear network conserves, to margin 1e6


def check_numbers(options: Options) -> None:
    """Numbers that no run can be told are refused by the names under which they were asked."""
    for name, (required, holds) in _ALLOWED.items():
        value = getattr(options, name, None)
        if not (value is None or holds(value)):
            raise ArgumentError(f"--{name.replace('_', '-')}", "penchant", required, value)


def optimiser_of(options: Options, setting: Setting, start: PyTree) -> Trainer:
    """The optimiser of the command line; step sizes left open come from the longest feature, so that the first step is safe."""
    name, size, cap = options.optimiser, options.step_size, options.cap
    if name in LAYER_RULES:
        if not layered(setting):
            raise ArgumentError("--optimiser", "penchant", "used with --setting deep-linear", name)
        return LayerDescent(layer_rule(name, setting, risk_bounds(setting, start) or (0.25, 1.0)))
    if name == "gd" and layered(setting):
        return LayerDescent(ConstantStep(_layer_step(setting, start) if size is None else size))
    if name == "flow":
        return _flow(setting, getattr(options, "tolerance", None))
    if name not in OPTIMISERS:
        raise ArgumentError("--optimiser", "penchant", f"one of flow, {', '.join(OPTIMISERS)} on these data", name)
    terms = setting.samples if setting.reduction == "sum" else 1
    row, scale = OPTIMISERS[name], lambda: Scale(longest_feature(setting.data), terms, setting.data.attained)
    chosen = row.step(scale(), options.beta) if size is None else size
    names = ("nesterov", "norm", "eps", "log_eps", "orthogonaliser", "weight_decay")
    given = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    if isinstance(norm_named(given.get("norm", "l2")), Schatten) and len(shape := setting.data.weight_shape) != 2:
        fix = "--norm frobenius, l1 or max"
        raise ArgumentError(
            "--norm", "penchant", f"one of weights of shape {shape}", f"{given['norm']}, of matrices", fix
        )
    decay, batch = getattr(options, "step_decay", None), getattr(options, "batch", None)
    found = row.make(Given(chosen, options.beta, np.inf if cap is None else cap, decay=decay, **given))
    return found if batch is None else Minibatches(found, batch, options.seed)  # pyright: ignore[reportArgumentType]


def _flow(setting: Setting, tolerance: float | None) -> GradientFlow:
    """For deep linear networks in the clock of risk levels, which says how wrong they are."""
    if not layered(setting):
        return GradientFlow() if tolerance is None else GradientFlow(tolerance=tolerance)
    return GradientFlow(RelativeDrop(), _NETWORK_TOLERANCE if tolerance is None else tolerance, 1e-6, order=6)


def watched(
    options: Options, setting: Setting, optimiser: Trainer, until: Until, separable: bool
) -> tuple[Trainer, Until]:
    """A flow of a deep linear network stops where it loses what it must keep.

    Where the risk cannot fall for ever, its clock would stand still, and a coarser flow settles in fewer steps.
    """
    if options.optimiser != "flow" or not layered(setting):
        return optimiser, until
    if not separable:
        optimiser = GradientFlow(RelativeArc(), 1e-7 if options.tolerance is None else options.tolerance, 1e-6, order=6)
    return optimiser, (*events(until), Inaccurate())


def _layer_step(setting: Setting, start: PyTree) -> float:
    step = safe_step(setting, start)
    if np.isnan(step):
        found = f"nothing, and {type(setting.loss).__name__} has no known bounds"
        raise ArgumentError("--step-size", "penchant", "given", found)
    return step


def longest_feature(data: Data) -> float:
    """The length of the longest feature; of many samples without the matrix of all their inner products."""
    rows = getattr(data, "signed", getattr(data, "inputs", None))  # of a classification, of a regression
    if rows is not None:
        return float(np.linalg.norm(np.asarray(rows), axis=1).max())
    return float(np.sqrt(np.max(np.diag(np.asarray(data.gram())))))


def setting_and_start(options: Options, kind: str, arrays: Arrays, loss: AbstractLoss) -> tuple[Setting, PyTree]:
    """The setting of this kind on these arrays, and its start."""
    check_numbers(options)
    if kind != "deep-linear" and options.scale is None:
        options.scale = 1e-3
    extra = {name: getattr(options, name) for name in ("seed", "scale", "alpha", "depth", "bias", "ties", "normalise")}
    extra["widths"] = _widths(options.widths)
    extra["init"] = _network_start(options, kind)
    scale = 1e-3 if options.scale is None else float(options.scale)
    request = lambda weights: Request(loss, options.reduction, weights, _tiny(options), extra)
    if kind == "deep-linear":
        return setting_of(kind, arrays, request(None if extra["init"] else read_arrays(options.start)))
    setting, start = setting_of(kind, arrays, request(None))
    product = isinstance(setting.parametrisation, KeyQuery | Hadamard)  # zeros never move: their start is always small
    if product and options.start == "zeros":
        options.start = "small"  # as the page of the run says, too
    if options.start == "zeros" or (options.start == "small" and product):
        return setting, start
    if options.start == "small":
        weights = {"W": scale * np.random.default_rng(options.seed).standard_normal(setting.data.weight_shape)}
        if not trains_weight(setting):
            return setting, setting.start(options.seed, scale)
    elif options.start.endswith(".npz"):
        weights = read_arrays(options.start)
    else:
        raise ArgumentError(
            "--start", "penchant train", "'zeros', 'small' or a file ending in .npz", repr(options.start)
        )
    return setting_of(kind, arrays, request(weights))


def _tiny(options: Options) -> bool:
    """Whether steps move all coordinates, or all singular directions, alike: they need the coordinates of the weight, and are short."""
    return options.optimiser in OPTIMISERS and not OPTIMISERS[options.optimiser].combines


def _network_start(options: Options, kind: str) -> str | None:
    """The name of a start of deep-linear; None elsewhere, and for a file. Zeros never move there: 'zeros' and 'small' mean 'normal'."""
    if kind != "deep-linear" or options.start.endswith(".npz"):
        return None
    name = "normal" if options.start in ("zeros", "small") else options.start
    if name not in NAMED:
        wanted = f"'zeros', 'small', {', '.join(repr(one) for one in NAMED)} or a file ending in .npz"
        raise ArgumentError("--start", "penchant with deep-linear", wanted, repr(options.start))
    if name == "torch-default" and options.scale is not None:
        raise ArgumentError("--scale", "penchant", "left out with --start torch-default", options.scale)
    return name


def _widths(text: str | None) -> tuple[int, ...] | None:
    """Hidden widths from '8,8,8'."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() and 0 < int(part) < 2**31 for part in parts):
        raise ArgumentError("--widths", "penchant", "positive integers separated by commas", repr(text))
    return tuple(int(part) for part in parts)


def _steps_to(log_time: float, step: float) -> int:
    """How many steps of one size a time is."""
    if log_time - np.log(step) > np.log(_MOST):
        required = f"at most {np.log(_MOST * step):.3g}, which is {_MOST:.0e} steps of {step:.3g}"
        raise ArgumentError("--log-time", "penchant train", required, f"{log_time:.6g}", "--optimiser flow")
    return int(np.ceil(np.exp(log_time) / step)) + 1


def budget(options: Options, optimiser: Trainer, setting: Setting) -> tuple[int | None, Until]:
    """Steps and event of the command line; without any, the flow goes to margin 1e6 if it can, and descent takes 10 000 steps.

    Adam takes more of them: its steps must be so short that the loss falls more slowly than its memory of old gradients.
    """
    log_time = options.log_time if options.time is None else float(np.log(options.time))
    if log_time is not None:
        steps = None
        if options.optimiser == "gd":  # a constant step size says how many steps the time is
            steps = _steps_to(log_time, float(attrgetter("rule.step")(optimiser)))
        return steps, LogTimeAbove(log_time)
    if options.margin is not None:
        return None, MarginAbove(options.margin)
    if options.risk_level is not None:
        return FLOW_STEPS if options.optimiser == "flow" else None, LogExcessBelow(-options.risk_level)
    if options.steps is not None:
        return options.steps, None
    if setting.data.attained:  # a regression: the flow ends by itself
        return (None, None) if options.optimiser == "flow" else (10_000, None)
    if options.optimiser == "flow":
        return FLOW_STEPS, MarginAbove(1e6)
    return 300_000 if _tiny(options) and getattr(options, "step_decay", None) is None else 10_000, None
