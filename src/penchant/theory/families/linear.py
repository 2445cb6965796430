"""What training on linear data could select: the maximum margin, its rivals, and the hypotheses its theorems share.

What attention with a fixed decoder could select: the maximum-margin token selection, and the selections near it.
"""

from types import NoneType
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...errors import PenchantError, warn
from ...flow.flow import is_flow as is_flow
from ...norms import L1, L2, Entrywise, Linf
from ...optimisers.base import Descent
from ...optimisers.step_rules import Constant
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.linear_programs import polyhedral_margin
from ...references.logistic import polynomial_direction, tail_power
from ...settings.base import Data, Setting
from ...settings.classification import Classification
from ...settings.losses import AbstractLoss
from ...settings.parametrisations import Direct, Gram
from ...settings.tokens import TokenSelection
from ...training.trajectory import Trajectory
from ...verdict import ROUNDING, Outcome, Verdict
from .. import selections as conditions
from ..base import Family, Hypothesis, Prediction, Rival, at_least_zero, made_of, rivals
from ..judge import doubted, judge_direction, judge_run, once_trained, with_margin
from ..selections import Limit, is_locally_optimal, token_limit

SLOW = "unknown: the rates need a loss with an exponential tail"
_GRID = np.linspace(-50, 700, 1501)
_HALFWAY = 800  # the index of margin 350
_TAIL = 0.1  # by how much -l'/l may change from margin 350 to 700: not at all for e^(-az), by half for any power of the margin


def descends(optimiser: eqx.Module, rule: type, after: type = NoneType) -> bool:
    """Steepest descent with this rule, in the l2 norm, and without memory unless one is named."""
    parts = [type(getattr(optimiser, part, None)) for part in ("rule", "geometry", "after", "before")]
    return [type(optimiser), *parts] == [Descent, rule, L2, after, NoneType]


def first_order(optimiser: eqx.Module) -> bool:
    """Gradient flow, and descent with one step size and no memory."""
    return is_flow(optimiser) or descends(optimiser, Constant)


def uncapped(optimiser: eqx.Module) -> bool:
    """Whether no cap on the multiplier can ever bind."""
    return bool(np.isinf(np.asarray(getattr(getattr(optimiser, "rule", None), "cap", 0.0))).all())


def is_exponential(loss: AbstractLoss) -> bool:
    """The losses whose tail is known to be exponential."""
    return loss.kind != ""


_pull_at_zero = eqx.filter_jit(lambda data, loss, zeros: data.adjoint(data.weigh(zeros, loss).weights))


def first_gradient(setting: Setting) -> np.ndarray:
    """Minus the gradient of the weight at 0: where training starts to go."""
    return np.asarray(_pull_at_zero(setting.data, setting.loss, np.zeros(len(setting.data.constrained()))))


def separable(reference: Solution) -> Hypothesis:
    """Some direction classifies every sample correctly."""
    offender = f"sample {int(reference.dual.argmax())}"
    return Hypothesis("separable", True, reference.margin, offender, "maximum margin per unit of norm", "numerical")


def loss_shape(loss: AbstractLoss) -> Hypothesis:
    """Assumption 1 with an exponential tail: positive, decreasing to 0, and -l'/l tends to a constant."""
    if is_exponential(loss):
        return Hypothesis("loss", True, 1.0, "", "decreasing to 0 with an exponential tail", "exact")
    value, slope = (np.asarray(f(jnp.asarray(_GRID))) for f in (loss.log_value, loss.log_slope))
    bad = np.flatnonzero(~np.isfinite(value) | ~np.isfinite(slope) | np.append(np.diff(value) >= 0, False))
    if len(bad):
        where = f"margin {_GRID[bad[0]]:g}"
        return Hypothesis("loss", False, -1.0, where, "positive and strictly decreasing on [-50, 700]", "sampled")
    change = float(np.expm1((slope - value)[-1] - (slope - value)[_HALFWAY]))
    slow = "slow tail: the direction need not be the maximum margin. " if change < -_TAIL else ""
    settles = f"-l'/l settles (within {_TAIL:g}); the limits are not checkable"
    detail = f"{slow}Decreasing with an exponential tail: {settles}"
    offender = f"-l'/l changes by {change:.3g} from margin 350 to 700"
    return at_least_zero("loss", _TAIL - abs(change), offender, detail, "sampled")


