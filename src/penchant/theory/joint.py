"""Where joint training of attention and decoder goes: the selection it reached, the programs of that selection that u and W solve, and the
verdict on W: where it is, where it is going, and why being near the reference is not yet going there."""

from typing import cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import ArrayLike

from ..diagnostics.direction import joint_misalignments, log_joint_attention, misalignment
from ..errors import ArgumentError, NotSeparableError, UndecidedMargin, inseparable_decoder
from ..references.base import Solution
from ..references.euclidean_margin import max_margin
from ..references.offset_margin import OffsetSolution, offset_margin
from ..settings.joint import JointTokens
from ..training.trajectory import Trajectory
from ..verdict import Outcome, Verdict
from .base import Prediction
from .judge import judge_direction

OFFSET = "offset program (|u| and |W| grow alike)"
SUPPORT_ONLY = "decoder-support samples only (|u| outgrows |W|)"
_AT = 1e-3  # 1 - corr below which a run counts as being at a program of the tokens it has reached
SETTLED = 0.9  # attention below this on its leading token leaves the selection open


class JointReferences(eqx.Module):
    """The programs of one selection.

    `attention`: shortest W that selects the tokens; `decoder`: shortest u that classifies them; `offset`: the W-program in
    which every sample is helped by `ratio` times its decoder margin (its limit when |u|/|W| tends to that ratio); `support_only`:
    the W-program of the samples that support the decoder (the limit when |u| outgrows |W|). They agree when every sample supports.
    """

    tokens: tuple[int, ...]
    attention: Solution
    decoder: Solution
    offset: OffsetSolution
    support_only: Solution
    ratio: float = 1.0

    @property
    def all_support(self) -> bool:
        return bool(self.decoder.support.all())


def joint_references(data: JointTokens, selection: ArrayLike | None = None, ratio: float = 1.0) -> JointReferences:
    """Solve the four programs of a selection (the optimal one by default), the offset program for this ratio |u|/|W|."""
    if not 0 <= ratio < np.inf:
        raise ArgumentError("ratio", "joint_references", "a nonnegative, finite number", repr(ratio))
    chosen = np.asarray(data.optimal if selection is None else selection)
    attention = data.attention(chosen)
    try:
        decoder = max_margin(data.decoder(chosen))
    except NotSeparableError as error:
        raise inseparable_decoder(chosen.tolist(), error.weights, error.norm) from None
    reached = np.asarray(data.decoder(chosen).margins(jax.device_put(decoder.weight))) / np.linalg.norm(decoder.weight)
    others = attention.others.shape[1]
    offset = offset_margin(attention, ratio * np.repeat(reached, others))
    support_only = max_margin(data.attention(chosen, np.flatnonzero(decoder.support)))
    tokens = tuple(int(token) for token in chosen)
    return JointReferences(tokens, max_margin(attention), decoder, offset, support_only, ratio)


class JointLimit(eqx.Module):
    """Where a joint run has gone: `kind` is "global" (the optimal tokens), "local" (others) or "undecided".

    1 - corr of u to the decoder program and of W to the three attention programs, all of the reached selection (while undecided,
    of the tokens that lead so far); NaN where a program has no solution or a block is still 0. `concentration` is the smallest
    attention that a sample gives to its leading token: below 0.9 the selection is open.
    """

    kind: str
    tokens: tuple[int, ...]
    references: JointReferences | None
    decoder: float
    attention: float
    offset: float
    support_only: float
    concentration: float


def detect_joint_limit(run: Trajectory) -> JointLimit:
    """Name where a joint run has gone, from its last record; the offset program is that of the ratio at which its blocks grow."""
    tokens = tuple(int(token) for token in run.logits[-1].argmax(axis=-1))
    nan, concentration = float("nan"), float(np.exp(log_joint_attention(run)[-1]).max(axis=1).min())
    kind = "global" if np.array_equal(tokens, run.data.optimal) else "local"
    kind = "undecided" if concentration < SETTLED else kind
    weight, decoder = run.weight(), run.named()["u"]
    try:
        ratio = run.header.get("growth_ratio", 1.0)
        found = joint_references(run.data, np.asarray(tokens), ratio) if weight.any() or decoder.any() else None
    except (NotSeparableError, UndecidedMargin):
        found = None
    if found is None:
        return JointLimit(kind, tokens, None, nan, nan, nan, nan, concentration)
    programs = (found.attention, found.offset, found.support_only)
    attention, offset, support_only = (misalignment(weight, p.weight) if weight.any() else nan for p in programs)
    to_decoder = misalignment(decoder, found.decoder.weight) if decoder.any() else nan
    return JointLimit(kind, tokens, found, to_decoder, attention, offset, support_only, concentration)


def judge_joint(prediction: Prediction, run: Trajectory) -> Verdict:
    """The direction of W against the predicted one, and what the reached selection says instead."""
    verdict, limit = judge_direction(prediction, run.weight()), detect_joint_limit(run)
    if not run.setting.loss.kind == prediction.setting.loss.kind == "exponential":
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
    elif verdict.measured is not None and _elsewhere(limit, cast(float, verdict.measured)):
        outcome = Outcome.refuted
    return Verdict(outcome, text, verdict.predicted, verdict.measured, detail)


def _open(limit: JointLimit) -> str:
    return f"a sample gives its leading token an attention of only {limit.concentration:.3g}: the selection is open"


def _apart(prediction: Prediction) -> list[str]:
    """The programs to which W may tend instead: there are some only where a sample does not support the decoder."""
    failed = any(one.name == "decoder_support" and not one.holds for one in prediction.hypotheses)
    return [rival.name for rival in prediction.rivals if failed and rival.name in (OFFSET, SUPPORT_ONLY)]


def _at_program(prediction: Prediction, run: Trajectory) -> bool:
    """Whether the nearest rival is such a program, and not the first step, near which every young run is."""
    nearest = min(prediction.rivals, key=lambda rival: misalignment(run.weight(), rival.weight))
    return nearest.name in _apart(prediction)


def _elsewhere(limit: JointLimit, measured: float) -> bool:
    """Whether attention has settled and W is at a program of the reached tokens, far nearer than to the reference."""
    nearest = min(limit.attention, limit.offset, limit.support_only)
    return limit.kind != "undecided" and nearest <= _AT and measured > 10 * nearest


def _doubt(prediction: Prediction, run: Trajectory, limit: JointLimit, verdict: Verdict) -> str:
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
    if before.size and distance[-1] > before[0] and distance[-1] > cast(float, verdict.predicted) / 10:
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


def _course(prediction: Prediction, run: Trajectory) -> str:
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
