"""`predict` and `train` on the user's own data."""

import math
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataFileError, InfeasibleError, NotSeparableError, UndecidedMargin
from ..papers import predict as predicted
from ..references.base import Interpolant, Solution
from ..report.own import own_data
from ..report.own.regression import what_is_least, what_log_excess_is
from ..settings.base import Setting
from ..settings.diagonal import DiagonalTokens
from ..settings.parametrisations import Direct, Gram
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection
from ..theory.base import Prediction
from ..theory.certificates import KINDS, certified
from ..theory.interpolants import unresolved, what_is_selected
from ..theory.judge import judge
from ..theory.selections import Limit, detect_limit
from ..training.events import MarginAbove, Stalled
from ..training.train import train as run_training
from ..training.trajectory import Trajectory, write_npz
from ..verdict import Outcome, Verdict
from .advice import describe_steps, instead, would_decide
from .exact import print_proof, proving, save_proof
from .networks import (
    describe_accuracy,
    describe_descent,
    describe_network,
    print_accuracy,
    print_descent,
    print_network,
)
from .options import budget, check_writable, npz_name, optimiser_of, setting_and_start, warn_of_lost_memory, watched
from .pages import print_files, write_page
from .progress import progress, sparse


def describe_prediction(prediction: Prediction) -> dict:
    found = prediction.reference
    return {
        "theorem": prediction.theorem.name,
        "statement": prediction.theorem.statement,
        "citation": prediction.theorem.citation,
        "paper": prediction.theorem.paper,
        "holds": prediction.holds,
        "hypotheses": [vars(hypothesis) for hypothesis in prediction.hypotheses],
        "reference": {
            "norm": found.norm,
            **_bounds(found),
            **({"margin": found.margin} if isinstance(found, Solution) else _interpolant(prediction)),
        },
        "rate": prediction.rate,
        "notes": [*prediction.notes, *_queries(prediction.setting)],
        "rivals": [{"name": rival.name, "separation": rival.separation} for rival in prediction.rivals],
    }


def _bounds(found: Any) -> dict:
    """The certified value; none where an interpolant is not resolved, with the reason."""
    if isinstance(found, Interpolant) and not found.certified:
        return {"value": None, "lower": None, "upper": None, "reason": unresolved(found)}
    return {"value": found.value, "lower": found.bracket.lower, "upper": found.bracket.upper}


def _queries(setting: Any) -> tuple[str, ...]:
    """A note where the queries are the default ones, which a reader of the data cannot see."""
    data = getattr(getattr(setting, "data", None), "tokens", None)
    data = data if isinstance(data, TokenSelection) else getattr(setting, "data", None)
    if not (isinstance(data, TokenSelection) and np.array_equal(data.queries, data.tokens[:, 0])):
        return ()
    return ("queries: the first token of each sample (the default; an array `queries` names others)",)


def describe_limit(limit: Limit) -> dict:
    """The tokens a run has settled on, their maximum-margin direction W^alpha, and the plateau of the loss there."""
    content: dict[str, Any] = {"limit": limit.kind, "tokens": list(limit.tokens), "reached": None, "plateau": None}
    found = limit.reached
    if found is not None:
        content["reached"] = {
            "locally_optimal": found.locally_optimal,
            "slack": found.slack,
            "sample": found.sample,
            "norm": None if found.solution is None else found.solution.value,
            "margin": None if found.solution is None else found.solution.margin,
            "misalignment": limit.misalignment,
            "global_misalignment": limit.global_misalignment,
        }
    if limit.kind == "local":
        content["plateau"] = {"log_excess": limit.plateau, "distance": limit.plateau_distance}
    return content


def _print_limit(content: dict) -> None:
    found, plateau = content["reached"], content["plateau"]
    text = f"limit      {content['limit']}, most attended tokens {content['tokens']}"
    if found is not None:
        kind = "locally optimal" if found["locally_optimal"] else "not locally optimal"
        text += f" ({kind}); 1 - corr to their direction W^alpha {number(found['misalignment'])}, to W_mm {number(found['global_misalignment'])}"
    print(text)
    if plateau is not None:
        print(
            f"plateau    log excess tends to {plateau['log_excess']:.10g}, and is {plateau['distance']:.3g} away from it"
        )


