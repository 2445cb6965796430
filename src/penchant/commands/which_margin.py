"""`which-margin`: train, bracket the margin in every norm along the run, and say which one the optimiser maximises, when it changes its mind, and who says so."""

import inspect
import math
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError, DataFileError, MissingExtra, UnknownLimit
from ..exhibits import Finding, Result
from ..files import check_writable
from ..optimisers import table
from ..optimisers.base import Adam, kept_within, turns_at
from ..optimisers.step_rules import Constant
from ..papers import theorems
from ..papers.which_margin.comparison import THETA, Comparison, best_margins, compare
from ..papers.which_margin.theorems import called
from ..references.base import Solution
from ..settings.base import Data, Setting
from ..settings.classification import Multiclass
from ..theory.base import Prediction, choose, made_of, norm_of
from ..theory.uniqueness import uniqueness
from ..training.asked import Until, budget, longest_feature, optimiser_of
from ..training.flags import refuse
from ..training.status import Status
from ..training.train import train
from ..training.trajectory import Trajectory
from ..verdict import Outcome, Verdict
from . import Said
from .options import attribute, setting_and_start
from .own import page_of, written
from .progress import progress, sparse

_LARGE = 4000  # entries of a weight
_NOTHING = 1e-9  # of the best margin missing: the width of the brackets


def which_margin(options: Namespace) -> Said:
    """What `which-margin` prints, for programs and for people; of several optimisers, separated by commas, each under its name."""
    names = (options.optimiser or "flow").split(",")
    if len(names) > 1 and (options.out or options.save):
        wanted = "a single one with --out and --save"
        raise ArgumentError("--optimiser", "penchant which-margin", wanted, options.optimiser)
    if options.out:
        check_writable(str(Path(options.out) / "index.html"))
    asked = [_ready(Namespace(**{**vars(options), "optimiser": name})) for name in names]  # all, before any is trained
    data = asked[0].setting.data  # the same object, whose best margins are kept
    found = {one.options.optimiser: _one(one, data) for one in asked}
    if len(names) == 1:
        content, lines = found[names[0]]
        return Said(content, lines, int("page_error" in content))
    lines = [line for name, (_, text) in found.items() for line in (f"optimiser  {name}", *text)]
    return Said({name: content for name, (content, _) in found.items()}, lines)


class _Ready(NamedTuple):
    """An optimiser whose options were checked, with its steps and the event that ends it."""

    options: Namespace
    setting: Setting
    start: PyTree
    optimiser: Any
    steps: int | None
    until: Until


def _ready(options: Namespace) -> _Ready:
    """An optimiser of the user's own needs the weight coordinate by coordinate, as steepest descent does; one of torch.optim takes its steps, whatever happens."""
    own = ":" in options.optimiser
    refuse(options, own)
    setting, start = setting_and_start(
        Namespace(**{**vars(options), "optimiser": "steepest" if own else options.optimiser})
    )
    optimiser = _optimiser(options, setting, start)
    steps, until = budget(options, optimiser, setting)  # pyright: ignore[reportArgumentType]
    if until is not None and not isinstance(optimiser, eqx.Module):
        raise ArgumentError("--steps", "penchant which-margin", "the only end of a torch.optim optimiser", repr(until))
    return _Ready(options, setting, start, optimiser, steps, until)


def _one(asked: _Ready, data: Data) -> tuple[dict, list[str]]:
    options, optimiser, references = asked.options, asked.optimiser, best_margins(data)
    run, prediction = _run(asked, references)
    found = compare(run, references)
    covered = prediction is not None and prediction.hypothesis("optimiser_covered") is None
    verdict = found.verdict(found.leader) if found.leader else None
    foreseen = prediction.reference.norm if prediction else ""
    other = foreseen in found.shares and foreseen != found.leader
    content = {**found.content(), "theorem": prediction.theorem.name if prediction and covered else None}
    content |= {"status": run.status.name, "ahead": found.ahead, "verdict": verdict and str(verdict)}
    content["unique"] = unique = _unique(data, references)
    content["predicted"] = f"the {foreseen} margin: {found.verdict(foreseen)}" if other else None
    if options.save:
        content["saved"] = str(run.save(options.save))
    if options.out:
        by = prediction.theorem.statement if prediction and covered else "No theorem covers this optimiser."
        told = (Finding(f"This run maximises the {found.leader} margin.", verdict, by),) if verdict else ()
        result = lambda: Result(told, (found.figure(),), (found.table(),), {"run": run})
        content |= page_of(options, "which_margin", result)
    decide = content["to_decide"] = _to_decide(found, verdict, run, optimiser)
    return content, [*_lines(found, prediction if covered else None, run, unique), *_written(content, verdict, decide)]


