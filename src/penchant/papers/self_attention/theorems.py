"""Token selection with direct weights and a fixed decoder: theorems for the user's own data.

Joint training of attention and decoder: hypotheses, prediction and verdict for the user's own data.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.direction import misalignment
from ...lab import Claim, claim
from ...optimisers.base import scheduled_descent
from ...optimisers.step_rules import Constant, Normalised, Polyak
from ...problem import read
from ...references.base import Solution
from ...settings.base import Setting
from ...settings.joint import JointTokens, TokenGram, joint_setting
from ...theory import selections as conditions
from ...theory.base import Family, Hypothesis, Prediction, Rival, Theorem, at_least_zero, made_of, rivals
from ...theory.families.linear import TOKEN_SELECTION, descends, is_flow, shared, uncapped
from ...theory.joint import OFFSET, SUPPORT_ONLY, JointReferences, joint_references, judge_joint
from ...theory.judge import explained
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict

VASUDEVA = "Vasudeva, Deora, Thrampoulidis, Implicit bias and fast convergence rates for self-attention, 2024, arXiv 2402.05738"
_FAST = "proved 1 - corr = O(log(t)^2 / t); observed t^-2"


def stated(
    name: str,
    place: str,
    kind: str = "proved",
    *,
    expected: Outcome = Outcome.confirmed,
    slow: bool = False,
    repair: str = "",
) -> Callable[..., Claim]:
    """A claim of a sentence that stands at a place of the paper."""
    return claim(name, f"{VASUDEVA}, {place}", kind, expected=expected, slow=slow, repair=repair)


def _normalised(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    data, length = asked.setting.data, float(np.max(asked.optimiser.rule.length))
    stable = conditions.stable_normalised(data, asked.reference, length)
    return (*shared(asked, length), conditions.short_steps(length, data), stable)


def _descent(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    if is_flow(asked.optimiser):
        return shared(asked)
    data, step = asked.setting.data, float(np.max(asked.optimiser.rule.step))
    longest = conditions.small_step_size(step, data, asked.setting.loss)
    return (*shared(asked, conditions.longest_step(data) - longest.slack), longest)


def _polyak(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    data, rule = asked.setting.data, asked.optimiser.rule
    c, gap = float(np.min(rule.c)), float(np.max(rule.gap))
    return (
        *shared(asked, conditions.longest_step(data)),  # what the condition on the steps allows
        conditions.short_polyak_steps(asked.setting, asked.reference, c),
        conditions.stable_polyak(data, asked.reference, c),
        at_least_zero("exact_infimum", -gap, "", "minus the gap below the infimum that the step assumes"),
    )


def _capped(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    caps = np.asarray(asked.optimiser.rule.cap)
    cap = float(caps[np.isfinite(caps)].max())
    binds = (
        "the theorems on this rule have no cap: once it binds, the rule is gradient descent with the cap as step size"
    )
    return (
        *shared(asked, float(np.max(getattr(asked.optimiser.rule, "length", 0.0)))),
        Hypothesis("uncapped", False, -1.0, f"cap {cap:g}", binds),
        conditions.small_step_size(cap, asked.setting.data, asked.setting.loss),
    )


def _steps(optimiser: eqx.Module, *rules: type, free: bool) -> bool:
    """One of these rules, `free` of a cap or with one."""
    return any(descends(optimiser, rule) for rule in rules) and uncapped(optimiser) is free


def _row(name: str, place: str, statement: str, covers: Callable, hypotheses: Callable, rate: str) -> Theorem:
    return Theorem(name, statement, f"{VASUDEVA}, {place}", TOKEN_SELECTION, covers, hypotheses, rate)


NORMALISED = _row(
    "theorem-1",
    "Theorem 1",
    "Normalised descent on W converges to the maximum-margin token selection: |W/|W| - W_mm/|W_mm|| = O~(t^-1/2), 1 - corr = O~(1/t).",
    lambda optimiser: _steps(optimiser, Normalised, free=True),
    _normalised,
    _FAST,
)
DESCENT = _row(
    "theorem-6",
    "Theorem 6",
    "Gradient descent on W converges in direction to the maximum-margin token selection.",
    lambda optimiser: is_flow(optimiser) or descends(optimiser, Constant),
    _descent,
    "no rate proved; observed 1 - corr ~ (log t)^-2",
)
POLYAK = _row(
    "theorem-7",
    "Theorem 7",
    "Polyak steps on W converge to the maximum-margin token selection at the rate of normalised descent.",
    lambda optimiser: _steps(optimiser, Polyak, free=True),
    _polyak,
    _FAST,
)
CAPPED = _row(
    "capped-steps",
    "Theorem 6 on gradient descent, which the rule is once the cap binds",
    "Conjecture: steps whose multiplier is capped converge in direction to the maximum-margin token selection, once the "
    "cap binds at the pace of gradient descent.",
    lambda optimiser: _steps(optimiser, Normalised, Polyak, free=False),
    _capped,
    "no rate proved; once the cap binds, observed 1 - corr ~ (log t)^-2 as for gradient descent",
)


_LONGER = 3.0  # optimal tokens are asked to be at least half of this times longer than the others
_SAME = 1e-9  # references closer than this are one and the same direction
_EQUAL = 1e-9  # relative spread of scores that count as equal
_ALONG = "known along a run only"
_SPREAD = "relative spread of the scores of non-optimal tokens along the run"
_ORDER = "smallest lead of the optimal token's score along the run, relative to the largest score"
_RATIO = "largest log of the ratio of two samples' losses along the run; bounded, as far as a run shows, if it was largest early"


def longest_token(data: JointTokens) -> float:
    """B."""
    return float(np.linalg.norm(np.asarray(data.tokens), axis=-1).max())


def _lengths(data: JointTokens) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the optimal tokens and of the others."""
    lengths = np.linalg.norm(np.asarray(data.tokens), axis=-1)
    optimal = np.eye(lengths.shape[1], dtype=bool)[np.asarray(data.optimal)]
    return lengths[optimal], lengths[~optimal]


