"""What `predict --joint` and `train --joint` do: attention and decoder trained together on the user's data."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, DataFileError, InfeasibleError, UndecidedMargin
from ..optimisers.joint import AbstractJointRule
from ..papers import predict as predicted
from ..report.own import joint as own_joint
from ..settings.base import Setting
from ..settings.files import LOSSES, read_arrays
from ..settings.joint import JointTokens, TokenGram
from ..theory.base import Prediction
from ..theory.joint_limits import JointReferences, detect_joint_limit, joint_references
from ..theory.judge import judge
from ..training.joint import train_joint
from ..training.trajectory import write_npz
from ..verdict import Outcome, Verdict
from . import own_data
from .joint_options import refuse, rule_of, start_of
from .options import check_writable, npz_name
from .pages import print_files, write_page


def _data(options: Namespace) -> JointTokens:
    """Arrays tokens, labels and optimal (or a head, whose best token is called optimal) [, queries]."""
    if options.setting not in (None, "attention"):
        raise ArgumentError("--setting", "penchant", "attention with --joint", repr(options.setting))
    arrays = read_arrays(options.data)
    if not {"tokens", "labels"} <= set(arrays) or not {"optimal", "head"} & set(arrays):
        found = ", ".join(sorted(arrays)) or "none"
        raise DataFileError(f"Joint training needs the arrays tokens, labels and optimal (or head). Found: {found}.")
    if "mask" in arrays:
        raise DataFileError("Joint training knows no padding: the array mask is for attention alone, without --joint.")
    if "optimal" in arrays:
        return JointTokens(arrays["tokens"], arrays["labels"], arrays["optimal"], queries=arrays.get("queries"))
    from ..settings.tokens import TokenSelection

    known = TokenSelection(arrays["tokens"], arrays["labels"], arrays["head"], queries=arrays.get("queries"))
    return JointTokens(arrays["tokens"], arrays["labels"], np.asarray(known.optimal), queries=arrays.get("queries"))


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
    refuse(options)
    data = _data(options)
    setting = Setting(data, TokenGram(data, start_of(options, data)), LOSSES[options.loss]())
    content = own_data.describe_prediction(predicted(setting, rule_of(options, data)))
    found = joint_references(data)
    content["programs"] = _programs(found)
    if options.save:
        arrays = {"W": found.attention.weight, "u": found.decoder.weight, "W_offset": found.offset.weight}
        content["saved"] = str(write_npz(npz_name(options.save), content, arrays))
    return content


def train(options: Namespace) -> dict:
    """Train W and u together, name the selection that was reached, and judge the direction of W."""
    refuse(options)
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
    verdict = Verdict(Outcome.undecided, reason) if prediction is None else judge(prediction, run)
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
        "concentration": limit.concentration,
        "distances": {name: getattr(limit, name) for name in ("decoder", "attention", "offset", "support_only")},
        "reached_programs": None if limit.references is None else _programs(limit.references),
        "first_capped": None if run.first_capped < 0 else run.first_capped,
        "verdict": verdict.outcome.value,
        "inequality": verdict.inequality,
        "detail": verdict.detail,
        "prediction": None if prediction is None else own_data.describe_prediction(prediction),
        "programs": None if prediction is None else _programs(joint_references(data)),
    }
    if options.save:
        content["saved"] = str(run.save(options.save))
    if options.out:
        write_page(content, options, "self_attention_rates", lambda: own_joint.page(prediction, run, verdict, limit))
    return content


def _predicted(setting: Setting, rule: AbstractJointRule) -> tuple[Prediction | None, str]:
    try:
        return predicted(setting, rule), ""
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
    print(
        f"limit      {content['limit']}, most attended tokens {content['tokens']}, each with attention at least {content['concentration']:.3g}"
    )
    for name, value in content["distances"].items():
        what = "u to the decoder program" if name == "decoder" else f"W to the {name.replace('_', '-')} program"
        print(f"direction  1 - corr of {what} of these tokens: {own_data.number(value)}")
    print(
        f"verdict    {content['verdict']}: {content['inequality']}"
        + (f" ({content['detail']})" if content["detail"] else "")
    )
    print_files(content)