def _to_decide(found: Comparison, verdict: Verdict | None, run: Trajectory, optimiser: object) -> str | None:
    """The line to type where a verdict is open. What is missing falls like 1/sqrt t under steps that do; a constant step, and Adam, have laws of their own."""
    if verdict is not None and verdict.outcome is not Outcome.undecided:
        return None
    wanted, margin, taken = found.begun, float(found.margin[-1]), int(run.steps[-1])
    if taken and np.array_equal(*run.margins[-2:]):
        return "another optimiser: this one has stopped, and further steps move nothing"
    missing = 1 - max(found.last.values())
    if missing < _NOTHING:
        return "other data: the best weight in this norm is one of the best in another, and no run tells them apart"
    if run.status is Status.reached_target:
        return f"--margin {max(wanted, 10 * margin):.3g}, in place of what ended this run"
    if run.status is not Status.out_of_steps:
        return f"not more steps: the run has ended as {run.status.name}"
    radius = kept_within(optimiser)
    if radius < np.inf and (most := radius * (best := _best_of_steps(found, optimiser))) < wanted:
        words = f"this one keeps the margin below some {most:.3g}, and {wanted:.3g} is asked for"
        return f"--weight-decay below {best / wanted:.3g}: {words}"
    if margin < wanted and (turn := turns_at(optimiser)) < wanted:
        total = np.exp(wanted - turn) / found.references["frobenius"].margin ** 2
        words = f"beyond the margin {turn:.4g} these are steps of gradient descent, and {wanted:.3g} is asked for"
        return f"a smaller --eps, or steps that add up to some {total:.0e}: {words}"
    if isinstance(optimiser, Adam) and margin < wanted:
        least = int((wanted - margin) / (-np.log(optimiser.b2) / 2)) + taken
        return f"--steps {least} at least: the loss of Adam falls by at most {np.sqrt(optimiser.b2):.6g} per step, and the margin {wanted:.3g} is asked for"
    if isinstance(getattr(optimiser, "rule", None), Constant) and margin < wanted:
        return f"--optimiser ngd: a constant step needs some e^m steps for the margin m, and {wanted:.3g} is asked for"
    longer = max(wanted / margin, missing / THETA) ** 2 if margin > 0 else 10.0
    return f"--steps {int(taken * max(longer, 2.0))}" if taken else None


def _best_of_steps(found: Comparison, optimiser: Any) -> float:
    """The best margin in the norm of the steps. Those with an epsilon, and in norms that are not compared, are at most 1 in every entry."""
    name = "max" if np.isfinite(turns_at(optimiser)) else called(norm_of(optimiser))
    return found.references.get(name, found.references["max"]).margin


def _written(content: dict, verdict: object, decide: str | None) -> Iterator[str]:
    if verdict is not None:
        yield f"verdict    {verdict}"
    if decide is not None:
        yield f"to decide  {decide}"
    if content["predicted"]:
        yield f"predicted  {content['predicted']}"
    yield from written(content)


def _default_steps(options: Namespace, setting: Setting) -> None:
    """Where nothing was said about steps: those that fall like 1/sqrt t, as the theorems want them, longer where directions depend smoothly on
    gradients; for gradient descent one over the smoothness |X|^2/(2n) of the mean cross-entropy."""
    row, data = table.OPTIMISERS.get(options.optimiser), setting.data
    if row is None or not options.step_size is options.step_decay is None:
        return
    entries = np.asarray(getattr(data, "inputs", np.zeros((1, 1))))
    if options.optimiser == "gd" and made_of(setting, Multiclass) and setting.loss.kind == "cross-entropy":
        options.step_size = 2 * float(np.exp(setting.shift)) / float(np.linalg.norm(entries, 2)) ** 2
    if table.DECAY not in row.takes:
        return
    options.step_decay, signs = 0.5, options.optimiser in ("adam", "sign", "signum") or options.norm in ("max", "linf")
    length = (8.0 if options.optimiser == "ngd" else 2.0) / longest_feature(data)
    options.step_size = 5 / (2 * np.abs(entries).sum(axis=1).max()) if signs and entries.any() else length


