"""The desk of the user's own data: classification, attention with a fixed decoder, deep linear networks, regression.

A run says of itself beyond its numbers what would decide it, and what happens where no weight separates. Only what a prediction needs is imported
before there is one.
"""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import PyTree

from ..errors import (
    INFEASIBLE,
    UNDECIDED,
    ArgumentError,
    FiniteLimit,
    NotSeparableError,
    PenchantError,
    UnknownLimit,
)
from ..flow.flow import is_flow
from ..optimisers.base import kept_within, turns_at
from ..optimisers.table import LAYER_RULES
from ..papers import predict as predicted
from ..references.base import Solution
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.parametrisations import Direct, Gram, trains_weight
from ..theory.base import Prediction, made_of
from ..theory.describe import describe, lines, proof_lines
from ..theory.judge import MARGIN, excess
from ..training.asked import Trainer, budget, longest_feature, optimiser_of, watched
from ..training.events import MarginAbove, Stalled, limits
from ..training.status import Status
from ..verdict import Outcome
from .options import resumed, setting_and_start
from .own import Predicted, Trained, describe_steps, made
from .progress import progress, sparse
from .proofs import proving, save_proof

if TYPE_CHECKING:
    from ..case import Case

# They go round a minimum that is attained.
_CIRCLING = ("ngd", "momentum", "accelerated", "sign", "signum", "muon", "steepest")
_STOPPED = 0.1  # power of 1/margin: a tenfold margin leaves 0.8 of the excess
_CLOSE = 1e-8  # 1 - corr that a run must reach: below, rounding and time are against it


def _predict(setting: Setting, optimiser: Trainer, start: PyTree) -> Prediction:
    """The prediction, or the proof that there is none with what training does instead."""
    try:
        return predicted(setting, optimiser, start)
    except NotSeparableError as error:
        error.args = (f"{error}{instead(setting)}",)
        raise


def predict(options: Namespace) -> Predicted:
    setting, start = setting_and_start(options)
    optimiser = optimiser_of(options, setting, start)
    with proving(options) as calls:
        prediction = _predict(setting, optimiser, start)
    content = describe(prediction, start)
    content["optimiser"] = describe_steps(options, optimiser)
    content |= save_proof(prediction.reference, calls, options)
    found = prediction.reference
    return Predicted(content, lines(content), {"solution": found.weight, "dual": found.dual})


class _Foreseen(NamedTuple):
    """The prediction and its proof, or why there is none and whether the data may still be separable."""

    prediction: Prediction | None
    why: str = ""
    separable: bool = True
    proof: Mapping = MappingProxyType({})


def _foresee(options: Namespace, setting: Setting, optimiser: Trainer, start: PyTree) -> _Foreseen:
    try:
        with proving(options) as calls:
            prediction = _predict(setting, optimiser, start)
        return _Foreseen(prediction, proof=save_proof(prediction.reference, calls, options))
    except (FiniteLimit, *UNDECIDED, UnknownLimit) as error:
        return _Foreseen(None, f"no prediction: {error}")
    except INFEASIBLE as error:
        why = f"no prediction: {error}"
    if options.margin is not None:
        wanted, fix = "one that a run can reach", f"leave it out, or name a time: --log-time 20\n  Why: {why}"
        raise ArgumentError("--margin", "penchant train", wanted, f"{options.margin:g}, beyond any run,", fix)
    return _Foreseen(None, why, separable=False)


def train(options: Namespace) -> Trained:
    from ..case import make_case
    from ..report.panels import PANELS
    from ..training.train import train as run_training

    setting, start = setting_and_start(options)
    optimiser = optimiser_of(options, setting, start)
    steps, until = budget(options, optimiser, setting)
    memory = resumed(options, setting, optimiser, start)
    found = _foresee(options, setting, optimiser, start)
    if isinstance(until, MarginAbove):
        if found.prediction is None and options.margin is None:
            steps, until = 1000, None
        elif hasattr(setting.data, "tokens") and options.optimiser == "flow":
            until = (until, Stalled())
    optimiser, until = watched(options, setting, optimiser, until, found.prediction is not None)
    with progress() as show:
        show(f"training with {describe_steps(options, optimiser)}")
        loss = setting.name_of_loss(found.prediction is not None)
        level = float(limits(until).margin) if is_flow(optimiser) else np.inf
        told = sparse(show, loss, not setting.data.attained, level)
        run = run_training(setting, optimiser, start, steps=steps, until=until, progress=told, memory=memory)
    words = {"optimiser": optimiser, "made": made(options, optimiser), "separable": found.separable}
    case = make_case(found.prediction, run, found.why, **words)
    decide = would_decide(case, options)
    text = [*proof_lines(found.proof), *([f"to decide  {decide}"] if decide else [])]
    paper = "" if found.prediction is None else found.prediction.theorem.paper
    return Trained(case, PANELS, lambda path: _save(case, path), paper, {"would_decide": decide, **found.proof}, text)


def _save(case: "Case", path: str) -> Path:
    """The run with the bounds it certifies at every record, where there is a program to bound, and the direction of the reached tokens."""
    from ..theory.judge import certified

    reached = None if case.limit is None or case.limit.reached is None else case.limit.reached.solution
    extra = None if reached is None else {"limit": reached.weight}
    found = case.prediction.reference if case.prediction else None
    return (certified(case.run, case.norm, found) if isinstance(found, Solution) else case.run).save(path, extra)