def zero_start(gram: TokenGram) -> Hypothesis:
    """Condition C1: training starts at W = 0, u = 0."""
    size = float(np.sqrt(np.asarray(gram.first_squares).sum()))
    return Hypothesis("zero_start", size == 0, -size, "", "minus the norm of the start")


def long_optimal_tokens(data: JointTokens) -> Hypothesis:
    """Condition C2: optimal tokens are longer than the others by a factor 3/2."""
    optimal, others = _lengths(data)
    ratio = _LONGER / 2 * others.max() / optimal.min()
    offender = f"sample {int(optimal.argmin())}"
    return at_least_zero("long_optimal_tokens", 1 - ratio, offender, "1 - ratio")


def near_orthogonal(data: JointTokens) -> Hypothesis:
    """Condition C3: lengths within a factor of their means, and 2n |<x, x'>| below the shortest optimal square."""
    n, length, d = data.tokens.shape
    tokens = np.asarray(data.tokens).reshape(n * length, d)
    gram = np.abs(tokens @ tokens.T)
    np.fill_diagonal(gram, 0.0)
    a, b = np.unravel_index(gram.argmax(), gram.shape)
    optimal, others = _lengths(data)
    spread = max(float(np.abs(group / group.mean() - 1).max()) for group in (optimal, others))
    ratio = max(float(2 * n * gram.max() / optimal.min() ** 2), 2 * spread)
    offender = f"sample {a // length} token {a % length} with sample {b // length} token {b % length}"
    return at_least_zero("near_orthogonal", 1 - ratio, offender, "1 - ratio")


def short_joint_steps(length: float, data: JointTokens) -> Hypothesis:
    """Condition C4: step length at most 1/(4 B^2)."""
    bound = 1 / (4 * longest_token(data) ** 2)
    return at_least_zero("short_steps", bound - length, "", f"1/(4 B^2) = {bound:.4g}")


def decoder_support(found: JointReferences) -> Hypothesis:
    """Condition C5: every sample is a support vector of the decoder program.

    Near-orthogonality (C3) implies it; where C3 fails, the conclusion on W stands or falls with it.
    """
    dual = found.decoder.dual / found.decoder.dual.max()
    worst = int(dual.argmin())
    detail = "smallest multiplier of the decoder program, relative to the largest; where it is 0, W tends elsewhere"
    return Hypothesis("decoder_support", found.all_support, float(dual[worst] - _SAME), f"sample {worst}", detail)


def open_hypotheses(data: JointTokens) -> tuple[Hypothesis, ...]:
    """Before a run: scores follow the decoder, and only one other token per sample, or equal ones, have equal scores for sure."""
    n, length, _ = data.tokens.shape
    others = np.asarray(data.tokens)[~np.eye(length, dtype=bool)[np.asarray(data.optimal)]].reshape(n, length - 1, -1)
    spread = np.abs(others - others[:, :1]).max(axis=(1, 2), initial=0.0)
    nan, worst = float("nan"), f"sample {int(spread.argmax())}"
    known = "Assumption 2 along the run: one other token per sample, or equal ones"
    equal = Hypothesis("equal_scores", None, nan, worst, _SPREAD, _ALONG)
    if not spread.any():
        equal = Hypothesis("equal_scores", True, _EQUAL, "", known, "exact")
    order = Hypothesis("score_order", None, nan, "", _ORDER, _ALONG)
    return equal, order, Hypothesis("loss_ratio", None, nan, "", _RATIO, _ALONG)


