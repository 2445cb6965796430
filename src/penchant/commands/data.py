"""The desk of the user's own data: classification, attention with a fixed decoder, deep linear networks, regression."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..case import Case, make_case
from ..errors import DataFileError, InfeasibleError, NotSeparableError, UndecidedMargin
from ..papers import predict as predicted
from ..references.base import Solution
from ..report.panels import PANELS
from ..report.panels.run import name_of_loss
from ..settings.base import Setting
from ..settings.diagonal import DiagonalTokens
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection
from ..theory.base import Prediction
from ..theory.certificates import certified
from ..theory.describe import describe, lines, proof_lines
from ..training.events import MarginAbove, Stalled
from ..training.train import train as run_training
from .advice import describe_steps, instead, would_decide
from .exact import proving, save_proof
from .options import budget, optimiser_of, setting_and_start, warn_of_lost_memory, watched
from .own import Predicted, Trained, made
from .progress import progress, sparse


def _predict(setting: Setting, optimiser: Any, start: Any) -> Prediction:
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
    proof: Mapping[str, Any] = MappingProxyType({})


def _foresee(options: Namespace, setting: Setting, optimiser: Any, start: Any) -> _Foreseen:
    try:
        with proving(options) as calls:
            prediction = _predict(setting, optimiser, start)
        return _Foreseen(prediction, proof=save_proof(prediction.reference, calls, options))
    except (InfeasibleError, UndecidedMargin) as error:
        found = _Foreseen(None, f"no prediction: {error}", isinstance(error, UndecidedMargin))
    if not found.separable and options.margin is not None:
        raise DataFileError(f"No run can reach a smallest margin of {options.margin:g}: {found.why}")
    return found


def train(options: Namespace) -> Trained:
    setting, start = setting_and_start(options)
    optimiser = optimiser_of(options, setting, start)
    steps, until = budget(options, optimiser, setting)
    warn_of_lost_memory(options)
    found = _foresee(options, setting, optimiser, start)
    if found.prediction is None and options.margin is None and isinstance(until, MarginAbove):
        steps, until = 1000, None
    if isinstance(until, MarginAbove) and isinstance(setting.data, TokenSelection | DiagonalTokens):
        until = (until, Stalled()) if options.optimiser == "flow" else until
    optimiser, until = watched(options, setting, optimiser, until, found.prediction is not None)
    with progress(1) as show:
        show(f"training with {describe_steps(options, optimiser)}")
        loss = name_of_loss(setting, found.prediction is not None)
        told = sparse(show, loss, not isinstance(setting.data, Regression))
        run = run_training(setting, optimiser, start, steps=steps, until=until, progress=told)
    words = {"optimiser": optimiser, "made": made(options, optimiser), "separable": found.separable}
    case = make_case(found.prediction, run, found.why, **words)
    decide = would_decide(case, options)
    text = [*proof_lines(found.proof), *([f"to decide  {decide}"] if decide else [])]
    paper = "" if found.prediction is None else found.prediction.theorem.paper
    return Trained(case, PANELS, lambda path: _save(case, path), paper, {"would_decide": decide, **found.proof}, text)


def _save(case: Case, path: str) -> Path:
    """The run with the bounds it certifies at every record, where there is a program to bound, and the direction of the reached tokens."""
    reached = None if case.limit is None or case.limit.reached is None else case.limit.reached.solution
    extra = None if reached is None else {"limit": reached.weight}
    found = case.prediction.reference if case.prediction else None
    return (certified(case.run, case.norm, found) if isinstance(found, Solution) else case.run).save(path, extra)
