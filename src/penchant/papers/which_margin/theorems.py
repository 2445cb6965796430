"""The norm whose margin an optimiser maximises is the norm its steps are steepest in, where a theorem says so: on linear data of two or more classes.

W of attention is trained as directly. The product of layers of lp norm at most s is any weight of lp norm at most a constant times s^L (Hoelder's
inequality), of layers of Schatten norm at most s any one of l2 norm s^L: there the norm is a conjecture.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...errors import PenchantError
from ...norms import L1, L2, Entrywise, Hybrid, Linf, Norm, Schatten
from ...optimisers.base import Adam, Decayed, Descent, kept_within, turns_at
from ...optimisers.newton_schulz import NewtonSchulz
from ...optimisers.step_rules import Normalised
from ...problem import Problem, read_once
from ...references.base import Solution, feature_rows
from ...references.euclidean_margin import max_margin
from ...references.linear_programs import polyhedral_margin
from ...references.norm_margin import norm_margin
from ...settings.base import Data, Setting
from ...settings.classification import Classification, Multiclass
from ...settings.next_token import InsideOutside, NextToken
from ...settings.parametrisations import Direct, Gram
from ...settings.tokens import TokenSelection
from ...theory import selections as conditions
from ...theory.base import Family, Hypothesis, Prediction, Rival, Theorem, at_least_zero, made_of, norm_of, rivals
from ...theory.families.layers import is_deep
from ...theory.families.linear import divided, first_gradient, first_order, loss_shape, polyhedral, separable, uncapped
from ...theory.judge import judge_direction, judge_norm
from ...training.trajectory import Trajectory
from ...verdict import Verdict
from .comparison import NAMES, best_margins, compare

FAN = "Fan, Schmidt, Thrampoulidis, Implicit bias of spectral descent and Muon on multiclass separable data, 2025, arXiv 2502.04664"
ZHANG = "Zhang, Zou, Cao, The implicit bias of Adam on separable data, NeurIPS 2024, arXiv 2406.10650"
GUNASEKAR = "Gunasekar, Lee, Soudry, Srebro, Characterizing implicit bias in terms of optimization geometry, ICML 2018, Theorem 5"
THRAMPOULIDIS = "Thrampoulidis, Implicit optimization bias of next-token prediction in linear models, NeurIPS 2024, arXiv 2402.18551"
WANG = "Wang, Meng, Chen, Liu, The implicit bias for adaptive optimization algorithms on homogeneous neural networks, ICML 2021, arXiv 2012.06244"
RAVI = "Ravi, Scott, Soudry, Wang, The implicit bias of gradient descent on separable multiclass data, NeurIPS 2024, arXiv 2411.01350"
_CALLED = {"l2": "frobenius", "linf": "max"}


def called(norm: Norm) -> str:
    """What a norm of a matrix is called here."""
    return _CALLED.get(norm.name, norm.name)


def _steepest(optimiser: Any, memory: bool) -> bool:
    """Normalised steps in a norm, without a cap, with or without momentum before the geometry."""
    match optimiser:
        case Descent(rule=Normalised(), geometry=L2() | Entrywise() | Schatten() | Hybrid(), after=None):
            return uncapped(optimiser) and (optimiser.before is not None) is memory
    return False


def _adam(optimiser: Any, norm: str) -> bool:
    """Adam, whose steps are steepest in this norm in the end."""
    return isinstance(optimiser, Adam) and norm_of(optimiser).name == norm


def falling_steps(asked: Prediction[Solution]) -> Hypothesis:
    """Steps that fall like t^-a with 0 < a <= 1: they tend to 0, and their sum does not converge. The logarithm of the loss is smooth in the norm, with
    the square of the longest input in its dual as its constant, so that steps of a constant length lose at most half of that times the length."""
    optimiser, detail = asked.optimiser, "min(a, 1 - a) of steps H/t^a, 0 < a <= 1"
    decay = getattr(optimiser, "rule", optimiser).decay
    a = 0.0 if decay is None else float(np.max(np.asarray(decay)))
    slack = -1.0 if a == 0 else min(a, 1 - a)
    if a == 0 and made_of(asked.setting, Classification) and getattr(optimiser, "before", optimiser) is None:
        longest = max(asked.reference.measure.dual(row) for row in np.asarray(asked.setting.data.signed))
        lost = float(np.max(optimiser.rule.length)) * longest**2 / 2 / asked.reference.margin
        detail += f"; steps of this constant size lose at most a share {lost:.3g} of the margin"
    return at_least_zero("falling_steps", slack, f"a = {a:g}", detail, "exact")


def fresh_momentum(reference: Solution, optimiser: Descent) -> Hypothesis:
    """The memory forgets only where the loss falls by less than 1/beta per step; at the pace of the best margin it falls by e^(h margin)."""
    before, pace = optimiser.before, float(np.max(np.asarray(optimiser.pace(jnp.zeros(())))))
    forgets = -np.log(float(np.max(np.asarray(before.beta if before else 0.0))))
    limit = forgets / reference.margin
    detail = f"1 - h/h_c, h_c = log(1/beta)/margin = {limit:.6g}: above, old gradients outlive the loss; steps that fall get below it"
    slack = 1 - pace / limit
    if getattr(optimiser.rule, "decay", None) is not None:
        slack = max(0.0, slack)
    return at_least_zero("fresh_momentum", slack, f"h = {pace:g}", detail, "exact")


def fresh_squares(reference: Solution, optimiser: Adam) -> Hypothesis:
    """Adam divides by the memory of its first gradients until h_t margin falls below (1 - b2)/2."""
    pace, a = float(np.max(np.asarray(optimiser.step))), optimiser.decay
    share = 2 * pace * reference.margin / (1 - optimiser.b2)
    if a is None or not np.any(np.asarray(a)):
        detail = "1 - 2 h margin/(1 - b2): above, Adam is stale for ever"
        return at_least_zero("fresh_squares", 1 - share, f"h = {pace:g}", detail, "exact")
    begins = share ** (1 / float(np.max(np.asarray(a))))
    detail = f"from step t* = (2 H margin/(1 - b2))^(1/a) = {begins:.4g} on; before, old squares divide and nothing is decided"
    return Hypothesis("fresh_squares", True, 0.0, f"t* = {begins:.4g}", detail, "exact")


def moving_coordinates(setting: Setting) -> Hypothesis:
    """No coordinate of the first gradient is 0: Adam and signs would leave it where it is."""
    found = read_once(Setting(setting.data, Direct(), setting.loss), Direct().zeros(setting.data)).coordinates
    still = np.argwhere(np.asarray(found.sign) == 0)
    named = ", ".join(str(tuple(place)) for place in still[:3].tolist()) + ", ..." * (len(still) > 3)
    return at_least_zero(
        "moving_coordinates", -float(len(still)), named, "minus the coordinates whose first gradient is 0", "exact"
    )


def bounded_ratio(optimiser: Adam) -> Hypothesis:
    """b1^2 < b2 bounds Adam's steps; the theorems want b1 <= b2."""
    slack = optimiser.b2 - max(optimiser.b1, optimiser.b1**2)
    return at_least_zero("bounded_ratio", slack, "", "b2 - b1, and b2 - b1^2", "exact")


