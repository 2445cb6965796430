"""Separately trained keys and queries: theorems for the user's own data."""

from contextlib import suppress
from typing import Any

import numpy as np

from ...errors import InfeasibleError, UndecidedMargin
from ...flow.flow import GradientFlow
from ...problem import read_once
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.nuclear_margin import nuclear_margin
from ...references.polyhedral_margin import diagonal_margin
from ...settings.base import Setting
from ...settings.diagonal import DiagonalTokens
from ...settings.factored import Hadamard, KeyQuery, Pair, PlusMinus
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory import token_hypotheses as conditions
from ...theory.base import Hypothesis, Prediction, Theorem, doubted, moved_away, rivals
from ...theory.families.linear import covered
from ...theory.least_norm import _CLOSE, judge_value
from ...theory.selections import detect_limit
from ...theory.uniqueness import certified_rank, dual_spectrum, uniqueness
from ...training.status import Status
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict
from . import hypotheses as assumptions

SHEEN = "Sheen, Chen, Wang, Zhou, Implicit regularization of gradient flow on one-layer softmax attention, 2024, arXiv 2403.08699"


class _ValueTheorem(Theorem):
    """Judged by the norm at margin 1, not by the direction: the minimiser need not be unique, its norm is."""

    paper = "kq_attention"
    rate = "none proved; observed certified gap ~ 1/log(margin) with accumulated multipliers"

    def judge(self, prediction: Prediction, run: Trajectory) -> Verdict:
        verdict = moved_away(judge_value(prediction, run.weight(), prediction.reference.measure), run)
        if not np.isfinite(verdict.measured):
            verdict = _without_margin(run, verdict)
        known = {found.name for found in prediction.hypotheses if found.holds is False}
        asked = self.at_start(run.setting, None, run.at(0))
        failed = [found.name for found in asked if not found.holds and found.name not in known]
        start = f"the start of this run fails {', '.join(failed)}" if failed else ""
        parts = (verdict.detail, prediction.remarks, start, *self.of_run(run), assumptions.moved(run))
        detail = "; ".join(part for part in parts if part)
        return Verdict(verdict.outcome, verdict.inequality, verdict.predicted, verdict.measured, detail)

    def of_run(self, run: Trajectory) -> tuple[str, ...]:
        """What else the reader of a verdict should know of this run."""
        return ()


def _without_margin(run: Trajectory, verdict: Verdict) -> Verdict:
    """A run that does not separate its tokens is refuted once it has settled on wrong ones, and undecided before."""
    limit, margin = detect_limit(run), float(run.smallest_margin()[-1])
    stuck = run.status is Status.stalled and limit.reached is not None and limit.reached.locally_optimal
    if not (limit.kind == "local" and (stuck or limit.at_local_direction)):
        stalled = f"the run has stalled with a smallest margin of {margin:.6g}" * (run.status is Status.stalled)
        return doubted(verdict, stalled)
    text = f"smallest margin = {margin:.6g} <= 0, with attention settled on tokens that are not optimal"
    return Verdict(Outcome.refuted, text, 0.0, margin, limit.describe_local())


def _matrix_rivals(setting: Setting, reference: Solution) -> tuple:
    data: TokenSelection = setting.data
    first = read_once(Setting(data, Direct(), setting.loss), Direct().zeros(data)).slope
    others = {"frobenius": max_margin(data).weight, "first gradient": -np.asarray(first)}
    if len(set(data.weight_shape)) == 1:
        with suppress(InfeasibleError, UndecidedMargin):  # where no diagonal matrix separates, there is one rival less
            others["l1, diagonal"] = np.diag(diagonal_margin(DiagonalTokens(data)).weight)
    return rivals(reference, others)


def _matrix_conditions(setting: Setting, reference: Solution) -> tuple[Hypothesis, ...]:
    data: TokenSelection = setting.data
    width = setting.parametrisation.columns(data)
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
        assumptions.wide_enough(width, data.weight_shape, certified_rank(data, reference)),
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


