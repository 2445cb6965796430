"""What the commands do, as functions that return plain values."""

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ArgumentError, DataFileError, InfeasibleError, UndecidedMargin
from .files import write_bytes
from .flow.flow import GradientFlow
from .optimisers.base import Accelerated, gradient_descent, momentum, normalised_descent, polyak
from .optimisers.memory import Adam
from .references.base import Solution
from .report.page import render
from .settings.base import Setting
from .settings.factored import Hadamard, KeyQuery
from .settings.files import LOSSES, Request, guess, read_arrays, setting_of
from .settings.parametrisations import Direct, Gram
from .settings.regression import Regression
from .studies import own_data
from .studies.base import Study, plain, save
from .studies.catalogue import STUDIES
from .theorems import catalogue
from .theorems.base import Claim, Prediction
from .training.events import LogTimeAbove, MarginAbove
from .training.train import train as run_training
from .training.trajectory import write_npz
from .verdict import Outcome, Verdict


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, plain lines otherwise; always on stderr, so that stdout stays clean for --json."""
    if not sys.stderr.isatty():
        yield lambda text, advance=0: print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, advance=0: bar.update(task, description=text, advance=advance)


def _find_study(name: str) -> Study:
    for study in STUDIES:
        if study.name == name:
            return study
    raise ArgumentError("NAME", "penchant study", f"one of {', '.join(study.name for study in STUDIES)}", repr(name))


def _run_one(study: Study, seed: int, full: bool, out: str, show: Any) -> list[str]:
    started = time.perf_counter()
    result = study.run(seed, full, lambda text: show(f"{study.name}: {text}"))
    save(study, result, out, seed=seed, full=full, seconds=time.perf_counter() - started)
    return [
        f"{finding.verdict.outcome.value:10} {finding.statement}\n           {finding.verdict.inequality}"
        for finding in result.findings
    ]


def run_study(name: str, seed: int, full: bool, out: str) -> dict:
    """Run one study, save it and make the page."""
    study = _find_study(name)
    with _progress(1) as show:
        lines = _run_one(study, seed, full, out, show)
    return {"study": name, "lines": lines, "page": str(render(out))}


def verify(papers: Sequence[str], out: str | None, seed: int, full: bool) -> tuple[list[dict], bool]:
    """Check all claims and their twins; with `out`, also run the studies and write the page. False if a check cannot be trusted."""
    unknown = [paper for paper in papers if paper not in catalogue.PAPERS]
    if unknown:
        raise ArgumentError("PAPER", "penchant verify", f"one of {', '.join(catalogue.PAPERS)}", repr(unknown[0]))
    wanted = papers or catalogue.PAPERS
    claims = [claim for claim in catalogue.CLAIMS if claim.paper in wanted]
    studies = [study for study in STUDIES if study.paper in wanted] if out else []
    if not full:  # the first study of each paper shows its main figure; all of them take a quarter of an hour
        studies = list({study.paper: study for study in reversed(studies)}.values())[::-1]
    rows = []
    with _progress(len(claims) + len(studies)) as show:
        for number, claim in enumerate(claims, 1):
            show(f"[{number}/{len(claims)}] {claim.name}", 0)
            rows.append(check(claim))
            show(f"[{number}/{len(claims)}] {claim.name}: {rows[-1]['verdict']}", 1)
        for study in studies:
            _run_one(study, seed, full, str(out), show)
            show(f"{study.name}: done", 1)
    if out:
        write_bytes(
            Path(out) / "ledger.json", json.dumps({"format": "penchant ledger 1", "claims": plain(rows)}).encode()
        )
        print(f"page: {render(out)}", file=sys.stderr)
    return rows, all(row["twin"] == "refuted" and row["verdict"] == row["expected"] for row in rows)


def check(claim: Claim) -> dict:
    """One row of the ledger."""
    started = time.perf_counter()
    verdict, twin = _evidence(claim, False), _evidence(claim, True)
    return {
        "claim": claim.name,
        "paper": claim.paper,
        "statement": claim.statement,
        "citation": claim.citation,
        "verdict": verdict.outcome.value,
        "expected": claim.expected.value,
        "predicted": verdict.predicted,
        "measured": verdict.measured,
        "inequality": verdict.inequality,
        "detail": verdict.detail,
        "seconds": round(time.perf_counter() - started, 2),
        "twin": twin.outcome.value,
    }


def _evidence(claim: Claim, planted: bool) -> Verdict:
    """A check that breaks decides nothing, and the ledger says why."""
    try:
        return claim.check(planted)
    except Exception as error:
        return Verdict(Outcome.undecided, f"the check broke: {type(error).__name__}: {error}")


def print_ledger(rows: list[dict]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Ledger of claims", show_lines=False)
    for column in ("claim", "verdict", "deciding inequality", "s", "twin"):
        table.add_column(column, overflow="fold")
    colours = {"confirmed": "green", "refuted": "red", "undecided": "yellow"}
    for row in rows:
        verdict = f"[{colours[row['verdict']]}]{row['verdict']}[/]" + (
            " (known)" if row["expected"] == row["verdict"] == "refuted" else ""
        )
        table.add_row(row["claim"], verdict, row["inequality"].replace("[", "\\["), str(row["seconds"]), row["twin"])
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    counts = {outcome: sum(row["verdict"] == outcome for row in rows) for outcome in colours}
    console.print(f"{len(rows)} claims: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    console.print(f"twins refuted: {sum(row['twin'] == 'refuted' for row in rows)} of {len(rows)}")


def optimiser_of(options: Namespace, setting: Setting) -> Any:
    """The optimiser of the command line; step sizes left open come from the longest feature, so that the first step is safe."""
    name, size, cap = options.optimiser, options.step_size, options.cap
    if cap is not None and name not in ("ngd", "momentum", "polyak"):
        raise ArgumentError("--cap", "penchant", "used with ngd, momentum or polyak", f"--optimiser {name}")
    if size is not None and name == "flow":
        raise ArgumentError("--step-size", "penchant", "left out for the flow", size)
    for option, value in (("--step-size", size), ("--cap", cap)):
        if value is not None and not value > 0:
            raise ArgumentError(option, "penchant", "positive", value)
    limit = np.inf if cap is None else cap
    longest = float(np.sqrt(np.max(np.diag(np.asarray(setting.data.gram())))))
    if name == "flow":
        return GradientFlow()
    if name == "polyak":
        return polyak(1.0 if size is None else size, limit)
    makers = {
        "gd": (lambda step: gradient_descent(step), 1 / longest**2),
        "ngd": (lambda step: normalised_descent(step, limit), 0.5 / longest),
        "momentum": (lambda step: momentum(step, cap=limit), 0.05 / longest),
        "accelerated": (lambda step: Accelerated(step), 0.5 / longest**2),
        "adam": (lambda step: Adam(step, eps=0.0), 0.01 / longest),
    }
    make, default = makers[name]
    return make(default if size is None else size)


def _setting(options: Namespace) -> tuple[Setting, Any]:
    arrays = read_arrays(options.data)
    kind = options.setting or guess(arrays)
    coordinatewise = options.optimiser == "adam"
    extra = {"seed": options.seed, "scale": options.scale, "widths": _widths(options.widths), "alpha": options.alpha}
    if not options.scale > 0:
        raise ArgumentError("--scale", "penchant train", "positive", options.scale)
    request = Request(LOSSES[options.loss](), options.reduction, None, coordinatewise, extra)
    setting, start = setting_of(kind, arrays, request)
    product = isinstance(setting.parametrisation, KeyQuery | Hadamard)  # zeros never move: their start is always small
    if options.start == "zeros" or (options.start == "small" and product):
        return setting, start
    if options.seed < 0:
        raise ArgumentError("--seed", "penchant", "a nonnegative integer", options.seed)
    if options.start == "small":
        weights = {"W": options.scale * np.random.default_rng(options.seed).standard_normal(setting.data.weight_shape)}
        if not isinstance(setting.parametrisation, Direct | Gram):
            return setting, setting.start(options.seed, options.scale)
    elif options.start.endswith(".npz"):
        weights = read_arrays(options.start)
    else:
        raise ArgumentError(
            "--start", "penchant train", "'zeros', 'small' or a file ending in .npz", repr(options.start)
        )
    return setting_of(kind, arrays, Request(LOSSES[options.loss](), options.reduction, weights, coordinatewise, extra))


def _widths(text: str | None) -> tuple[int, ...] | None:
    """Hidden widths from '8,8,8'."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ArgumentError("--widths", "penchant", "positive integers separated by commas", repr(text))
    return tuple(int(part) for part in parts)