def run_hypotheses(run: Trajectory) -> tuple[Hypothesis, ...]:
    """Equal scores of the non-optimal tokens, optimal tokens in the lead, and losses of bounded ratio, at the records after the start.

    >>> import penchant as pt
    >>> run = pt.train(pt.settings.joint_setting(pt.settings.marked_tokens()), pt.optimisers.scheduled_descent(0.05), steps=100)
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
        _loss_ratio(run.margins[moved], steps),
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


def first_attention_step(data: JointTokens) -> np.ndarray:
    """-grad_W L (up to scale) after one infinitesimal step of u: the direction W starts with."""
    setting = joint_setting(data)
    gram: TokenGram = setting.parametrisation
    zeros = jnp.zeros(data.tokens.shape[:2])
    first = read(setting, gram.point(zeros, zeros)).slope.u.coefficients
    slope = read(setting, gram.point(-1e-6 * first, zeros)).slope.W.coefficients
    return -np.einsum("nt,ntd->nd", slope, data.tokens).T @ np.asarray(data.queries)


def _programs(asked: Prediction[Solution]) -> JointReferences:
    ratio = getattr(asked.optimiser, "growth_ratio", 1.0)  # a rule for one weight has none
    return joint_references(asked.setting.data, ratio=float(np.max(ratio)))


def _conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    setting, data = asked.setting, asked.setting.data
    found = (zero_start(setting.parametrisation), long_optimal_tokens(data), near_orthogonal(data))
    loss = () if _is_exponential(setting) else (exponential_loss(type(setting.loss).__name__),)
    return (*found, decoder_support(joint_references(data)), *open_hypotheses(data), *loss)


def _rivals(asked: Prediction[Solution]) -> tuple[Rival, ...]:
    found, wanted = _programs(asked), asked.reference
    others = {OFFSET: found.offset.weight, SUPPORT_ONLY: found.support_only.weight}
    others["first step"] = first_attention_step(asked.setting.data)
    far = {name: weight for name, weight in others.items() if misalignment(weight, wanted.weight) > _SAME}
    return rivals(wanted, far)


def _judge(prediction: Prediction[Solution], run: Trajectory) -> Verdict:
    """The direction of W against the predicted one, and what the reached selection says instead.

    W may pass by the reference on its way elsewhere, so `confirmed` also needs attention on the optimal tokens, programs that
    do not lead apart, and a distance that has not grown.
    """
    failed = [f"{one.name} ({one.offender})" for one in run_hypotheses(run) if one.holds is False]
    return explained(judge_joint(prediction, run), f"along the run fails {', '.join(failed)}" if failed else "")


def exponential_loss(name: str) -> Hypothesis:
    """Joint training is analysed for the exponential loss alone."""
    detail = "not applicable: the theorems on joint training are about the exponential loss"
    return Hypothesis("exponential_loss", False, -1.0, name, detail)


def _is_exponential(setting: Setting) -> bool:
    return setting.loss.kind == "exponential"


def _is_scheduled(optimiser: eqx.Module) -> bool:
    """Whether these are the steps of Eq. (13), without a cap."""
    lengths = [rule.length for rule in getattr(optimiser, "normalised", ())]
    if len(lengths) != 2 or not np.array_equal(lengths[0], lengths[1]):
        return False
    numbers = zip(jax.tree.leaves(optimiser), jax.tree.leaves(scheduled_descent(lengths[0])), strict=False)
    same = jax.tree.structure(optimiser) == jax.tree.structure(scheduled_descent(1.0))
    return same and all(np.allclose(found, wanted, rtol=1e-12, atol=0) for found, wanted in numbers)


JOINT = Family(
    "joint",
    "self_attention_rates",
    lambda problem: made_of(problem, JointTokens),
    lambda setting, start: joint_references(setting.data).attention,
    _rivals,
    _judge,
    _conditions,
    "Conjecture: this rule turns W to the maximum-margin token selection when W and u are trained together.",
    f"{VASUDEVA}, Figure 3 (experiment)",  # the paper trains with other rules as well, without a theorem
    "observed: block normalisation t^-2; joint normalisation, Polyak and gradient descent only logarithmic",
)
SCHEDULED = Theorem(
    "theorem-3",
    "Joint normalised descent with the steps of Eq. (13) turns W to the maximum-margin token selection: 1 - corr = O~(1/log t).",
    f"{VASUDEVA}, Theorem 3",
    JOINT,
    _is_scheduled,
    lambda asked: (
        *_conditions(asked),
        short_joint_steps(float(np.max(asked.optimiser.descents[1].rule.length)), asked.setting.data),
    ),
    "proved 1 - corr = O(loglog(t)^2 / log t); observed (log t)^-2",
    _is_exponential,
)


THEOREMS = (
    NORMALISED,
    DESCENT,
    POLYAK,
    CAPPED,
    SCHEDULED,
)