def _interpolant(prediction: Prediction) -> dict:
    """What only the reference of a regression has; other references without a margin say at least whether they are resolved."""
    found = prediction.reference
    if not isinstance(found, Interpolant):
        return {"resolved": found.resolved}
    least = what_is_least(prediction.setting, prediction.start)
    return {"resolved": found.resolved, "least": least, "kind": what_is_selected(prediction.setting.data)}


def predict(options: Namespace) -> dict:
    """Theorem, hypotheses, certified reference and rivals for the user's data."""
    setting, start = setting_and_start(options)
    optimiser = optimiser_of(options, setting, start)
    with proving(options) as calls:
        prediction = _predict(setting, optimiser, start)
    content = describe_prediction(prediction) | describe_network(prediction, start)
    content["optimiser"] = describe_steps(options, optimiser)
    content |= save_proof(prediction.reference, calls, options)
    if options.save:
        content["saved"] = str(
            write_npz(
                npz_name(options.save),
                content,
                {"solution": prediction.reference.weight, "dual": prediction.reference.dual},
            )
        )
    return content


def _predict(setting: Setting, optimiser: Any, start: Any) -> Prediction:
    """The prediction, or the proof that there is none with what training does instead."""
    try:
        return predicted(setting, optimiser, start)
    except NotSeparableError as error:
        error.args = (f"{error}{instead(setting)}",)
        raise


def number(value: float | None) -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value + 0.0:.4g}"  # -0 is 0


def print_hypotheses(hypotheses: list[dict]) -> None:
    for hypothesis in hypotheses:
        mark = "  ?  " if hypothesis["holds"] is None else "holds" if hypothesis["holds"] else "FAILS"
        offender = f", worst: {hypothesis['offender']}" if hypothesis["offender"] else ""
        meaning = "; ".join(part for part in (hypothesis["detail"], hypothesis.get("exactness", "")) if part)
        print(f"hypothesis {mark}  {hypothesis['name']}: slack {number(hypothesis['slack'])}{offender} ({meaning})")


def print_prediction(content: dict) -> None:
    reference = content["reference"]
    print(f"theorem    {content['theorem']}: {content['statement']}\n           {content['citation']}")
    print_hypotheses(content["hypotheses"])
    classified = "margin" in reference
    what = (
        f"minimum {reference['norm']} norm with margins >= 1"
        if classified
        else f"{reference['kind']} of least {reference['least']}"
    )
    if reference["value"] is None:
        print(f"reference  {what}: not resolved, {reference['reason']}")
    else:
        print(
            f"reference  {what}: {reference['value']:.12g}, certified in [{reference['lower']:.15g}, {reference['upper']:.15g}]"
        )
    if classified:
        print(f"           maximum margin per unit of norm: {reference['margin']:.12g}")
    print_proof(content)
    print_network(content)
    if "optimiser" in content:
        print(f"optimiser  {content['optimiser']}")
    print(f"rate       {content['rate']}")
    for note in content["notes"]:
        print(f"note       {note}")
    for rival in content["rivals"]:
        measure = "1 - corr to the reference" if classified else "relative distance to the reference"
        print(f"rival      {rival['name']}: {measure} {rival['separation']:.4g}")
    if "saved" in content:
        print(f"saved      {content['saved']}")


