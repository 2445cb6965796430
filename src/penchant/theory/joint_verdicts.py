"""The verdict on a joint run: where W is, where it is going, and why being near the reference is not yet going there."""

import numpy as np

from ..diagnostics.direction import misalignment
from ..diagnostics.joint import joint_misalignments
from ..settings.losses import Exponential
from ..training.joint import JointTrajectory
from ..verdict import Outcome, Verdict
from .base import Prediction
from .joint_limits import JointLimit, detect_joint_limit
from .verdicts import judge_direction

OFFSET = "offset program (|u| and |W| grow alike)"
SUPPORT_ONLY = "decoder-support samples only (|u| outgrows |W|)"
_AT = 1e-3  # 1 - corr below which a run counts as being at a program of the tokens it has reached


def judge_joint(prediction: Prediction, run: JointTrajectory) -> Verdict:
    """The direction of W against the predicted one, and what the reached selection says instead."""
    verdict, limit = judge_direction(prediction, run.weight()), detect_joint_limit(run)
    if not (isinstance(run.loss, Exponential) and isinstance(prediction.setting.loss, Exponential)):
        text = f"not applicable: the theorems on joint training are about the exponential loss; {verdict.inequality}"
        return Verdict(Outcome.undecided, text, verdict.predicted, verdict.measured, verdict.detail)
    detail = "; ".join(part for part in (_place(limit), _course(prediction, run), verdict.detail) if part)
    outcome, text = verdict.outcome, verdict.inequality
    if outcome is Outcome.confirmed:
        doubt = _doubt(prediction, run, limit, verdict)
        if not doubt:
            return verdict
        outcome, text = Outcome.undecided, f"{text}, but {doubt}"
    elif outcome is Outcome.refuted and limit.kind == "undecided" and not _at_program(prediction, run):
        outcome, text = Outcome.undecided, f"{text}, but {_open(limit)}"
    elif verdict.measured is not None and _elsewhere(limit, verdict.measured):
        outcome = Outcome.refuted
    return Verdict(outcome, text, verdict.predicted, verdict.measured, detail)


def _open(limit: JointLimit) -> str:
    return f"a sample gives its leading token an attention of only {limit.concentration:.3g}: the selection is open"


def _apart(prediction: Prediction) -> list[str]:
    """The programs to which W may tend instead: there are some only where a sample does not support the decoder."""
    failed = any(one.name == "decoder_support" and not one.holds for one in prediction.hypotheses)
    return [rival.name for rival in prediction.rivals if failed and rival.name in (OFFSET, SUPPORT_ONLY)]


def _at_program(prediction: Prediction, run: JointTrajectory) -> bool:
    """Whether the nearest rival is such a program, and not the first step, near which every young run is."""
    nearest = min(prediction.rivals, key=lambda rival: misalignment(run.weight(), rival.weight))
    return nearest.name in _apart(prediction)


def _elsewhere(limit: JointLimit, measured: float) -> bool:
    """Whether attention has settled and W is at a program of the reached tokens, far nearer than to the reference."""
    nearest = min(limit.attention, limit.offset, limit.support_only)
    return limit.kind != "undecided" and nearest <= _AT and measured > 10 * nearest


def _doubt(prediction: Prediction, run: JointTrajectory, limit: JointLimit, verdict: Verdict) -> str:
    """Why a W near its reference may be passing by; empty where nothing speaks for that."""
    if limit.kind == "undecided":
        return _open(limit)
    if limit.kind == "local":
        return f"attention is on the tokens {list(limit.tokens)}, not on the optimal ones"
    if _apart(prediction):
        return f"decoder_support fails, so that W is on its way to another program: {' or '.join(_apart(prediction))}"
    if run.norm_W[-1] < 2 * run.norm_W[0]:
        return f"|W| has grown from {run.norm_W[0]:.3g} to {run.norm_W[-1]:.3g} only: it is still that of the start"
    distance = joint_misalignments(run, prediction.reference.weight)
    before = distance[np.flatnonzero((run.norm_W > 0) & (run.norm_W <= run.norm_W[-1] / 2))[-1:]]
    if before.size and distance[-1] > before[0] and distance[-1] > verdict.predicted / 10:
        return f"it was {before[0]:.3g} when |W| was half as large"
    return ""


def _place(limit: JointLimit) -> str:
    if limit.references is None:
        return ""
    reached = "leading so far are" if limit.kind == "undecided" else f"{limit.kind} on"
    return (
        f"{reached} tokens {list(limit.tokens)}; for these 1 - corr of u is {limit.decoder:.3g}, of W {limit.attention:.3g} "
        f"to their program, {limit.offset:.3g} with offsets, {limit.support_only:.3g} on the decoder's support"
    )


def _course(prediction: Prediction, run: JointTrajectory) -> str:
    """Whether W has come nearer to the reference before, and which rival it approaches instead."""
    moved = np.flatnonzero(run.norm_W > 0)
    if len(moved) < 3:
        return ""
    distance = joint_misalignments(run, prediction.reference.weight)[moved]
    least = int(distance.argmin())
    if not (least < len(moved) - 1 and distance[-1] > 2 * distance[least]):
        return ""
    text = f"W is leaving the reference: 1 - corr {distance[least]:.3g} at step {run.steps[moved[least]]}, {distance[-1]:.3g} now"
    nearest = min(prediction.rivals, key=lambda rival: misalignment(run.weight(), rival.weight), default=None)
    if nearest is None:
        return text
    to_rival = joint_misalignments(run, nearest.weight)[moved]
    if to_rival[-1] < to_rival[least]:
        text += f", and approaching the rival '{nearest.name}': {to_rival[least]:.3g} then, {to_rival[-1]:.3g} now"
    return text
