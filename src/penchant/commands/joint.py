"""The desk of joint training: attention and decoder trained together on the user's data."""

from argparse import Namespace
from fractions import Fraction

import numpy as np

from ..case import make_case
from ..errors import ArgumentError, DataFileError, NotSeparableError, UndecidedMargin
from ..optimisers.base import Optimiser
from ..papers import predict as predicted
from ..report.panels import PANELS
from ..report.panels.joint import program_lines, programs
from ..settings.base import Setting
from ..settings.files import LOSSES, read_arrays
from ..settings.joint import JointStart, JointTokens, joint_setting, normal_start
from ..settings.tokens import TokenSelection
from ..sweeps.members import joint_rule
from ..theory.describe import describe, lines
from ..theory.joint import joint_references
from ..training.train import train as trained
from .options import resumed
from .own import Predicted, Trained, made

_SMALL = 1e-3  # standard deviation of the start 'small'
_LOSSES = ("exponential", "logistic")


def _data(options: Namespace) -> JointTokens:
    """Arrays tokens, labels and optimal (or a head, whose best token is called optimal) [, queries]."""
    arrays = read_arrays(options.data)
    if not {"tokens", "labels"} <= set(arrays) or not {"optimal", "head"} & set(arrays):
        found = ", ".join(sorted(arrays)) or "none"
        raise DataFileError(f"Joint training needs the arrays tokens, labels and optimal (or head). Found: {found}.")
    if "mask" in arrays:
        raise DataFileError("Joint training knows no padding: the array mask is for attention alone, without --joint.")
    tokens, labels, queries = arrays["tokens"], arrays["labels"], arrays.get("queries")
    optimal = arrays.get("optimal")
    if optimal is None:
        optimal = np.asarray(TokenSelection(tokens, labels, arrays["head"], queries=queries).optimal)
    return JointTokens(tokens, labels, optimal, queries=queries)


def _ask(options: Namespace) -> tuple[Setting, Optimiser]:
    if options.setting not in (None, "attention"):
        raise ArgumentError("--setting", "penchant", "attention with --joint", repr(options.setting))
    options.loss = options.loss or "exponential"
    if options.loss not in _LOSSES:
        raise ArgumentError("--loss", "penchant", f"{' or '.join(_LOSSES)} with --joint", options.loss)
    if options.scale is not None and options.start != "small":
        fix = "it is the standard deviation of --start small"
        raise ArgumentError("--scale", "penchant", "left out unless --start small", options.scale, fix)
    data = _data(options)
    setting = joint_setting(data, _start(options, data), LOSSES[options.loss]())
    return setting, joint_rule(options, data, _decays(options))


def predict(options: Namespace) -> Predicted:
    setting, rule = _ask(options)
    found = joint_references(setting.data)
    content = describe(predicted(setting, rule)) | {"programs": programs(found)}
    arrays = {"W": found.attention.weight, "u": found.decoder.weight, "W_offset": found.offset.weight}
    return Predicted(content, [*lines(content), *program_lines(content)], arrays)


def train(options: Namespace) -> Trained:
    setting, rule = _ask(options)
    steps, memory = 10_000 if options.steps is None else options.steps, resumed(options, setting, rule, setting.start())
    run = trained(setting, rule, steps=steps, memory=memory)
    try:
        prediction, why = predicted(setting, rule), ""
    except (NotSeparableError, UndecidedMargin) as error:
        prediction, why = None, f"no prediction: {error}"
    case = make_case(prediction, run, why, optimiser=rule, made=made(options, rule))
    return Trained(case, PANELS, run.save, "self_attention_rates")


def _decays(options: Namespace) -> tuple[float, float] | None:
    """p_u and p_W of the step lengths length/(t+1)^p, from '2/3,1'; None where the rule has its own."""
    if options.decays is None:
        return None
    try:
        u, W = (float(Fraction(part.strip())) for part in options.decays.split(","))
    except (ValueError, ZeroDivisionError):
        u = W = -1.0
    if min(u, W) < 0:
        required = "two nonnegative numbers p_u,p_W, such as 2/3,1"
        raise ArgumentError("--decays", "penchant", required, repr(options.decays))
    return u, W


def _start(options: Namespace, data: JointTokens) -> JointStart | None:
    """Zeros, small normal entries, or the arrays u and W of a file."""
    if options.start == "zeros":
        return None
    if options.start == "small":
        return normal_start(data, options.seed, _SMALL if options.scale is None else options.scale)
    if not options.start.endswith(".npz"):
        raise ArgumentError("--start", "penchant", "'zeros', 'small' or a file ending in .npz", repr(options.start))
    arrays, d = read_arrays(options.start), data.tokens.shape[-1]
    for name, shape in {"u": (d,), "W": (d, d)}.items():
        if name not in arrays or arrays[name].shape != shape:
            found = f"shape {arrays[name].shape}" if name in arrays else f"the arrays {sorted(arrays)}"
            raise ArgumentError("--start", "penchant", f"a file with an array '{name}' of shape {shape}", found)
    return JointStart(arrays["u"], arrays["W"])
