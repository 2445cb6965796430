"""Token selection with direct weights and a fixed decoder: theorems for the user's own data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...flow.flow import GradientFlow
from ...lab import Claim, claim
from ...optimisers.step_rules import Constant, Normalised, Polyak
from ...problem import read
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.parametrisations import Direct, Gram
from ...settings.tokens import TokenSelection
from ...theory import token_hypotheses as conditions
from ...theory.base import Hypothesis, Prediction, Theorem, judge_direction, once_trained, rivals, with_margin
from ...theory.families.linear import covered, plain
from ...theory.selections import Limit, detect_limit, is_locally_optimal
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict

VASUDEVA = "Vasudeva, Deora, Thrampoulidis, Implicit bias and fast convergence rates for self-attention, 2024, arXiv 2402.05738"
_FLIPS = 12  # so many single-sample changes of the selection are tried as rivals: each costs a program


def stated(name: str, place: str, kind: str = "proved", **more: Any) -> Callable[..., Claim]:
    """A claim of a sentence that stands at a place of the paper."""
    return claim(name, f"{VASUDEVA}, {place}", kind, **more)


class _AttentionTheorem(Theorem):
    paper = "self_attention_rates"
    rate = ""

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        reference = max_margin(setting.data)
        hypotheses = self.hypotheses(setting, optimiser, reference)
        others = attention_rivals(setting, reference)
        notes = (_token_form(setting.data), *_rivals_left_out(setting.data))
        return Prediction(self, setting, hypotheses, reference, others, self.rate, notes)

    def at_start(self, setting: Setting, optimiser: Any, start: Any) -> tuple[Hypothesis, ...]:
        """The attention that the start leaves the optimal tokens, against the floor that the other hypotheses are checked with."""
        found = {one.name: one for one in self.hypotheses(setting, optimiser, max_margin(setting.data))}
        if "small_start" not in found:
            return ()
        params = jax.tree.map(jnp.asarray, start)
        floor = conditions.smallest_share(setting, setting.start()) - found["small_start"].slack
        return (conditions.small_start(setting, params, floor),)

    def judge(self, prediction: Prediction, run: Trajectory) -> Verdict:
        """As for any direction, once attention has settled; a run that has settled on other tokens is refuted with their names."""
        verdict = judge_direction(prediction, run.weight())
        if run.steps[-1] == 0:
            return once_trained(verdict, run)
        limit = detect_limit(run)
        if limit.kind == "undecided" and verdict.outcome is not Outcome.undecided:
            text = f"{verdict.inequality}, but a sample gives no token an attention of 0.9: the selection is open"
            return Verdict(Outcome.undecided, text, verdict.predicted, verdict.measured, verdict.detail)
        if limit.kind == "local":
            return _elsewhere(prediction, limit, verdict)
        return with_margin(once_trained(verdict, run), prediction, run.weight())


def _elsewhere(prediction: Prediction, limit: Limit, verdict: Verdict) -> Verdict:
    """A run settled on wrong tokens is refuted at their direction and open elsewhere, however near W is to the reference."""
    outcome = Outcome.refuted if limit.at_local_direction else Outcome.undecided
    text = verdict.inequality
    if verdict.measured is not None and verdict.measured <= verdict.predicted:
        text += f", but attention is on the tokens {list(limit.tokens)}, not on the optimal ones"
    detail = "; ".join([limit.describe_local(), *([prediction.remarks] if prediction.remarks else [])])
    return Verdict(outcome, text, verdict.predicted, verdict.measured, detail)


def attention_rivals(setting: Setting, reference: Solution) -> tuple:
    """The first gradient, and the directions of locally optimal selections one sample away from the optimal one."""
    data: TokenSelection = setting.data
    zero = read(Setting(data, Direct(), setting.loss), Direct().zeros(data))
    others = {"first gradient": -np.asarray(zero.slope)}
    for sample, token in _flips(data)[:_FLIPS]:
        tokens = np.asarray(data.optimal).copy()
        tokens[sample] = token
        found = is_locally_optimal(data, tuple(int(token) for token in tokens))
        if found.locally_optimal and found.solution is not None:
            others[f"tokens {list(found.tokens)}"] = found.solution.weight
    return rivals(reference, others)


def _flips(data: TokenSelection) -> list[tuple[int, int]]:
    """The changes of one sample to another token, those that lose the least score first."""
    scores = np.asarray(data.scores)
    lost = scores[np.arange(len(scores)), np.asarray(data.optimal)][:, None] - scores
    order = np.argsort(lost, axis=None, kind="stable")
    pairs = zip(*(index.tolist() for index in np.unravel_index(order, scores.shape)), strict=True)
    return [(sample, token) for sample, token in pairs if token != int(data.optimal[sample])]


def _rivals_left_out(data: TokenSelection) -> tuple[str, ...]:
    """A note where not every selection one sample away was tried as a rival."""
    count = len(_flips(data))
    if count <= _FLIPS:
        return ()
    text = f"rivals: of the {count} selections one sample away, the {_FLIPS} that lose the least score were tried; {count - _FLIPS} were left out"
    return (text,)


def _is_attention(setting: Setting) -> bool:
    return isinstance(setting.data, TokenSelection) and isinstance(setting.parametrisation, Direct | Gram)


def _token_form(data: TokenSelection) -> str:
    """Assumption 1 as the paper writes it: a note, since the pairs certify what the proofs use of it on far more data."""
    found = conditions.near_orthogonal_tokens(data)
    word = "holds" if found.holds else "fails"
    return f"Assumption 1 token by token {word} ({found.detail}; worst: {found.offender}); `near_orthogonal_pairs` is the form that is used"


def _uncapped(optimiser: Any) -> bool:
    return bool(np.isinf(np.asarray(optimiser.rule.cap)).all())


def _shared(setting: Setting, reference: Solution, length: float) -> tuple[Hypothesis, ...]:
    data, start = setting.data, setting.start()
    floor = conditions.attention_floor(setting, start, length)
    return (
        conditions.feasible(reference),
        conditions.unique_optimal(data),
        conditions.equal_scores(data),
        conditions.near_orthogonal_pairs(data, setting.loss, floor),
        conditions.small_start(setting, start, floor),
    )


class AttentionNormalisedDescent(_AttentionTheorem):
    """Theorem 1: normalised descent, fixed decoder."""

    name = "theorem-1"
    statement = "Normalised descent on W converges to the maximum-margin token selection: |W/|W| - W_mm/|W_mm|| = O~(t^-1/2), 1 - corr = O~(1/t)."
    citation = f"{VASUDEVA}, Theorem 1"
    rate = "proved 1 - corr = O(log(t)^2 / t); observed t^-2"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_attention(setting) and plain(optimiser, Normalised) and _uncapped(optimiser)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        length = float(np.max(optimiser.rule.length))
        stable = conditions.stable_normalised(setting.data, reference, length)
        return (*_shared(setting, reference, length), conditions.short_steps(length, setting.data), stable)


class AttentionGradientDescent(_AttentionTheorem):
    """Theorem 6: gradient descent (and its flow), fixed decoder."""

    name = "theorem-6"
    statement = "Gradient descent on W converges in direction to the maximum-margin token selection."
    citation = f"{VASUDEVA}, Theorem 6"
    rate = "no rate proved; observed 1 - corr ~ (log t)^-2"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_attention(setting) and (isinstance(optimiser, GradientFlow) or plain(optimiser, Constant))

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        if isinstance(optimiser, GradientFlow):
            return _shared(setting, reference, 0.0)
        step = float(np.max(optimiser.rule.step))
        longest = conditions.small_step_size(step, setting.data, setting.loss)
        allowed = 1 / (2 * conditions.token_bound(setting.data) ** 2)
        return (*_shared(setting, reference, allowed - longest.slack), longest)


class AttentionPolyak(_AttentionTheorem):
    """Theorem 7: Polyak's step, fixed decoder."""

    name = "theorem-7"
    statement = "Polyak steps on W converge to the maximum-margin token selection at the rate of normalised descent."
    citation = f"{VASUDEVA}, Theorem 7"
    rate = "proved 1 - corr = O(log(t)^2 / t); observed t^-2"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_attention(setting) and plain(optimiser, Polyak) and _uncapped(optimiser)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        c, gap = float(np.min(optimiser.rule.c)), float(np.max(optimiser.rule.gap))
        exact = Hypothesis("exact_infimum", gap == 0, -gap, "", "minus the gap below the infimum that the step assumes")
        longest = 1 / (2 * conditions.token_bound(setting.data) ** 2)  # what the condition on the steps allows
        return (
            *_shared(setting, reference, longest),
            conditions.short_polyak_steps(setting, reference, c),
            conditions.stable_polyak(setting.data, reference, c),
            exact,
        )