def train(options: Namespace) -> dict:
    """Train on the user's data, judge the run against the prediction, and save what was asked for."""
    setting, start = setting_and_start(options)
    optimiser = optimiser_of(options, setting, start)
    steps, until = budget(options, optimiser, setting)
    warn_of_lost_memory(options)
    if options.save:
        check_writable(npz_name(options.save))
    if options.out:
        check_writable(str(Path(options.out) / "index.html"))
    try:
        with proving(options) as calls:
            prediction = _predict(setting, optimiser, start)
        proof = save_proof(prediction.reference, calls, options)
    except (InfeasibleError, UndecidedMargin) as error:
        prediction, reason, separable = None, f"no prediction: {error}", isinstance(error, UndecidedMargin)
        proof = {}
    else:
        reason, separable = "", True
    if not separable and options.margin is not None:
        raise DataFileError(f"No run can reach a smallest margin of {options.margin:g}: {reason}")
    if prediction is None and options.margin is None and isinstance(until, MarginAbove):
        steps, until = 1000, None
    if isinstance(until, MarginAbove) and isinstance(setting.data, TokenSelection | DiagonalTokens):
        until = (until, Stalled()) if options.optimiser == "flow" else until
    optimiser, until = watched(options, setting, optimiser, until, prediction is not None)
    with progress(1) as show:
        show(f"training with {describe_steps(options, optimiser)}")
        told = sparse(show, _name_of_loss(setting, prediction), not isinstance(setting.data, Regression))
        run = run_training(setting, optimiser, start, steps=steps, until=until, progress=told)
    verdict = judge(prediction, run) if prediction is not None else Verdict(Outcome.undecided, reason)
    found = own_data.own_brackets(run, prediction=prediction)
    limit = detect_limit(run) if isinstance(setting.data, TokenSelection | DiagonalTokens) else None
    content = {
        "status": run.status.name,
        "message": run.ending,
        "steps": int(run.steps[-1]),
        **_loss(run, prediction, separable),
        "optimiser": describe_steps(options, optimiser),
        "log_time": float(run.log_time[-1]),
        "first_capped": run.header.get("first_capped"),
        **own_data.outcome(run),
        **_norms(run, prediction),
        **describe_accuracy(run),
        "directions": own_data.directions(prediction, run),
        "bracket": {
            "lower": max(one.lower for one in found.values()),
            "upper": next(iter(found.values())).upper,
            "of": own_data.what_is_bounded(run),
            **{kind: one.lower for kind, one in found.items()},
        },
        **({} if limit is None else describe_limit(limit)),
        "verdict": verdict.outcome.value,
        "inequality": verdict.inequality,
        "detail": verdict.detail,
        "would_decide": would_decide(prediction, run, verdict, options),
        **describe_descent(run),
        "prediction": None
        if prediction is None
        else describe_prediction(prediction) | describe_network(prediction, start),
        **proof,
    }
    if options.save:
        reached = None if limit is None or limit.reached is None else limit.reached.solution
        extra = None if reached is None else {"limit": reached.weight}
        content["saved"] = str(_with_bounds(run, prediction).save(options.save, extra))
    if options.out and prediction is not None:
        paper = prediction.theorem.paper
        write_page(content, options, paper, lambda: own_data.page(prediction, run, verdict, optimiser))
    elif options.out:
        print("No page was written: without a prediction there is nothing to compare the run with.", file=sys.stderr)
    return content


def _name_of_loss(setting: Setting, prediction: Prediction | None) -> str:
    """What `log_excess` is during a run: an infimum that may be out of reach is not subtracted by name."""
    floor = setting.infimum()
    if prediction is not None or floor.attained:
        return "log(L - L*)"
    return "log L" if floor.value == 0 else f"log(L - {floor.value:.6g})"


def _loss(run: Trajectory, prediction: Prediction | None, separable: bool) -> dict:
    """The loss at the end, and above what it is counted: an infimum that the data keep out of reach is not that of the run."""
    floor, log_excess = run.setting.infimum(), float(run.log_excess[-1])
    if isinstance(run.setting.data, Regression):
        text = what_log_excess_is(run)
    elif prediction is not None or floor.attained:
        text = "log(L - L*)"
    elif separable:
        text = f"{_name_of_loss(run.setting, None)}: whether all margins can be positive is not known, and so is L*"
    elif floor.value == 0:
        text = "log L: no weight has only positive margins, so L* > 0 is not known"
    else:
        text = f"log(L - {floor.value:.6g}): the loss above that of {floor.why}, which these data do not allow"
    return {
        "log_excess": log_excess,
        "log_excess_is": text,
        "log_loss": _log_loss(log_excess, floor.value),
    }