def _optimiser(options: Namespace, setting: Setting, start: PyTree) -> object:
    name = options.optimiser
    if ":" not in name:
        _default_steps(options, setting)
        return optimiser_of(options, setting, start)
    return own_optimiser(name)


def _foreseen(setting: Setting, optimiser: Any, start: PyTree, references: dict[str, Solution]) -> Prediction:
    """What theory says, with the reference that is known already in place of another solution of the same program."""
    theorem = choose(theorems(), setting, optimiser)
    known = next((one for one in references.values() if one.measure.name == norm_of(optimiser).name), None)
    if known is None:
        return theorem.predict(setting, optimiser, start)
    family = theorem.family if theorem.family.of is None else theorem.family.of(optimiser)
    family = replace(family, of=None, reference=lambda *given: known, rivals=lambda asked: ())
    return replace(theorem, family=family).predict(setting, optimiser, start)


def _run(asked: _Ready, references: dict[str, Solution]) -> tuple[Trajectory, Prediction | None]:
    options, setting, start, optimiser, steps, until = asked
    if not isinstance(optimiser, eqx.Module):
        from ..bridge.torch_settings import follow_torch

        return follow_torch(setting, optimiser, start, steps), None  # pyright: ignore[reportArgumentType]
    prediction = None
    with suppress(UnknownLimit):  # of a geometry of the user's own
        prediction = None if ":" in options.optimiser else _foreseen(setting, optimiser, start, references)
    with progress() as show:
        told = sparse(show, setting.name_of_loss(True), True)
        return train(setting, optimiser, start, steps=steps, until=until, progress=told), prediction  # pyright: ignore[reportArgumentType]


def own_optimiser(place: str) -> object:
    """`FILE.py:NAME`: an optax transformation, a function without arguments that makes one, or a function of a list of PyTorch parameters
    that makes a torch.optim optimiser (returned as it is). The file is executed."""
    file, _, name = place.rpartition(":")
    found = attribute(Path(file), name)
    if callable(found) and not inspect.signature(found).parameters:
        found = found()
    if hasattr(found, "init") and hasattr(found, "update"):
        try:
            from ..bridge.optax import OptaxDescent
        except ImportError:
            raise MissingExtra("optax", "an optax transformation") from None
        return OptaxDescent(found)  # pyright: ignore[reportArgumentType]
    if not callable(found):
        raise DataFileError(
            f"'{name}' of '{file}' is no optax transformation, nor a function that makes an optimiser of parameters."
        )
    return found


def _unique(data: Data, references: dict[str, Solution]) -> dict[str, bool | None]:
    """Whether the best weight in each norm is the only one. None where that is open, and for large weights, whose faces take gigabytes."""
    small = math.prod(data.weight_shape) <= _LARGE
    return {name: uniqueness(data, one).unique if small else None for name, one in references.items()}


def _lines(
    found: Comparison, prediction: Prediction | None, run: Trajectory, unique: dict[str, bool | None]
) -> Iterator[str]:
    yield from run.lines()
    for name, one in found.references.items():
        low, high = 1 / one.bracket.upper, 1 / one.bracket.lower
        face = ", by more than one weight" * (unique[name] is False)
        share = found.reached[name]
        why = "the bracket does not resolve it" if found.margin[-1] > 0 else "the smallest margin is not positive"
        told = f"no share: {why}" if share is None else f"share reached {share:.4f}"
        yield f"{name:10} best margin {one.margin:.10g} in [{low:.12g}, {high:.12g}]{face}, {told}"
    for margin, log_time, before, after in found.turns():
        yield f"turn       from {before} to {after} at margin {margin:.4g}, log time {log_time:.4g}"
    if found.leader is None:
        yield f"maximises  nothing yet: the smallest margin is {found.margin[-1]:.4g}"
        return
    sure = found.verdict(found.leader).outcome is Outcome.confirmed
    words = f"the {found.leader} margin" if found.maximises else f"none: nearest is the {found.leader} margin"
    words += "" if sure or not found.maximises else " so far"
    yield f"maximises  {words}, {found.ahead:.4f} ahead of the next"
    yield f"theorem    {f'{prediction.theorem.name}: {prediction.theorem.statement}' if prediction else 'none covers this optimiser'}"
    if prediction:
        failed = [one for one in prediction.hypotheses if one.holds is not True]
        told = {False: "fails", None: "is open"}
        yield from (f"           {one.name} {told[one.holds]}: {one.meaning}" for one in failed)