def past_epsilon(optimiser: Adam) -> Hypothesis:
    """The limit begins where the gradient is below eps: at a margin of log(1/eps); before, steps are signs."""
    turn = -float(np.max(np.asarray(optimiser.log_eps)))
    detail = f"beyond the margin M_c = log(1/eps) = {turn:.6g}; before it the max-norm margin grows, and its share falls from there on"
    return Hypothesis("past_epsilon", None, float("nan"), f"M_c = {turn:.4g}", detail, "a run says where it stands")


def _conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    return separable(asked.reference), loss_shape(asked.setting.loss)


def _of_steps(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    return *_conditions(asked), falling_steps(asked)


def _of_adam(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    optimiser = asked.optimiser
    own = bounded_ratio(optimiser), fresh_squares(asked.reference, optimiser), moving_coordinates(asked.setting)
    return *_of_steps(asked), *own


def _rivals(asked: Prediction[Solution]) -> tuple[Rival, ...]:
    """The best weights in other norms, and the first gradient."""
    own = called(asked.reference.measure)
    others = best_margins(asked.setting.data, [name for name in NAMES if name != own])
    weights = {name: found.weight for name, found in others.items()}
    return rivals(asked.reference, {**weights, "first gradient": first_gradient(asked.setting)})


def _judge(prediction: Prediction[Solution], run: Trajectory) -> Verdict:
    """By margins: the share in the predicted norm, and in the others."""
    names = {called(prediction.reference.measure): prediction.reference}
    return compare(run, {**best_margins(run.data), **names}).verdict(next(iter(names)))


def _notes(asked: Prediction[Solution]) -> tuple[str, ...]:
    """What weight decay and Newton-Schulz steps change."""
    found = divided(asked.setting.data, asked.reference)
    match asked.optimiser:
        case Decayed() as optimiser if (radius := kept_within(optimiser)) < np.inf:
            where = "the loss is minimised there, and the margin only nearly"
            return *found, f"decay keeps the weight at norm {radius:.6g}: {where}"
        case Descent(geometry=NewtonSchulz()) as optimiser:
            where = "their share of the spectral margin stays below 1, at the rest point of a replicator flow"
            turn = f", and gradient descent beyond the margin log(485/eps) = {turns_at(optimiser):.4g}"
            turn *= norm_of(optimiser).name == "l2"
            return *found, f"Newton-Schulz steps are steepest in no norm: {where}{turn}"
    return found


def _family(norm: Norm) -> Family:
    name = f"margin-{called(norm)}"
    statement = f"Conjecture: this optimiser maximises the margin in the {called(norm)} norm."
    kept = called(norm) in NAMES
    reference = lambda setting, start: (
        best_margins(setting.data, [called(norm)])[called(norm)] if kept else norm_margin(setting.data, norm)
    )
    speaks = lambda problem: made_of(problem, Multiclass, Direct, Gram)
    return Family(name, "which_margin", speaks, reference, _rivals, _judge, _conditions, statement, notes=_notes)


MARGIN = replace(
    _family(L2()), name="margin", of=lambda optimiser: _family(norm_of(optimiser)), offers=lambda optimiser: True
)
STEEPEST = Theorem(
    "steepest-margin",
    "Normalised steepest descent in a norm, with steps H/t^a that fall, maximises the margin in that norm.",
    f"derived for penchant with constants; {FAN}",
    MARGIN,
    lambda optimiser: _steepest(optimiser, memory=False),
    _of_steps,
    "missing margin O(t^-a) for a < 1/2, O(log t/sqrt(t)) at 1/2, O(t^(a-1)) above, O(1/log t) at a = 1",
)
MOMENTUM = Theorem(
    "momentum-margin",
    "With momentum before the geometry (Signum, Muon with the polar factor) the margin that is maximised is the same.",
    FAN,
    MARGIN,
    lambda optimiser: _steepest(optimiser, memory=True),
    lambda asked: (*_of_steps(asked), fresh_momentum(asked.reference, asked.optimiser)),
    "as without momentum",
)
ADAM = Theorem(
    "adam-margin",
    "Adam with eps = 0 maximises the max-norm margin.",
    f"{ZHANG}; {FAN}",
    MARGIN,
    lambda optimiser: _adam(optimiser, "linf"),
    _of_adam,
    "a power of 1/t that depends on how the steps fall",
)
EPSILON = Theorem(
    "adam-epsilon",
    "Adam with eps > 0 turns into gradient descent and ends at the Frobenius margin.",
    WANG,
    MARGIN,
    lambda optimiser: _adam(optimiser, "l2"),
    lambda asked: (*_conditions(asked), past_epsilon(asked.optimiser)),
    "the sine of the angle falls like M_c/margin, and the margin like log(1/eps) + log t",
)
GRADIENT = Theorem(
    "gradient-margin",
    "Gradient descent, and the flow, maximise the Frobenius margin for every loss of the exponential kind.",
    RAVI,
    MARGIN,
    first_order,
    _conditions,
    "1/log t",
)


def _outside(setting: Setting, start: None) -> Solution:
    """The maximum margin of out-of-support features orthogonal to all in-support ones, as a matrix."""
    found = max_margin(setting.data.outside())
    return replace(found, weight=found.weight.reshape(setting.data.weight_shape), norm="frobenius")


def _unprojected(asked: Prediction[Solution]) -> tuple[Rival, ...]:
    """The maximum margin of the features as they are, and the first gradient."""
    data = asked.setting.data
    rows = feature_rows(data, data.constrained())
    whole = max_margin(Classification(rows, np.ones(len(rows)))).weight.reshape(data.weight_shape)
    return rivals(asked.reference, {"features not projected": whole, "data weight": np.asarray(data.data_weight)})


def _judge_outside(prediction: Prediction[Solution], run: Trajectory) -> Verdict:
    return judge_direction(prediction, np.asarray(run.params.outside[-1]))


NEXT_TOKEN = Theorem(
    "next-token-margin",
    "Frequencies inside the supports are fitted, and the rest of the weight turns to the maximum margin orthogonal to them.",
    THRAMPOULIDIS,
    Family(
        "next-token",
        "which_margin",
        lambda problem: made_of(problem, NextToken, InsideOutside),
        _outside,
        _unprojected,
        _judge_outside,
        lambda asked: (separable(asked.reference),),
        "Conjecture: this optimiser turns to the maximum margin orthogonal to the fitted frequencies.",
    ),
    first_order,
    rate="inside 1/t, outside 1/log t",
)

_LARGEST = 1000  # entries of a weight, beyond which a linear program is too large


def _best(data: Data, norm: Norm) -> Solution:
    """The maximum margin in a norm, by a linear program where it is one."""
    exact = norm.name in ("l1", "linf") and math.prod(data.weight_shape) <= _LARGEST
    try:
        return max_margin(data) if norm.name == "l2" else (polyhedral_margin if exact else norm_margin)(data, norm)
    except PenchantError:
        max_margin(data)  # it has the proof where no weight separates
        raise


def _few_rivals(asked: Prediction[Solution]) -> tuple[Rival, ...]:
    """Where descent in the l2, l1 and linf norms would go, and the first gradient of the weight."""
    data, own = asked.setting.data, asked.reference.norm
    few = (L1(), Linf()) if math.prod(data.weight_shape) <= _LARGEST else ()
    others = {} if own in ("l2", "frobenius") else {(found := max_margin(data)).norm: found.weight}
    others |= polyhedral(data, *(norm for norm in few if norm.name != own))
    return rivals(asked.reference, {**others, "first gradient": first_gradient(asked.setting)})


def _elsewhere(name: str, paper: str, speaks_of: Callable[..., bool], conditions: Callable[..., tuple]) -> Family:
    """The margin in the norm of the steps on other data, judged by the norm; the singular value of a vector is its length."""
    shared = {"name": name, "paper": paper, "speaks_of": speaks_of, "conditions": conditions}

    def of(norm: Norm) -> Family:
        norm = L2() if isinstance(norm, Schatten) and speaks_of is not _of_tokens else norm
        own = f"Conjecture: this optimiser maximises the margin in the {norm.name} norm."
        reference = lambda setting, start: _best(setting.data, norm)
        return Family(**shared, reference=reference, rivals=_few_rivals, judge=judge_norm, conjecture=own, notes=_notes)

    return replace(of(L2()), of=lambda one: of(norm_of(one)), offers=lambda optimiser: norm_of(optimiser).name != "l2")


def _of_tokens(problem: Problem) -> bool:
    return made_of(problem, TokenSelection, Direct)


def _on_linear(theorem: Theorem) -> Theorem:
    """The same of linear data; plain normalised descent has a theorem of its own there."""
    covers = lambda optimiser: theorem.covers(optimiser) and not isinstance(getattr(optimiser, "geometry", 0), L2)
    cited = f"{theorem.citation}; {GUNASEKAR}"
    return replace(theorem, name=f"linear-{theorem.name}", citation=cited, family=_LINEAR, covers=covers)


def _offered(family: Family) -> Theorem:
    """A conjecture about steps that are steepest in another norm than l2."""
    return replace(family.answer(False), statement=_STEEPEST, covers=family.offers)


_STEEPEST = "Conjecture: steps that are steepest in a norm end at the maximum margin in that norm."
_LINEAR = _elsewhere("steepest-linear", "linear_models", lambda one: made_of(one, Classification, Direct), _conditions)
_TOKENS = lambda asked: (conditions.feasible(asked.reference), conditions.unique_optimal(asked.setting.data))
_OFFERED = (
    _elsewhere("steepest-layers", "deep_linear", is_deep, lambda asked: (separable(asked.reference),)),
    _elsewhere("steepest-tokens", "self_attention_rates", _of_tokens, _TOKENS),
)
_LINEARS = tuple(map(_on_linear, (STEEPEST, MOMENTUM, ADAM, EPSILON)))
THEOREMS = (NEXT_TOKEN, STEEPEST, MOMENTUM, ADAM, EPSILON, GRADIENT, *_LINEARS, *map(_offered, _OFFERED))