def _prediction(prediction: Prediction) -> dict:
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
            **({"margin": found.margin} if isinstance(found, Solution) else {"resolved": found.resolved}),
        },
        "rate": prediction.rate,
        "notes": list(prediction.notes),
        "rivals": [{"name": rival.name, "separation": rival.separation} for rival in prediction.rivals],
    }


def predict(options: Namespace) -> dict:
    """Theorem, hypotheses, certified reference and rivals for the user's data."""
    setting, _ = _setting(options)
    prediction = catalogue.predict(setting, optimiser_of(options, setting))
    content = _prediction(prediction)
    if options.save:
        content["saved"] = str(
            write_npz(
                _npz(options.save),
                content,
                {"solution": prediction.reference.weight, "dual": prediction.reference.dual},
            )
        )
    return content


def _npz(path: str) -> str:
    if not path.endswith(".npz"):
        raise ArgumentError("--save", "penchant", "a file name ending in .npz", repr(path))
    return path


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _writable(path: str) -> None:
    """Fail before the work, not after it."""
    parent = next(folder for folder in Path(path).absolute().parents if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise DataFileError(f"Cannot write '{path}': '{parent}' is not a directory one can write to.")


def print_prediction(content: dict) -> None:
    reference = content["reference"]
    print(f"theorem    {content['theorem']}: {content['statement']}\n           {content['citation']}")
    for hypothesis in content["hypotheses"]:
        mark = "  ?  " if hypothesis["holds"] is None else "holds" if hypothesis["holds"] else "FAILS"
        offender = f", worst: {hypothesis['offender']}" if hypothesis["offender"] else ""
        print(
            f"hypothesis {mark}  {hypothesis['name']}: slack {_number(hypothesis['slack'])}{offender} ({hypothesis['detail']})"
        )
    classified = "margin" in reference
    what = (
        f"minimum {reference['norm']} norm with margins >= 1"
        if classified
        else f"interpolant of least {reference['norm']}"
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


def _budget(options: Namespace, optimiser: Any, setting: Setting) -> tuple[int | None, Any]:
    """Steps and event of the command line; without any, the flow goes to margin 1e6 and descent takes 10 000 steps."""
    log_time = options.log_time
    if options.time is not None:
        if not options.time > 0:
            raise ArgumentError("--time", "penchant train", "positive", options.time)
        log_time = float(np.log(options.time))
    if log_time is not None:
        steps = None
        if options.optimiser == "gd":  # a constant step size says how many steps the time is
            steps = int(min(np.ceil(np.exp(min(log_time, 700.0)) / float(optimiser.rule.step)) + 1, 1e8))
        return steps, LogTimeAbove(log_time)
    if options.margin is not None:
        if not 0 < options.margin < np.inf:
            raise ArgumentError("--margin", "penchant train", "positive and finite", options.margin)
        return None, MarginAbove(options.margin)
    if options.steps is not None:
        return options.steps, None
    if isinstance(setting.data, Regression):  # the infimum is attained: the flow ends by itself
        return (None, None) if options.optimiser == "flow" else (10_000, None)
    return (None, MarginAbove(1e6)) if options.optimiser == "flow" else (10_000, None)


def train(options: Namespace) -> dict:
    """Train on the user's data, judge the run against the prediction, and save what was asked for."""
    setting, start = _setting(options)
    optimiser = optimiser_of(options, setting)
    steps, until = _budget(options, optimiser, setting)
    if options.save:
        _writable(_npz(options.save))
    if options.out:
        _writable(str(Path(options.out) / "index.html"))
    try:
        prediction = catalogue.predict(setting, optimiser)
    except (InfeasibleError, UndecidedMargin) as error:
        prediction, reason = None, f"no prediction: {error}"
    else:
        reason = ""
    if prediction is None and until is not None and options.margin is not None:
        raise DataFileError(f"No run can reach a smallest margin of {options.margin:g}: {reason}")
    if prediction is None and steps is None and until is not None and isinstance(until, MarginAbove):
        steps, until = 1000, None
    with _progress(1) as show:
        show(f"training with {options.optimiser}")
        run = run_training(setting, optimiser, start, steps=steps, until=until)
    verdict = catalogue.judge(prediction, run) if prediction is not None else Verdict(Outcome.undecided, reason)
    found = own_data.own_bracket(run, prediction=prediction)
    content = {
        "status": run.status.name,
        "message": run.status.message,
        "steps": int(run.steps[-1]),
        "log_excess": float(run.log_excess[-1]),
        "log_time": float(run.log_time[-1]),
        "margin": float(run.smallest_margin()[-1]),
        "norm": float(run.norm[-1]),
        "directions": own_data.directions(prediction, run),
        "bracket": {"lower": found.lower, "upper": found.upper},
        "verdict": verdict.outcome.value,
        "inequality": verdict.inequality,
        "detail": verdict.detail,
        "prediction": None if prediction is None else _prediction(prediction),
    }
    if options.save:
        content["saved"] = str(run.save(options.save))
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


def print_run(content: dict) -> None:
    print(f"status     {content['status']}: {content['message']}")
    print(
        f"run        {content['steps']} steps, log excess {content['log_excess']:.8g}, log time {content['log_time']:.8g}, margin {content['margin']:.6g}, norm {content['norm']:.6g}"
    )
    found = content["prediction"]
    measure = "1 - corr" if found is None or "margin" in found["reference"] else "relative distance"
    for name, value in content["directions"].items():
        print(f"direction  {measure} to {name}: {value:.4g}")
    print(
        f"bracket    {'best norm with margins >= 1' if measure == '1 - corr' else 'least potential'} in [{content['bracket']['lower']:.10g}, {content['bracket']['upper']:.10g}], certified by the run itself"
    )
    print(
        f"verdict    {content['verdict']}: {content['inequality']}"
        + (f" ({content['detail']})" if content["detail"] else "")
    )
    for key in ("saved", "page"):
        if key in content:
            print(f"{key:10} {content[key]}")
