"""Every theorem and every claim, in explicit tuples: what is not listed here does not exist."""

from typing import Any

from ..errors import ArgumentError
from ..settings.base import Setting
from . import (
    deep_linear,
    deep_linear_claims,
    interpolation,
    interpolation_claims,
    joint_attention,
    joint_attention_claims,
    joint_attention_findings,
    key_query,
    key_query_claims,
    label_noise_claims,
    linear_models,
    linear_models_claims,
    margin_steps_claims,
    noise_claims,
    self_attention,
    self_attention_assumption_claims,
    self_attention_claims,
    self_attention_sharp_claims,
    sparse_recovery_claims,
)
from .base import Claim, Prediction, Theorem

_PAPERS = (linear_models, interpolation, self_attention, joint_attention, key_query, deep_linear)
_EVIDENCE = (
    linear_models_claims,
    margin_steps_claims,
    interpolation_claims,
    sparse_recovery_claims,
    noise_claims,
    label_noise_claims,
    self_attention_claims,
    self_attention_sharp_claims,
    self_attention_assumption_claims,
    joint_attention_claims,
    joint_attention_findings,
    key_query_claims,
    deep_linear_claims,
)
THEOREMS: tuple[Theorem, ...] = tuple(theorem for paper in _PAPERS for theorem in paper.THEOREMS)
CLAIMS: tuple[Claim, ...] = tuple(claim for evidence in _EVIDENCE for claim in evidence.CLAIMS)
PAPERS: tuple[str, ...] = tuple(dict.fromkeys(claim.paper for claim in CLAIMS))


def predict(setting: Setting, optimiser: Any) -> Prediction:
    """What theory says of training `setting` with `optimiser`: the first theorem of the catalogue that speaks about it."""
    for theorem in THEOREMS:
        if theorem.applies(setting, optimiser):
            return theorem.predict(setting, optimiser)
    found = f"{type(setting.data).__name__} with {type(setting.parametrisation).__name__}"
    raise ArgumentError("setting", "predict", "one that a theorem of the catalogue speaks about", found)


def judge(prediction: Prediction, run: Any) -> Any:
    """The verdict of the predicting theorem on a run."""
    return prediction.theorem.judge(prediction, run)