def linear_rivals(setting: Setting, reference: Solution) -> tuple[Rival, ...]:
    """The directions of other biases: maximum l1 and linf margin, the limit under a polynomial tail if the loss has one, and the first gradient."""
    data, power = setting.data, tail_power(setting.loss)
    others = polyhedral(data, L1(), Linf())
    if power is not None:
        others["polynomial tail"] = polynomial_direction(np.asarray(data.signed), power, reference.weight)
    others["first gradient"] = np.asarray(data.signed).mean(axis=0)
    return rivals(reference, others)


def polyhedral(data: Data, *norms: Entrywise) -> dict[str, np.ndarray]:
    """Maximum margins in such norms where their programs are solved: a rival that is not known is no reason to predict nothing."""
    found, unsolved = {}, []
    for norm in norms:
        try:
            found[norm.name] = polyhedral_margin(data, norm).weight
        except PenchantError as error:
            unsolved.append(str(error))
    if unsolved:
        warn(f"Not among the rivals: {' '.join(unsolved)}")
    return found


def divided(data: Data, reference: Solution) -> tuple[str, ...]:
    """What the margin is in the units of inputs that were divided by their largest norm."""
    divisor = getattr(data, "divisor", 1)
    if divisor == 1:
        return ()
    margin = reference.margin * divisor
    return (f"inputs were divided by {divisor:.10g}; as given their maximum margin is {margin:.10g}",)


def step_size(setting: Setting, step: float, margins: Array, where: str) -> Hypothesis:
    """A step size that provably never increases the loss. The curvature of the exponential one is bounded by the loss itself, at the start."""
    signed = np.asarray(setting.data.signed)
    if setting.loss.kind == "exponential":
        lengths = (signed**2).sum(axis=1)
        load = float(np.exp(np.log(step * lengths.max()) + float(setting.weigh(margins).log_excess)))
        slack = 0.0 if abs(load - 1) <= ROUNDING else 1 - load  # the longest step that is allowed is allowed
        detail = f"step * loss at {where} * longest input^2, at most 1"
        return at_least_zero("step_size", slack, f"sample {int(lengths.argmax())}", detail)
    scale = 1 / len(signed) if setting.reduction == "mean" else 1.0
    load = step * scale * np.linalg.norm(signed, 2) ** 2 / 8
    return Hypothesis("step_size", bool(load < 1), float(1 - load), "", "step * largest singular value^2 / 8, below 1")


def _reference(setting: Setting, start: None) -> Solution:
    """The l2 maximum margin. Equal inputs at the smallest margin share one dual weight in any proportion."""
    signed, reference = np.asarray(setting.data.signed), max_margin(setting.data)
    active = signed[signed @ reference.weight <= 1 + 1e-9]
    repeated = len(active) - len(np.unique(active, axis=0))
    if repeated:
        text = f"{repeated} support vectors repeat others: the direction is unique, but the dual weights, and with them the"
        warn(f"{text} entropy in the rate, are not.")
    return reference


def _at_start(prediction: Prediction[Solution], start: PyTree) -> tuple[Hypothesis, ...]:
    """Where the step size is bounded by the loss at 0, by the loss at the start."""
    if prediction.hypothesis("step_size") is None:
        return ()
    setting, step = prediction.setting, float(np.max(prediction.optimiser.rule.step))
    return (step_size(setting, step, setting.margins(jax.tree.map(jnp.asarray, start)), "the start"),)


MAX_MARGIN = Family(
    "max-margin",
    "linear_models",
    lambda problem: made_of(problem, Classification, Direct, Gram),
    _reference,
    lambda asked: linear_rivals(asked.setting, asked.reference),
    judge_run,
    lambda asked: (separable(asked.reference),),
    "Conjecture: this optimiser converges in direction to the l2 maximum margin.",
    rate=lambda asked: asked.theorem.rate if loss_shape(asked.setting.loss).holds else SLOW,
    notes=lambda asked: divided(asked.setting.data, asked.reference),
    at_start=_at_start,
)


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
    others = {"first gradient": first_gradient(setting)}
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
    best = np.asarray(data.optimal)
    lost = scores[np.arange(len(scores)), best][:, None] - scores
    order = np.argsort(lost, axis=None, kind="stable")
    pairs = zip(*(index.tolist() for index in np.unravel_index(order, scores.shape)), strict=True)
    return [(sample, token) for sample, token in pairs if token != best[sample]]


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


def _selected_at_start(prediction: Prediction[Solution], start: PyTree) -> tuple[Hypothesis, ...]:
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
    at_start=_selected_at_start,
)
