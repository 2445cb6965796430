"""`predict` and `train` on the user's own data."""

import math
import sys
from argparse import Namespace
from pathlib import Path

from ..errors import DataFileError, InfeasibleError, UndecidedMargin
from ..references.base import Interpolant, Solution
from ..report.page import render
from ..settings.diagonal import DiagonalTokens
from ..settings.tokens import TokenSelection
from ..studies import own_data
from ..studies.base import Study, save
from ..studies.own_regression import what_is_least
from ..theorems import catalogue
from ..theorems.base import Prediction
from ..theorems.certificates import certified
from ..theorems.key_query import norm_of
from ..training.events import MarginAbove, Stalled
from ..training.train import train as run_training
from ..training.trajectory import Trajectory, write_npz
from ..verdict import Outcome, Verdict
from .options import budget, check_writable, npz_name, optimiser_of, setting_and_start
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
            "value": found.value,
            "lower": found.bracket.lower,
            "upper": found.bracket.upper,
            **({"margin": found.margin} if isinstance(found, Solution) else _interpolant(prediction)),
        },
        "rate": prediction.rate,
        "notes": list(prediction.notes),
        "rivals": [{"name": rival.name, "separation": rival.separation} for rival in prediction.rivals],
    }


def _interpolant(prediction: Prediction) -> dict:
    """What only the reference of a regression has; other references without a margin say at least whether they are resolved."""
    found = prediction.reference
    least = {"least": what_is_least(prediction.setting, prediction.start)} if isinstance(found, Interpolant) else {}
    return {"resolved": found.resolved, **least}


def predict(options: Namespace) -> dict:
    """Theorem, hypotheses, certified reference and rivals for the user's data."""
    setting, start = setting_and_start(options)
    prediction = catalogue.predict(setting, optimiser_of(options, setting), start)
    content = describe_prediction(prediction)
    if options.save:
        content["saved"] = str(
            write_npz(
                npz_name(options.save),
                content,
                {"solution": prediction.reference.weight, "dual": prediction.reference.dual},
            )
        )
    return content


def number(value: float | None) -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value:.4g}"


def print_hypotheses(hypotheses: list[dict]) -> None:
    for hypothesis in hypotheses:
        mark = "  ?  " if hypothesis["holds"] is None else "holds" if hypothesis["holds"] else "FAILS"
        offender = f", worst: {hypothesis['offender']}" if hypothesis["offender"] else ""
        print(
            f"hypothesis {mark}  {hypothesis['name']}: slack {number(hypothesis['slack'])}{offender} ({hypothesis['detail']})"
        )


def print_prediction(content: dict) -> None:
    reference = content["reference"]
    print(f"theorem    {content['theorem']}: {content['statement']}\n           {content['citation']}")
    print_hypotheses(content["hypotheses"])
    classified = "margin" in reference
    what = (
        f"minimum {reference['norm']} norm with margins >= 1"
        if classified
        else f"interpolant of least {reference['least']}"
    )
    print(
        f"reference  {what}: {reference['value']:.12g}, certified in [{reference['lower']:.15g}, {reference['upper']:.15g}]"
    )
    if classified:
        print(f"           maximum margin per unit of norm: {reference['margin']:.12g}")
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
    optimiser = optimiser_of(options, setting)
    steps, until = budget(options, optimiser, setting)
    if options.save:
        check_writable(npz_name(options.save))
    if options.out:
        check_writable(str(Path(options.out) / "index.html"))
    try:
        prediction = catalogue.predict(setting, optimiser, start)
    except (InfeasibleError, UndecidedMargin) as error:
        prediction, reason, separable = None, f"no prediction: {error}", isinstance(error, UndecidedMargin)
    else:
        reason, separable = "", True
    if not separable and options.margin is not None:
        raise DataFileError(f"No run can reach a smallest margin of {options.margin:g}: {reason}")
    if prediction is None and options.margin is None and isinstance(until, MarginAbove):
        steps, until = 1000, None
    if isinstance(until, MarginAbove) and isinstance(setting.data, TokenSelection | DiagonalTokens):
        until = (until, Stalled()) if options.optimiser == "flow" else until
    with progress(1) as show:
        show(f"training with {options.optimiser}")
        run = run_training(setting, optimiser, start, steps=steps, until=until, progress=sparse(show))
    verdict = catalogue.judge(prediction, run) if prediction is not None else Verdict(Outcome.undecided, reason)
    found = own_data.own_bracket(run, prediction=prediction)
    content = {
        "status": run.status.name,
        "message": run.ending,
        "steps": int(run.steps[-1]),
        "log_excess": float(run.log_excess[-1]),
        "log_excess_is": own_data.what_log_excess_is(run, separable),
        "log_time": float(run.log_time[-1]),
        **own_data.outcome(run),
        "norm": float(run.norm[-1]),
        "directions": own_data.directions(prediction, run),
        "bracket": {"lower": found.lower, "upper": found.upper, "of": own_data.what_is_bounded(run)},
        "verdict": verdict.outcome.value,
        "inequality": verdict.inequality,
        "detail": verdict.detail,
        "prediction": None if prediction is None else describe_prediction(prediction),
    }
    if options.save:
        content["saved"] = str(_with_bounds(run, prediction).save(options.save))
    if options.out and prediction is not None:
        study = Study("own-data", f"Your data: {Path(options.data).name}", prediction.theorem.paper, lambda *_: None)  # pyright: ignore
        save(
            study,
            own_data.page(prediction, run, verdict, optimiser),
            options.out,
            seed=options.seed,
            full=False,
            seconds=0.0,
        )
        content["page"] = str(render(options.out))
    elif options.out:
        print("No page was written: without a prediction there is nothing to compare the run with.", file=sys.stderr)
    return content


def _with_bounds(run: Trajectory, prediction: Prediction | None) -> Trajectory:
    """The run with the bounds it certifies at every record, where there is a program to bound."""
    if prediction is None or not isinstance(prediction.reference, Solution):
        return run
    return certified(run, norm_of(prediction.reference), prediction.reference)


def print_run(content: dict) -> None:
    print(f"status     {content['status']}: {content['message']}")
    reached = f"margin {content['margin']:.6g}" if "margin" in content else f"residual {content['residual']:.3g}"
    excess = f"{content['log_excess_is'].partition(':')[0]} {content['log_excess']:.8g}"
    print(
        f"run        {content['steps']} steps, {excess}, log time {content['log_time']:.8g}, {reached}, norm {content['norm']:.6g}"
    )
    if ":" in content["log_excess_is"]:
        print(f"note       {content['log_excess_is']}")
    measure = "1 - corr" if "margin" in content else "relative distance"
    for name, value in content["directions"].items():
        print(f"direction  {measure} to {name}: {value:.4g}")
    found = content["bracket"]
    print(f"bracket    {found['of']} in [{found['lower']:.10g}, {found['upper']:.10g}], certified by the run itself")
    print(
        f"verdict    {content['verdict']}: {content['inequality']}"
        + (f" ({content['detail']})" if content["detail"] else "")
    )
    for key in ("saved", "page"):
        if key in content:
            print(f"{key:10} {content[key]}")
