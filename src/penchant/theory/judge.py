"""Verdicts: what a run says of a prediction."""

from dataclasses import replace
from typing import Any

from ..errors import ArgumentError, kind
from ..verdict import Verdict
from .base import Prediction
from .matching import check_same_setting, other_optimiser

_FACTS = {True: "hold", False: "fail", None: "open"}


def judge(prediction: Any, run: Any) -> Verdict:
    """The verdict of the predicting theorem on a run of the same setting: whether its conclusion holds there, and whether its hypotheses do.

    A run by another optimiser is judged, said to be one, and not what the theorem is about.
    """
    if not isinstance(prediction, Prediction):
        raise ArgumentError("prediction", "judge", "what `predict` returned", kind(prediction))
    check_same_setting(prediction, run)
    verdict, remark = prediction.theorem.judge(prediction, run), other_optimiser(prediction, run)
    detail = "; ".join(part for part in (remark, verdict.detail) if part)
    return replace(verdict, detail=detail, hypotheses="fail" if remark else _FACTS[prediction.holds])
