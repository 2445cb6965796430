"""Token selection with direct weights and a fixed decoder: theorems for the user's own data."""

from collections.abc import Callable

import equinox as eqx
import numpy as np

from ...lab import Claim, claim
from ...optimisers.step_rules import Constant, Normalised, Polyak
from ...references.base import Solution
from ...theory import token_hypotheses as conditions
from ...theory.base import Hypothesis, Prediction, Theorem, at_least_zero
from ...theory.families.linear import descends, is_flow, uncapped
from ...theory.families.tokens import TOKEN_SELECTION, shared
from ...verdict import Outcome

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
THEOREMS = (NORMALISED, DESCENT, POLYAK, CAPPED)
