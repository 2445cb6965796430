"""Every theorem and every claim, in explicit tuples: what is not listed here does not exist."""

from typing import Any

from ..errors import ArgumentError
from ..settings.base import Setting
from . import (
    interpolation,
    interpolation_claims,
    label_noise_claims,
    linear_models,
    linear_models_claims,
    margin_steps_claims,
    noise_claims,
    self_attention,
    self_attention_claims,
    sparse_recovery_claims,
)
from .base import Claim, Prediction, Theorem

THEOREMS: tuple[Theorem, ...] = (*linear_models.THEOREMS, *interpolation.THEOREMS, *self_attention.THEOREMS)
CLAIMS: tuple[Claim, ...] = (
    *linear_models_claims.CLAIMS,
    *margin_steps_claims.CLAIMS,
    *interpolation_claims.CLAIMS,
    *sparse_recovery_claims.CLAIMS,
    *noise_claims.CLAIMS,
    *label_noise_claims.CLAIMS,
    *self_attention_claims.CLAIMS,
)
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
