"""What `predict --joint` and `train --joint` do: attention and decoder trained together on the user's data."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, DataFileError, InfeasibleError, UndecidedMargin
from ..optimisers.joint import (
    AbstractJointRule,
    BlockNormalised,
    JointAccelerated,
    JointDescent,
    JointHeavyBall,
    JointNormalised,
    JointPolyak,
    scheduled_descent,
)
from ..report.page import render
from ..settings.base import Setting
from ..settings.files import LOSSES, read_arrays
from ..settings.joint import JointStart, JointTokens, TokenGram, normal_start
from ..studies import own_joint
from ..studies.base import Study, save
from ..theorems import catalogue
from ..theorems.base import Prediction
from ..theorems.joint_attention import longest_token
from ..theorems.joint_limits import JointReferences, detect_joint_limit, joint_references
from ..training.joint import train_joint
from ..training.trajectory import write_npz
from ..verdict import Outcome, Verdict
from . import own_data
from .options import check_writable, npz_name

RULES = ("gd", "ngd", "momentum", "joint-ngd", "scheduled", "polyak", "accelerated")


def _data(options: Namespace) -> JointTokens:
    """Arrays tokens, labels and optimal (or a head, whose best token is called optimal) [, queries]."""
    if options.setting not in (None, "attention"):
        raise ArgumentError("--setting", "penchant", "attention with --joint", repr(options.setting))
    arrays = read_arrays(options.data)
    if not {"tokens", "labels"} <= set(arrays) or not {"optimal", "head"} & set(arrays):
        found = ", ".join(sorted(arrays)) or "none"
        raise DataFileError(f"Joint training needs the arrays tokens, labels and optimal (or head). Found: {found}.")
    if "optimal" in arrays:
        return JointTokens(arrays["tokens"], arrays["labels"], arrays["optimal"], queries=arrays.get("queries"))
    from ..settings.tokens import TokenSelection

    known = TokenSelection(arrays["tokens"], arrays["labels"], arrays["head"], queries=arrays.get("queries"))
    return JointTokens(arrays["tokens"], arrays["labels"], np.asarray(known.optimal), queries=arrays.get("queries"))


def _refuse(options: Namespace) -> None:
    """Options that mean nothing here are refused, not ignored."""
    unused = {"--reduction": options.reduction != "mean"}
    for name in ("time", "log_time", "margin"):
        unused[f"--{name.replace('_', '-')}"] = getattr(options, name, None) is not None
    for name, given in unused.items():
        if given:
            raise ArgumentError(name, "penchant", "left out with --joint", "a value")
    if options.cap is not None and options.optimiser != "polyak":
        raise ArgumentError("--cap", "penchant", "used with polyak under --joint", f"--optimiser {options.optimiser}")


def rule_of(options: Namespace, data: JointTokens) -> AbstractJointRule:
    """The rule of the command line; a length left open is the 1/(4 B^2) of the theorem."""
    name, size = options.optimiser, options.step_size
    if name not in RULES:
        raise ArgumentError("--optimiser", "penchant", f"one of {', '.join(RULES)} with --joint", name)
    if name == "polyak":
        return JointPolyak(1.0 if size is None else size, np.inf if options.cap is None else options.cap)
    short = 1 / (4 * longest_token(data) ** 2)
    makers: dict[str, tuple[Any, float]] = {
        "gd": (JointDescent, short),
        "ngd": (BlockNormalised, short),
        "momentum": (lambda length: JointHeavyBall(BlockNormalised(length)), short / 10),
        "joint-ngd": (JointNormalised, short),
        "scheduled": (scheduled_descent, short),
        "accelerated": (JointAccelerated, 2 * short),
    }
    make, default = makers[name]
    return make(default if size is None else size)


def start_of(options: Namespace, data: JointTokens) -> JointStart | None:
    """Zeros, small normal entries, or the arrays u and W of a file."""
    if options.start == "zeros":
        return None
    if options.start == "small":
        if options.seed < 0:
            raise ArgumentError("--seed", "penchant", "a nonnegative integer", options.seed)
        return normal_start(data, options.seed, options.scale)
    if not options.start.endswith(".npz"):
        raise ArgumentError("--start", "penchant", "'zeros', 'small' or a file ending in .npz", repr(options.start))
    arrays, d = read_arrays(options.start), data.tokens.shape[-1]
    for name, shape in {"u": (d,), "W": (d, d)}.items():
        if name not in arrays or arrays[name].shape != shape:
            found = f"shape {arrays[name].shape}" if name in arrays else f"the arrays {sorted(arrays)}"
            raise ArgumentError("--start", "penchant", f"a file with an array '{name}' of shape {shape}", found)
    return JointStart(arrays["u"], arrays["W"])


def _programs(found: JointReferences) -> dict:
    return {
        "tokens": list(found.tokens),
        "attention": found.attention.value,
        "decoder": {
            "value": found.decoder.value,
            "lower": found.decoder.bracket.lower,
            "upper": found.decoder.bracket.upper,
        },
        "decoder_support": [int(k) for k in np.flatnonzero(found.decoder.support)],
        "offset": {"lower": found.offset.lower, "upper": found.offset.upper},
    }


def predict(options: Namespace) -> dict:
    """Theorem, hypotheses, and the programs of W and u for the optimal tokens."""
    _refuse(options)
    data = _data(options)
    setting = Setting(data, TokenGram(data, start_of(options, data)), LOSSES[options.loss]())
    content = own_data.describe_prediction(catalogue.predict(setting, rule_of(options, data)))
    found = joint_references(data)
    content["programs"] = _programs(found)
    if options.save:
        arrays = {"W": found.attention.weight, "u": found.decoder.weight, "W_offset": found.offset.weight}
        content["saved"] = str(write_npz(npz_name(options.save), content, arrays))
    return content


def train(options: Namespace) -> dict:
    """Train W and u together, name the selection that was reached, and judge the direction of W."""
    _refuse(options)
    if options.save:
        check_writable(npz_name(options.save))
    if options.out:
        check_writable(str(Path(options.out) / "index.html"))
    data = _data(options)
    start = start_of(options, data)
    setting, rule = Setting(data, TokenGram(data, start), LOSSES[options.loss]()), rule_of(options, data)
    steps = 10_000 if options.steps is None else options.steps
    run = train_joint(data, rule, steps=steps, start=start, loss=setting.loss)
    prediction, reason = _predicted(setting, rule)
    verdict = Verdict(Outcome.undecided, reason) if prediction is None else catalogue.judge(prediction, run)
    limit = detect_joint_limit(run)
    content: dict[str, Any] = {
        "status": run.status.name,
        "message": run.status.message,
        "steps": int(run.steps[-1]),
        "log_loss": float(run.log_loss[-1]),
        "norm_W": float(run.norm_W[-1]),
        "norm_u": float(run.norm_u[-1]),
        "limit": limit.kind,
        "tokens": list(limit.tokens),
        "distances": {name: getattr(limit, name) for name in ("decoder", "attention", "offset", "support_only")},
        "verdict": verdict.outcome.value,
        "inequality": verdict.inequality,
        "detail": verdict.detail,
    }
    if options.save:
        content["saved"] = str(run.save(options.save))
    if options.out:
        study = Study("own-data", f"Your data: {Path(options.data).name}", "self_attention_rates", lambda *_: None)  # pyright: ignore
        result = own_joint.page(prediction, run, verdict, limit)
        save(study, result, options.out, seed=options.seed, full=False, seconds=0.0)
        content["page"] = str(render(options.out))
    return content


def _predicted(setting: Setting, rule: AbstractJointRule) -> tuple[Prediction | None, str]:
    try:
        return catalogue.predict(setting, rule), ""
    except (InfeasibleError, UndecidedMargin) as error:
        return None, f"no prediction: {error}"


def print_prediction(content: dict) -> None:
    """The prediction, then what is special to two trained blocks."""
    own_data.print_prediction(content)
    found = content["programs"]
    print(
        f"decoder    minimum norm with margins >= 1: {found['decoder']['value']:.12g}; support: samples {found['decoder_support']}"
    )
    print(
        f"offset     best smallest offset margin in [{found['offset']['lower']:.12g}, {found['offset']['upper']:.12g}]"
    )


def print_run(content: dict) -> None:
    print(f"status     {content['status']}: {content['message']}")
    print(
        f"run        {content['steps']} steps, log loss {content['log_loss']:.8g}, |W| {content['norm_W']:.6g}, |u| {content['norm_u']:.6g}"
    )
    print(f"limit      {content['limit']}, most attended tokens {content['tokens']}")
    for name, value in content["distances"].items():
        what = "u to the decoder program" if name == "decoder" else f"W to the {name.replace('_', '-')} program"
        print(f"direction  1 - corr of {what} of these tokens: {value:.4g}")
    print(
        f"verdict    {content['verdict']}: {content['inequality']}"
        + (f" ({content['detail']})" if content["detail"] else "")
    )
    for name in ("saved", "page"):
        if name in content:
            print(f"{name:10} {content[name]}")
