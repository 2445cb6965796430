"""From the options of the command line to the rule and start of joint training."""

from argparse import Namespace
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from ..errors import ArgumentError
from ..optimisers.joint import (
    AbstractJointRule,
    BlockNormalised,
    JointAccelerated,
    JointDescent,
    JointHeavyBall,
    JointNormalised,
    JointPolyak,
)
from ..papers.self_attention.joint_theorems import longest_token
from ..settings.files import read_arrays
from ..settings.joint import JointStart, JointTokens, normal_start

RULES = ("gd", "ngd", "momentum", "joint-ngd", "scheduled", "polyak", "accelerated")
_CAPPED = ("ngd", "momentum", "joint-ngd", "polyak")
_DECAYS = {"ngd": (0.0, 0.0), "momentum": (0.0, 0.0), "scheduled": (2 / 3, 1.0)}
_SMALL = 1e-3  # standard deviation of the start 'small'


def refuse(options: Namespace) -> None:
    """Options that mean nothing here are refused, not ignored."""
    unused = {"--reduction": options.reduction != "mean", "--bias": options.bias, "--ties": options.ties != "raise"}
    for name in ("time", "log_time", "margin", "widths", "alpha"):
        unused[f"--{name.replace('_', '-')}"] = getattr(options, name, None) is not None
    for name, given in unused.items():
        if given:
            raise ArgumentError(name, "penchant", "left out with --joint", "a value")
    if options.scale is not None and options.start != "small":
        fix = "it is the standard deviation of --start small"
        raise ArgumentError("--scale", "penchant", "left out unless --start small", options.scale, fix)
    needs = {"cap": _CAPPED, "decays": tuple(_DECAYS), "beta": ("momentum",)}
    for name, rules in needs.items():
        if getattr(options, name) is not None and options.optimiser not in rules:
            required = f"used with {', '.join(rules)} under --joint"
            raise ArgumentError(f"--{name}", "penchant", required, f"--optimiser {options.optimiser}")


def _decays(options: Namespace) -> tuple[float, float]:
    """p_u and p_W of the step lengths length/(t+1)^p, from '2/3,1'."""
    if options.decays is None:
        return _DECAYS[options.optimiser]
    try:
        u, W = (float(Fraction(part.strip())) for part in options.decays.split(","))
    except (ValueError, ZeroDivisionError):
        u = W = -1.0
    if min(u, W) < 0:
        required = "two nonnegative numbers p_u,p_W, such as 2/3,1"
        raise ArgumentError("--decays", "penchant", required, repr(options.decays))
    return u, W


def rule_of(options: Namespace, data: JointTokens) -> AbstractJointRule:
    """The rule of the command line; a length left open is the 1/(4 B^2) of the theorem."""
    name, size = options.optimiser, options.step_size
    cap = np.inf if options.cap is None else options.cap
    if name not in RULES:
        raise ArgumentError("--optimiser", "penchant", f"one of {', '.join(RULES)} with --joint", name)
    for option, value in (("--step-size", size), ("--cap", cap)):
        if value is not None and not value > 0:
            raise ArgumentError(option, "penchant", "positive", value)
    if name == "polyak":
        return JointPolyak(1.0 if size is None else size, cap)
    beta = 0.9 if options.beta is None else options.beta
    short = 1 / (4 * longest_token(data) ** 2)
    blocks: Callable[[float], BlockNormalised] = lambda length: BlockNormalised(length, *_decays(options), cap)
    makers: dict[str, tuple[Callable[[float], AbstractJointRule], float]] = {
        "gd": (JointDescent, short),
        "ngd": (blocks, short),
        "momentum": (lambda length: JointHeavyBall(blocks(length), beta), short * (1 - beta)),
        "joint-ngd": (lambda length: JointNormalised(length, cap), short),
        "scheduled": (blocks, short),
        "accelerated": (JointAccelerated, 2 * short),
    }
    if not 0 <= beta < 1:
        raise ArgumentError("--beta", "penchant", "in [0, 1)", beta)
    make, default = makers[name]
    return make(default if size is None else size)


def start_of(options: Namespace, data: JointTokens) -> JointStart | None:
    """Zeros, small normal entries, or the arrays u and W of a file."""
    if options.start == "zeros":
        return None
    if options.start == "small":
        if options.seed < 0:
            raise ArgumentError("--seed", "penchant", "a nonnegative integer", options.seed)
        return normal_start(data, options.seed, _SMALL if options.scale is None else options.scale)
    if not options.start.endswith(".npz"):
        raise ArgumentError("--start", "penchant", "'zeros', 'small' or a file ending in .npz", repr(options.start))
    arrays, d = read_arrays(options.start), data.tokens.shape[-1]
    for name, shape in {"u": (d,), "W": (d, d)}.items():
        if name not in arrays or arrays[name].shape != shape:
            found = f"shape {arrays[name].shape}" if name in arrays else f"the arrays {sorted(arrays)}"
            raise ArgumentError("--start", "penchant", f"a file with an array '{name}' of shape {shape}", found)
    return JointStart(arrays["u"], arrays["W"])
