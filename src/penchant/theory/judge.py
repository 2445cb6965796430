"""Verdicts: what a run says of a prediction."""

from dataclasses import replace
from typing import Any

from ..errors import ArgumentError, kind
from .base import Prediction
from .matching import check_same_setting, other_optimiser


def judge(prediction: Any, run: Any) -> Any:
    """The verdict of the predicting theorem on a run of the same setting; a run by another optimiser is judged, and said to be one."""
    if not isinstance(prediction, Prediction):
        raise ArgumentError("prediction", "judge", "what `predict` returned", kind(prediction))
    check_same_setting(prediction, run)
    verdict, remark = prediction.theorem.judge(prediction, run), other_optimiser(prediction, run)
    return replace(verdict, detail="; ".join(part for part in (remark, verdict.detail) if part))