class AttentionCapped(_AttentionTheorem):
    """Normalised and Polyak steps with a cap: the rates of Theorems 1 and 7 end where the cap binds."""

    name = "capped-steps"
    statement = (
        "Conjecture: steps whose multiplier is capped converge in direction to the maximum-margin token selection, once the "
        "cap binds at the pace of gradient descent."
    )
    citation = f"{VASUDEVA}, Theorem 6 on gradient descent, which the rule is once the cap binds"
    rate = "no rate proved; once the cap binds, observed 1 - corr ~ (log t)^-2 as for gradient descent"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_attention(setting) and (plain(optimiser, Normalised) or plain(optimiser, Polyak))

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        caps = np.asarray(optimiser.rule.cap)
        cap = float(caps[np.isfinite(caps)].max())
        binds = "the theorems on this rule have no cap: once it binds, the rule is gradient descent with the cap as step size"
        length = float(np.max(optimiser.rule.length)) if isinstance(optimiser.rule, Normalised) else 0.0
        return (
            *_shared(setting, reference, length),
            Hypothesis("uncapped", False, -1.0, f"cap {cap:g}", binds),
            conditions.small_step_size(cap, setting.data, setting.loss),
        )


class AttentionConjecture(_AttentionTheorem):
    """No theorem of the catalogue covers the optimiser; the Frobenius maximum margin is offered as a conjecture."""

    name = "token-selection-conjecture"
    statement = "Conjecture: this optimiser converges in direction to the Frobenius maximum-margin token selection."
    citation = "none"
    rate = "unknown"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_attention(setting)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return (*_shared(setting, reference, 0.0), covered(type(optimiser).__name__))


_PROVED = (AttentionNormalisedDescent(), AttentionGradientDescent(), AttentionPolyak())
THEOREMS = (*_PROVED, AttentionCapped(), AttentionConjecture())
