"""What the theorems on joint training ask of the scores along a run; before the run they are known only in special cases."""

import numpy as np

from ...settings.joint import JointTokens
from ...theory.base import Hypothesis
from ...training.joint import JointTrajectory

_EQUAL = 1e-9  # relative spread of scores that count as equal
_ALONG = "known along a run only"
_SPREAD = "relative spread of the scores of non-optimal tokens along the run"
_ORDER = "smallest lead of the optimal token's score along the run, relative to the largest score"
_RATIO = "largest log of the ratio of two samples' losses along the run; bounded, as far as a run shows, if it was largest early"


def open_hypotheses(data: JointTokens) -> tuple[Hypothesis, ...]:
    """Before a run: scores follow the decoder, and only one other token per sample, or equal ones, have equal scores for sure."""
    n, length, _ = data.tokens.shape
    others = np.asarray(data.tokens)[~np.eye(length, dtype=bool)[np.asarray(data.optimal)]].reshape(n, length - 1, -1)
    spread = np.abs(others - others[:, :1]).max(axis=(1, 2), initial=0.0)
    same, nan = not spread.any(), float("nan")
    equal = Hypothesis(
        "equal_scores",
        True if same else None,
        _EQUAL if same else nan,
        "" if same else f"sample {int(spread.argmax())}",
        "Assumption 2 along the run: one other token per sample, or equal ones" if same else _SPREAD,
        "exact" if same else _ALONG,
    )
    order = Hypothesis("score_order", None, nan, "", _ORDER, _ALONG)
    return equal, order, Hypothesis("loss_ratio", None, nan, "", _RATIO, _ALONG)


def run_hypotheses(run: JointTrajectory) -> tuple[Hypothesis, ...]:
    """Equal scores of the non-optimal tokens, optimal tokens in the lead, and losses of bounded ratio, at the records after the start.

    >>> import penchant as pt
    >>> run = pt.training.train_joint(pt.settings.marked_tokens(), pt.optimisers.scheduled_descent(0.05), steps=100)
    >>> [(one.name, one.holds) for one in run_hypotheses(run)]
    [('equal_scores', True), ('score_order', True), ('loss_ratio', None)]
    """
    moved = run.steps > 0
    scores, steps = run.scores[moved], run.steps[moved]
    if not len(steps):
        return open_hypotheses(run.data)
    size = np.maximum(np.abs(scores).max(axis=(1, 2)), np.finfo(float).tiny)[:, None]
    optimal = np.eye(scores.shape[2], dtype=bool)[np.asarray(run.data.optimal)]
    best = scores[:, optimal]
    others = scores[:, ~optimal].reshape(len(steps), scores.shape[1], -1)
    spread = (others.max(axis=2) - others.min(axis=2)) / size
    lead = (best - others.max(axis=2)) / size
    return (
        _worst("equal_scores", _EQUAL - spread, steps, _SPREAD, strict=False),
        _worst("score_order", lead, steps, _ORDER, strict=True),
        _loss_ratio(run.outputs[moved], steps),
    )


def _worst(name: str, slack: np.ndarray, steps: np.ndarray, detail: str, strict: bool) -> Hypothesis:
    record, sample = np.unravel_index(slack.argmin(), slack.shape)
    least = float(slack[record, sample])
    holds = least > 0 if strict else least >= 0
    return Hypothesis(name, holds, least, f"sample {int(sample)} at step {int(steps[record])}", detail, "numerical")


def _loss_ratio(outputs: np.ndarray, steps: np.ndarray) -> Hypothesis:
    """`holds` is None where the ratio is still growing: no finite run shows that it is unbounded."""
    ratio = np.ptp(outputs, axis=1)
    record = int(ratio.argmax())
    bounded = True if steps[record] <= steps[-1] / 2 else None
    return Hypothesis("loss_ratio", bounded, float(ratio[record]), f"step {int(steps[record])}", _RATIO, "numerical")