def _log_loss(log_excess: float, floor: float) -> float:
    """log L, also where L has underflowed; not a number where L is negative, as that of the correlation loss may be."""
    if floor >= 0:
        return float(np.logaddexp(log_excess, np.log(floor))) if floor > 0 else log_excess
    loss = floor + np.exp(log_excess)
    return float(np.log(loss)) if loss > 0 else float("nan")


def _norms(run: Trajectory, prediction: Prediction | None) -> dict:
    """The l2 norm of the weight, and where that is made of other parameters theirs, and the norm that theory says is minimised."""
    parametrisation, found = run.setting.parametrisation, None if prediction is None else prediction.reference
    if isinstance(parametrisation, Direct | Gram):
        return {"norm": float(run.norm[-1])}
    names, weight = ", ".join(parametrisation.named(run.at(), run.setting.data)), run.weight()
    predicted = {found.norm: found.measure.value(weight)} if isinstance(found, Solution) else {}
    return {
        "norm": float(np.linalg.norm(weight)),
        "weight_norm": {"l2": float(np.linalg.norm(weight)), **predicted},
        "parameters": f"({names})",
        "parameter_norm": float(run.norm[-1]),
    }


def _with_bounds(run: Trajectory, prediction: Prediction | None) -> Trajectory:
    """The run with the bounds it certifies at every record, where there is a program to bound."""
    if prediction is None or not isinstance(prediction.reference, Solution):
        return run
    return certified(run, prediction.reference.measure, prediction.reference)


def print_run(content: dict) -> None:
    print(f"optimiser  {content['optimiser']}")
    print(f"status     {content['status']}: {content['message']}")
    name, _, why = content["log_excess_is"].partition(":")
    loss = f", log L {content['log_loss']:.8g}" if why and name != "log L" else ""
    reached = f"margin {content['margin']:.6g}" if "margin" in content else f"residual {content['residual']:.3g}"
    norms = [f"{norm} norm of the weight {value:.6g}" for norm, value in content.get("weight_norm", {}).items()]
    if norms:
        norms += [f"l2 norm of the parameters {content['parameters']} {content['parameter_norm']:.6g}"]
    else:
        norms = [f"norm {content['norm']:.6g}"]
    print(
        f"run        {content['steps']} steps, {name} {content['log_excess']:.8g}{loss}, log time {content['log_time']:.8g}, {reached}, {', '.join(norms)}"
    )
    if why:
        print(f"note       {content['log_excess_is']}")
    if content["first_capped"] is not None:
        print(
            f"cap        first binds at step {content['first_capped']}: the rule is then gradient descent with the cap as step size"
        )
    print_accuracy(content.get("accuracy", {}))
    if content["prediction"] is not None:
        print_hypotheses([one for one in content["prediction"]["hypotheses"] if one["holds"] is False])
    measure = "1 - corr" if "margin" in content else "relative distance"
    for name, value in content["directions"].items():
        print(f"direction  {measure} to {name}: {value:.4g}")
    print_descent(content)
    found = content["bracket"]
    upper = f"in [{found['lower']:.10g}, {found['upper']:.10g}]"
    if not math.isfinite(found["upper"]):
        upper = f"at least {found['lower']:.10g}, without an upper bound"
    print(f"bracket    {found['of']} {upper}, certified by the run itself")
    if "window" in found:
        print("           " + ", ".join(f"{kind} multipliers {found[kind]:.6g}" for kind in KINDS))
    print_proof(content)
    if "limit" in content:
        _print_limit(content)
    print(
        f"verdict    {content['verdict']}: {content['inequality']}"
        + (f" ({content['detail']})" if content["detail"] else "")
    )
    if content["would_decide"]:
        print(f"to decide  {content['would_decide']}")
    print_files(content)