class KeyQueryFlow(_ValueTheorem):
    """Theorem 5.1: gradient flow on (K, Q), proved for aligned data and starts."""

    name = "theorem-5.1"
    statement = (
        "Gradient flow on K and Q from a small start minimises the nuclear norm of W = K Q' subject to margins >= 1."
    )
    citation = f"{SHEEN}, Theorem 5.1"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return isinstance(setting.parametrisation, KeyQuery) and isinstance(optimiser, GradientFlow)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return _matrix_conditions(setting, reference)

    def at_start(self, setting: Setting, optimiser: Any, start: Any) -> tuple[Hypothesis, ...]:
        if not isinstance(setting.parametrisation, KeyQuery):  # a rival's run may be put before this theorem
            return ()
        data: TokenSelection = setting.data
        return (assumptions.initial_loss(setting, data, start), assumptions.aligned_start(data, start))

    def of_run(self, run: Trajectory) -> tuple[str, ...]:
        """Where the width limits the rank, whether the run could go on in a wider one: its dual matrix says so."""
        data, parametrisation = run.setting.data, run.setting.parametrisation
        if not isinstance(parametrisation, KeyQuery) or parametrisation.columns(data) >= min(data.weight_shape):
            return ()
        sizes = dual_spectrum(data, run.weight(), run.weights[-1])
        if sizes is None:
            return ()
        stuck = (
            "above 1, so more columns would lower the norm"
            if sizes[0] > 1 + _CLOSE
            else "none above 1, as at the optimum"
        )
        shown = ", ".join(f"{size:.4g}" for size in sizes[:4])
        return (f"largest singular values of the run's dual matrix {shown}: {stuck}",)

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        reference = nuclear_margin(setting.data)
        hypotheses = self.hypotheses(setting, optimiser, reference)
        others, notes = _matrix_rivals(setting, reference), _matrix_notes(setting.data, reference)
        return Prediction(self, setting, hypotheses, reference, others, self.rate, notes)


class KeyQueryConjecture(KeyQueryFlow):
    """No theorem covers the optimiser; the nuclear norm is offered as a conjecture."""

    name = "key-query-conjecture"
    statement = "Conjecture: this optimiser on K and Q converges to the minimum nuclear norm subject to margins >= 1."
    citation = "none"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return isinstance(setting.parametrisation, KeyQuery)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return (*_matrix_conditions(setting, reference), covered(type(optimiser).__name__))


class DiagonalFlow(_ValueTheorem):
    """Theorem 4.1: gradient flow on the diagonals of K and Q."""

    name = "theorem-4.1"
    statement = "Gradient flow on diagonal K and Q minimises the l1 norm of the diagonal of W subject to margins >= 1."
    citation = f"{SHEEN}, Theorem 4.1"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return (
            isinstance(setting.parametrisation, Hadamard | PlusMinus)
            and isinstance(setting.data, DiagonalTokens)
            and isinstance(optimiser, GradientFlow)
        )

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        tokens = setting.data.tokens
        return (
            conditions.feasible(reference),
            assumptions.exponential_loss(setting.loss),
            conditions.unique_optimal(tokens),
            conditions.equal_scores(tokens),
            assumptions.initial_loss(setting, tokens, setting.start()),
            assumptions.limit_exists(),
        )

    def at_start(self, setting: Setting, optimiser: Any, start: Any) -> tuple[Hypothesis, ...]:
        turned = Hadamard().twin(start) if isinstance(setting.parametrisation, PlusMinus) else start
        found = (assumptions.one_sided_start(turned),) if isinstance(turned, Pair) else ()
        return (assumptions.initial_loss(setting, setting.data.tokens, start), *found)

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        reference = diagonal_margin(setting.data)
        first = read_once(Setting(setting.data, Direct(), setting.loss), Direct().zeros(setting.data)).slope
        others = {"l2": max_margin(setting.data).weight, "first gradient": -np.asarray(first)}
        hypotheses = self.hypotheses(setting, optimiser, reference)
        face = uniqueness(setting.data, reference)
        decay = f"off its support |w|/margin falls like margin^-{face.slack:.4g}"
        if face.slack > 0:
            decay += f", by half whenever the margin grows by a factor of {2 ** min(1 / face.slack, 1000.0):.3g}"
        notes = (f"the l1 solution is {face}", decay)
        return Prediction(self, setting, hypotheses, reference, rivals(reference, others), self.rate, notes)


class DiagonalConjecture(DiagonalFlow):
    """No theorem covers the optimiser; the l1 norm is offered as a conjecture."""

    name = "diagonal-conjecture"
    statement = (
        "Conjecture: this optimiser on diagonal K and Q converges to the minimum l1 norm of the diagonal of W subject "
        "to margins >= 1."
    )
    citation = "none"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return isinstance(setting.parametrisation, Hadamard | PlusMinus) and isinstance(setting.data, DiagonalTokens)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return (*super().hypotheses(setting, optimiser, reference), covered(type(optimiser).__name__))


THEOREMS = (KeyQueryFlow(), KeyQueryConjecture(), DiagonalFlow(), DiagonalConjecture())
