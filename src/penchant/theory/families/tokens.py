"""What attention with a fixed decoder could select: the maximum-margin token selection, and the selections near it."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...problem import read
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.parametrisations import Direct, Gram
from ...settings.tokens import TokenSelection
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict
from .. import token_hypotheses as conditions
from ..base import Family, Hypothesis, Prediction, Rival, made_of, rivals
from ..selections import Limit, is_locally_optimal, token_limit
from ..verdicts import doubted, judge_direction, once_trained, with_margin

_TRIED = 12  # so many single-sample changes of the selection are tried as rivals: each costs a program


def _judge(prediction: Prediction[Solution], run: Trajectory) -> Verdict:
    """As for any direction, once attention has settled; a run that has settled on other tokens is refuted with their names."""
    verdict = judge_direction(prediction, run.weight())
    if run.steps[-1] == 0:
        return once_trained(verdict, run)
    limit = token_limit(run)
    if limit.kind == "undecided" and verdict.outcome is not Outcome.undecided:
        return doubted(verdict, "a sample gives no token an attention of 0.9: the selection is open")
    if limit.kind == "local":
        return _elsewhere(prediction, limit, verdict)
    return with_margin(once_trained(verdict, run), prediction, run.weight())


def _elsewhere(prediction: Prediction[Solution], limit: Limit, verdict: Verdict) -> Verdict:
    """A run settled on wrong tokens is refuted at their direction and open elsewhere, however near W is to the reference."""
    outcome = Outcome.refuted if limit.at_local_direction else Outcome.undecided
    text = verdict.inequality
    if verdict.measured is not None and cast(float, verdict.measured) <= cast(float, verdict.predicted):
        text += f", but attention is on the tokens {list(limit.tokens)}, not on the optimal ones"
    detail = "; ".join([limit.describe_local(), *([prediction.remarks] if prediction.remarks else [])])
    return Verdict(outcome, text, verdict.predicted, verdict.measured, detail)


def attention_rivals(setting: Setting, reference: Solution) -> tuple[Rival, ...]:
    """The first gradient, and the directions of locally optimal selections one sample away from the optimal one."""
    data: TokenSelection = setting.data
    zero = read(Setting(data, Direct(), setting.loss), Direct().zeros(data))
    others = {"first gradient": -np.asarray(zero.slope)}
    for sample, token in _changes(data)[:_TRIED]:
        tokens = np.asarray(data.optimal).copy()
        tokens[sample] = token
        found = is_locally_optimal(data, tuple(int(token) for token in tokens))
        if found.locally_optimal and found.solution is not None:
            others[f"tokens {list(found.tokens)}"] = found.solution.weight
    return rivals(reference, others)


def _changes(data: TokenSelection) -> list[tuple[int, int]]:
    """The changes of one sample to another token, those that lose the least score first."""
    scores = np.asarray(data.scores)
    lost = scores[np.arange(len(scores)), np.asarray(data.optimal)][:, None] - scores
    order = np.argsort(lost, axis=None, kind="stable")
    pairs = zip(*(index.tolist() for index in np.unravel_index(order, scores.shape)), strict=True)
    return [(sample, token) for sample, token in pairs if token != int(data.optimal[sample])]


def _rivals_left_out(data: TokenSelection) -> tuple[str, ...]:
    """A note where not every selection one sample away was tried as a rival."""
    count = len(_changes(data))
    if count <= _TRIED:
        return ()
    text = f"rivals: of the {count} selections one sample away, the {_TRIED} that lose the least score were tried; {count - _TRIED} were left out"
    return (text,)


def _token_form(data: TokenSelection) -> str:
    """Assumption 1 as the paper writes it: a note, since the pairs certify what the proofs use of it on far more data."""
    found = conditions.near_orthogonal_tokens(data)
    word = "holds" if found.holds else "fails"
    return f"Assumption 1 token by token {word} ({found.detail}; worst: {found.offender}); `near_orthogonal_pairs` is the form that is used"


def shared(asked: Prediction[Solution], length: float = 0.0) -> tuple[Hypothesis, ...]:
    """What every theorem assumes, for steps of at most this length."""
    setting, data, start = asked.setting, asked.setting.data, asked.setting.start()
    floor = conditions.attention_floor(setting, start, length)
    return (
        conditions.feasible(asked.reference),
        conditions.unique_optimal(data),
        conditions.equal_scores(data),
        conditions.near_orthogonal_pairs(data, setting.loss, floor),
        conditions.small_start(setting, start, floor),
    )


def _at_start(prediction: Prediction[Solution], start: PyTree) -> tuple[Hypothesis, ...]:
    """The attention that the start leaves the optimal tokens, against the floor that the other hypotheses are checked with."""
    setting, found = prediction.setting, prediction.hypothesis("small_start")
    if found is None:
        return ()
    floor = conditions.smallest_share(setting, setting.start()) - found.slack
    return (conditions.small_start(setting, jax.tree.map(jnp.asarray, start), floor),)


TOKEN_SELECTION = Family(
    "token-selection",
    "self_attention_rates",
    lambda problem: made_of(problem, TokenSelection, Direct, Gram),
    lambda setting, start: max_margin(setting.data),
    lambda asked: attention_rivals(asked.setting, asked.reference),
    _judge,
    shared,
    "Conjecture: this optimiser converges in direction to the Frobenius maximum-margin token selection.",
    notes=lambda asked: (_token_form(asked.setting.data), *_rivals_left_out(asked.setting.data)),
    at_start=_at_start,
)
