"""Separately trained keys and queries: theorems for the user's own data.

Gradient flow on the factors minimises the nuclear norm of W, on diagonals the l1 norm. Steps of equal size in every entry of the factors (sign
descent, Adam) are a conjecture of their own: with entries of size at most s the products a_j b_j of `Hadamard` are at most s^2, so the
l_inf norm is bounded, and K Q^T of any width is a sum of sign products with coefficients of sum width s^2: their norm takes the place of the nuclear one.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import cast

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from ...errors import NotSeparableError, PenchantError, UndecidedMargin
from ...norms import Linf
from ...problem import Problem
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.linear_programs import LARGEST, diagonal_margin, polyhedral_margin, sign_product_margin
from ...references.norm_margin import nuclear_margin
from ...settings.base import Setting
from ...settings.factored import DiagonalTokens, Factors, Hadamard, KeyQuery, PlusMinus
from ...settings.tokens import TokenSelection
from ...theory import selections as conditions
from ...theory.base import Family, Hypothesis, Prediction, Rival, Theorem, covered, made_of, norm_of, rivals
from ...theory.families.linear import first_gradient, is_flow
from ...theory.judge import CLOSE, doubted, explained, judge_norm
from ...theory.selections import token_limit
from ...theory.uniqueness import Uniqueness, certified_rank, dual_spectrum, uniqueness
from ...training.status import Status
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict
from . import hypotheses as assumptions

SHEEN = "Sheen, Chen, Wang, Zhou, Implicit regularization of gradient flow on one-layer softmax attention, 2024, arXiv 2403.08699"
_PAPER = "kq_attention"
_PACE = "none proved; observed certified gap ~ 1/log(margin) with accumulated multipliers"
_SIGNS = "none proved; Adam only with a memory 1/(1 - b2) short against the time in which the loss falls by a factor"


def _judge(prediction: Prediction[Solution], run: Trajectory) -> Verdict:
    """By the norm at margin 1, not by the direction: the minimiser need not be unique, its norm is."""
    family, verdict = prediction.theorem.family, judge_norm(prediction, run)
    if not np.isfinite(cast(float, verdict.measured)):
        verdict = _without_margin(run, prediction, verdict)
    asked = family.at_start(replace(prediction, setting=run.setting), run.at(0))
    known = {found.name for found in prediction.hypotheses if found.holds is False}
    failed = [found.name for found in asked if not found.holds and found.name not in known]
    start = f"the start of this run fails {', '.join(failed)}" if failed else ""
    return explained(verdict, start, _narrow(run), assumptions.moved(run))


def _without_margin(run: Trajectory, prediction: Prediction[Solution], verdict: Verdict) -> Verdict:
    """A run that does not separate its tokens is refuted once it has settled on wrong ones, and undecided before."""
    limit, margin = token_limit(run), float(run.smallest_margin()[-1])
    stuck = run.status is Status.stalled and limit.reached is not None and limit.reached.locally_optimal
    if not (limit.kind == "local" and (stuck or limit.at_local_direction)):
        stalled = f"the run has stalled with a smallest margin of {margin:.6g}" * (run.status is Status.stalled)
        return doubted(verdict, stalled)
    text = f"smallest margin = {margin:.6g} <= 0, with attention settled on tokens that are not optimal"
    found = Verdict(Outcome.refuted, text, 0.0, margin, limit.describe_local())
    return explained(found, prediction.remarks)


def _narrow(run: Trajectory) -> str:
    """Where the width limits the rank, whether the run could go on in a wider one: its dual matrix says so."""
    setting, data = run.setting, run.setting.data
    if not is_key_query(setting) or setting.parametrisation.columns(data) >= min(data.weight_shape):
        return ""
    sizes = dual_spectrum(data, run.weight(), run.weights[-1])
    if sizes is None:
        return ""
    wider = sizes[0] > 1 + CLOSE
    stuck = "above 1, so more columns would lower the norm" if wider else "none above 1, as at the optimum"
    return f"largest singular values of the run's dual matrix {', '.join(f'{size:.4g}' for size in sizes[:4])}: {stuck}"


def is_key_query(problem: Problem) -> bool:
    return made_of(problem, TokenSelection, KeyQuery)


def is_diagonal(problem: Problem) -> bool:
    return made_of(problem, DiagonalTokens, Hadamard, PlusMinus)


def _matrix_rivals(asked: Prediction[Solution]) -> tuple[Rival, ...]:
    data = asked.setting.data
    others = {"frobenius": max_margin(data).weight, "first gradient": first_gradient(asked.setting)}
    if len(set(data.weight_shape)) == 1:
        with suppress(
            NotSeparableError, UndecidedMargin
        ):  # where no diagonal matrix separates, there is one rival less
            others["l1, diagonal"] = np.diag(diagonal_margin(DiagonalTokens(data)).weight)
    return rivals(asked.reference, others)


def _matrix_conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    setting, data, reference = asked.setting, asked.setting.data, asked.reference
    return (
        conditions.feasible(reference),
        assumptions.exponential_loss(setting.loss),
        conditions.unique_optimal(data),
        conditions.equal_scores(data),
        assumptions.pairwise_scores(data),
        assumptions.initial_loss(setting, data, setting.start()),
        assumptions.orthogonal_optimal(data),
        assumptions.parallel_queries(data),
        assumptions.paired_tokens(data),
        assumptions.wide_enough(
            setting.parametrisation.columns(data), data.weight_shape, certified_rank(data, reference)
        ),
        assumptions.limit_exists(),
    )


def _matrix_notes(data: TokenSelection, reference: Solution) -> tuple[str, ...]:
    """Uniqueness, and the closed form of the optimum where Assumption 4 gives one."""
    notes = (f"the nuclear solution is {uniqueness(data, reference)}",)
    if not reference.certified:
        notes = (f"the reference is not certified: relative gap {reference.bracket.gap:.1e}", *notes)
    if not (assumptions.orthogonal_optimal(data).holds and assumptions.paired_tokens(data).holds):
        return notes
    best = np.asarray(data.tokens)[np.arange(len(data.optimal)), np.asarray(data.optimal)]
    lengths = np.linalg.norm(best, axis=1) * np.linalg.norm(np.asarray(data.queries), axis=1)
    shares = np.array([max(found.shares) for found in assumptions.pairings(data)])
    value = float((1 / ((1 - shares) * lengths)).sum())
    shown = ", ".join(f"{share:.4g}" for share in shares)
    return (*notes, f"Assumption 4 gives the optimum as sum 1/((1 - c)|x||q|) = {value:.10g}, with c = {shown}")


def _matrix_start(prediction: Prediction[Solution], start: Factors) -> tuple[Hypothesis, ...]:
    setting, data = prediction.setting, prediction.setting.data
    if not is_key_query(setting):  # a rival's run may be put before this theorem
        return ()
    return assumptions.initial_loss(setting, data, start), assumptions.aligned_start(data, start)


def _diagonal_conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    setting, tokens = asked.setting, asked.setting.data.tokens
    return (
        conditions.feasible(asked.reference),
        assumptions.exponential_loss(setting.loss),
        conditions.unique_optimal(tokens),
        conditions.equal_scores(tokens),
        assumptions.initial_loss(setting, tokens, setting.start()),
        assumptions.limit_exists(),
    )


def _diagonal_start(prediction: Prediction[Solution], start: PyTree) -> tuple[Hypothesis, ...]:
    setting = prediction.setting
    turned = Hadamard().twin(start) if made_of(setting, DiagonalTokens, PlusMinus) else start
    found = (assumptions.one_sided_start(turned),) if hasattr(turned, "first") else ()
    return (assumptions.initial_loss(setting, setting.data.tokens, start), *found)


def _diagonal_notes(asked: Prediction[Solution]) -> tuple[str, ...]:
    face = cast(Uniqueness, uniqueness(asked.setting.data, asked.reference))  # of a margin
    decay = f"off its support |w|/margin falls like margin^-{face.slack:.4g}"
    if face.slack > 0:
        decay += f", by half whenever the margin grows by a factor of {2 ** min(1 / face.slack, 1000.0):.3g}"
    return f"the l1 solution is {face}", decay


def _others(asked: Prediction[Solution], **programs: Callable[..., Solution]) -> tuple[Rival, ...]:
    """The solutions of other programs on the same data, and the first gradient."""
    found = {name: solve(asked.setting.data).weight for name, solve in programs.items()}
    return rivals(asked.reference, {**found, "first gradient": first_gradient(asked.setting)})


KEY_QUERY = Family(
    "key-query",
    _PAPER,
    is_key_query,
    lambda setting, start: nuclear_margin(setting.data),
    _matrix_rivals,
    _judge,
    _matrix_conditions,
    "Conjecture: this optimiser on K and Q converges to the minimum nuclear norm subject to margins >= 1.",
    pace=_PACE,
    notes=lambda asked: _matrix_notes(asked.setting.data, asked.reference),
    at_start=_matrix_start,
)
DIAGONAL = Family(
    "diagonal",
    _PAPER,
    is_diagonal,
    lambda setting, start: diagonal_margin(setting.data),
    lambda asked: _others(asked, l2=max_margin),
    _judge,
    _diagonal_conditions,
    "Conjecture: this optimiser on diagonal K and Q converges to the minimum l1 norm of the diagonal of W subject "
    "to margins >= 1.",
    pace=_PACE,
    notes=_diagonal_notes,
    at_start=_diagonal_start,
)


def _sign_conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    tokens = asked.setting.data.tokens if is_diagonal(asked.setting) else asked.setting.data
    return (
        conditions.feasible(asked.reference),
        assumptions.exponential_loss(asked.setting.loss),
        conditions.unique_optimal(tokens),
        assumptions.limit_exists(),
        covered(type(asked.optimiser).__name__),
    )


def _linf(setting: Setting, start: None) -> Solution:
    try:
        return polyhedral_margin(setting.data, Linf())
    except PenchantError:
        diagonal_margin(setting.data)  # it has the proof where no diagonal separates
        raise


SIGN_PRODUCTS = Family(
    "sign-key-query",
    _PAPER,
    lambda problem: is_key_query(problem) and min(problem.data.weight_shape) <= LARGEST,
    lambda setting, start: sign_product_margin(setting.data),
    lambda asked: _others(asked, nuclear=nuclear_margin, frobenius=max_margin),
    _judge,
    _sign_conditions,
)
SIGN_DIAGONAL = Family(
    "sign-diagonal",
    _PAPER,
    is_diagonal,
    _linf,
    lambda asked: _others(asked, l1=diagonal_margin, l2=max_margin),
    _judge,
    _sign_conditions,
)


def _signs(optimiser: eqx.Module) -> bool:
    """Whether steps have the same size in every entry, to the end."""
    return norm_of(optimiser) == Linf()


THEOREMS = (
    Theorem(
        "theorem-5.1",
        "Gradient flow on K and Q from a small start minimises the nuclear norm of W = K Q' subject to margins >= 1.",
        f"{SHEEN}, Theorem 5.1",
        KEY_QUERY,
        is_flow,
        rate=_PACE,
    ),
    Theorem(
        "theorem-4.1",
        "Gradient flow on diagonal K and Q minimises the l1 norm of the diagonal of W subject to margins >= 1.",
        f"{SHEEN}, Theorem 4.1",
        DIAGONAL,
        is_flow,
        rate=_PACE,
    ),
    Theorem(
        "sign-key-query-conjecture",
        "Conjecture: steps of equal size in every entry of K and Q minimise the norm of sign products of W = K Q' subject to "
        "margins >= 1.",
        "none",
        SIGN_PRODUCTS,
        _signs,
        rate=_SIGNS,
    ),
    Theorem(
        "sign-diagonal-conjecture",
        "Conjecture: steps of equal size in every entry of diagonal K and Q minimise the linf norm of the diagonal of W "
        "subject to margins >= 1.",
        "none",
        SIGN_DIAGONAL,
        _signs,
        rate=_SIGNS,
    ),
)