def would_decide(case: "Case", options: Namespace) -> str:
    """The line to type where a verdict is undecided, or why no run decides; empty where one has decided or the status says what to do."""
    prediction, run = case.prediction, case.run
    if case.verdict.outcome is not Outcome.undecided or prediction is None:
        return ""
    if run.status not in (Status.out_of_steps, Status.reached_target):
        return f"not more steps: the run has ended as {run.status.name}"
    if run.setting.data.attained and options.optimiser in _CIRCLING:
        return f"not more steps: those of {options.optimiser} do not shrink with the gradient: --optimiser flow, or gd"
    if not isinstance(prediction.reference, Solution):
        more = f"more steps: --steps {10 * max(1, int(run.steps[-1]))}"
        return more if options.optimiser == "flow" else f"--optimiser flow, which ends by itself, or {more}"
    if not prediction.reference.certified:
        return "no run: the reference itself is not known well enough"
    if prediction.separation / 10 < _CLOSE:
        nearest = min(prediction.rivals, key=lambda rival: rival.separation)
        return f"hardly a run: the rival '{nearest.name}' is at 1 - corr {nearest.separation:.1g} only"
    return _larger_margin(case, prediction, options)


def _larger_margin(case: "Case", prediction: Prediction, options: Namespace) -> str:
    """The margin is short of its maximum by the share H(p) / margin, with p the dual weights: what is left at margin M is known beforehand."""
    shares = prediction.reference.dual / prediction.reference.dual.sum()
    entropy = -float((shares * np.log(np.where(shares > 0, shares, 1.0))).sum())
    margin, steps = float(case.run.smallest_margin()[-1]), int(case.run.steps[-1])
    target, bound, found = max(20.0, 2 * entropy / MARGIN), case.verdict.predicted, case.verdict.measured
    if prediction.reference.norm not in ("l2", "frobenius") and isinstance(bound, float) and isinstance(found, float):
        if (pace := _pace(case, prediction, found)) < _STOPPED:
            return f"not a longer run: the norm has all but stopped falling, {found:.3g} above its minimum: another start (--seed, --scale) or --widths"
        target = max(target, margin * 1.5 * (found / bound) ** (1 / pace))
    state = f"smallest margin {margin:.3g}" + (", the data are not separated yet" if margin <= 0 else "")
    if (most := prediction.reference.margin * kept_within(prediction.optimiser)) < target:
        return f"a smaller --weight-decay ({state}; wanted: about {target:.0f}): this one keeps the margin below some {most:.3g}"
    longer = f"--margin {max(target, 10 * margin):.0f}"
    if options.optimiser == "flow":
        return f"a longer flow ({state}): {longer}"
    if options.optimiser in ("gd", *LAYER_RULES) or target >= turns_at(prediction.optimiser):
        pace = f"steps of a constant size gain margin like log t, and {target:.0f} takes about e^{target:.0f} of them"
        return f"--optimiser flow {longer}, or --optimiser ngd{_steps(prediction, target)} ({state}; {pace})"
    slower = 1 / max(0.2, 1 - (options.step_decay or 0))  # margins of the others grow like the sum of their steps
    more = steps * (max(2.0, target / margin) if margin > 0 else 10.0) ** slower
    return f"more steps ({state}; wanted: about {target:.0f}): --steps {float(f'{more:.1g}'):.0f}"


def _pace(case: "Case", prediction: Prediction, found: float) -> float:
    """The power of 1/margin that the excess of the norm has fallen like over the last tenfold of the margin; 1 where there is none yet."""
    margins = case.run.smallest_margin()
    early = np.flatnonzero((margins > 0) & (margins <= margins[-1] / 10))
    if not len(early):
        return 1.0
    before = excess(prediction.setting.data, case.run.weight(int(early[-1])), prediction.reference)
    return float(np.log(before / found) / np.log(margins[-1] / margins[early[-1]]))


def _steps(prediction: Prediction, target: float) -> str:
    """How many normalised steps of the default length reach the margin; known beforehand where the weight itself is trained."""
    if not trains_weight(prediction.setting):
        return ""
    needed = target * prediction.reference.value * 2 * longest_feature(prediction.setting.data)
    return f" --steps {float(f'{max(needed, 1000.0):.1g}'):.0f}"


def instead(setting: Setting) -> str:
    """What training a linear model does on data that no direction separates (Ji, Telgarsky 2019)."""
    if not made_of(setting, Classification, Direct, Gram):
        return ""
    from ..references.logistic import logistic_limit

    signed = np.asarray(setting.data.signed)
    try:
        found = logistic_limit(signed)
    except PenchantError as error:
        return f"\n  What training does instead could not be computed: {error}"
    apart, rest = int(found.separated.sum()), int((~found.separated).sum())
    loss = float(np.logaddexp(0, -signed[~found.separated] @ found.finite).sum()) / setting.samples
    known = f" at |v| = {np.linalg.norm(found.finite):.4g}, loss {loss:.6g}" if setting.loss.kind == "logistic" else ""
    if not apart:
        return f"\n  Training instead converges to the minimum v of the loss{known}: no direction helps a sample without hurting another."
    pace = f"{apart} of {apart + rest} samples are separated by a direction u that hurts no other one"
    return (
        f"\n  Training instead goes on as v + u log t: {pace} (margin {1 / np.linalg.norm(found.direction):.4g} per unit of norm, "
        f"orthogonal to the others), and v is the minimum of the loss of the other {rest}{known}."
    )
