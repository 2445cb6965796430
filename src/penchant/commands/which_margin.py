"""`which-margin`: train, bracket the margin in every norm along the run, and say which one the optimiser maximises, when it changes its mind, and who says so."""

import inspect
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError, DataFileError, MissingExtra
from ..exhibits import Finding, Result
from ..files import check_writable
from ..optimisers import table
from ..optimisers.base import Adam
from ..optimisers.step_rules import Constant
from ..papers import theorems
from ..papers.which_margin.comparison import THETA, Comparison, best_margins, compare
from ..references.base import Solution
from ..settings.base import Data, Setting
from ..settings.classification import Multiclass
from ..settings.losses import CrossEntropy
from ..theory.base import Prediction, choose, norm_of
from ..training.asked import budget, longest_feature, optimiser_of
from ..training.flags import refuse
from ..training.status import Status
from ..training.train import train
from ..training.trajectory import Trajectory
from ..verdict import Outcome, Verdict
from . import Said
from .options import attribute, setting_and_start
from .own import page_of, written
from .progress import progress, sparse

_STEPS = 10_000
_NOTHING = 1e-9  # of the best margin missing: the width of the brackets


def which_margin(options: Namespace) -> Said:
    """What `which-margin` prints, for programs and for people; of several optimisers, separated by commas, each under its name."""
    names = (options.optimiser or "flow").split(",")
    if len(names) > 1 and (options.out or options.save):
        wanted = "a single one with --out and --save"
        raise ArgumentError("--optimiser", "penchant which-margin", wanted, options.optimiser)
    if options.out:
        check_writable(str(Path(options.out) / "index.html"))
    found, data = {}, None
    for name in names:
        asked = Namespace(**{**vars(options), "optimiser": name})
        setting, start = _setting(asked)
        data = setting.data if data is None else data  # the same object, whose best margins are kept
        found[name] = _one(asked, setting, start, data)
    if len(names) == 1:
        content, lines = found[names[0]]
        return Said(content, lines, int("page_error" in content))
    lines = [line for name, (_, text) in found.items() for line in (f"optimiser  {name}", *text)]
    return Said({name: content for name, (content, _) in found.items()}, lines)


def _setting(options: Namespace) -> tuple[Setting, PyTree]:
    """The setting; an optimiser of the user's own needs the weight coordinate by coordinate, as steepest descent does."""
    named = Namespace(**{**vars(options), "optimiser": "steepest" if ":" in options.optimiser else options.optimiser})
    refuse(named)
    return setting_and_start(named)


def _one(options: Namespace, setting: Setting, start: PyTree, data: Data) -> tuple[dict, list[str]]:
    optimiser = _optimiser(options, setting, start)  # before the references, which take their time
    references = best_margins(data)
    run, prediction = _run(options, setting, optimiser, start, references)
    found = compare(run, references)
    covered = prediction is not None and prediction.hypothesis("optimiser_covered") is None
    verdict = found.verdict(found.leader) if found.leader else None
    foreseen = prediction.reference.norm if prediction else ""
    other = foreseen in found.shares and foreseen != found.leader
    content = {**found.content(), "theorem": prediction.theorem.name if prediction and covered else None}
    content |= {"status": run.status.name, "ahead": found.ahead, "verdict": verdict and str(verdict)}
    content["predicted"] = f"the {foreseen} margin: {found.verdict(foreseen)}" if other else None
    if options.save:
        content["saved"] = str(run.save(options.save))
    if options.out:
        by = prediction.theorem.statement if prediction and covered else "No theorem covers this optimiser."
        told = (Finding(f"This run maximises the {found.leader} margin.", verdict, by),) if verdict else ()
        result = lambda: Result(told, (found.figure(),), (found.table(),), {"run": run})
        content |= page_of(options, "which_margin", result)
    decide = content["to_decide"] = _to_decide(found, verdict, run, optimiser)
    return content, [*_lines(found, prediction if covered else None, run), *_written(content, verdict, decide)]


def _to_decide(found: Comparison, verdict: Verdict | None, run: Trajectory, optimiser: object) -> str | None:
    """The line to type where a verdict is open. What is missing falls like 1/sqrt t under steps that do; a constant step, and Adam, have laws of their own."""
    if verdict is not None and verdict.outcome is not Outcome.undecided:
        return None
    wanted, margin, taken = found.begun, float(found.margin[-1]), int(run.steps[-1])
    if taken and np.array_equal(*run.margins[-2:]):
        return "another optimiser: this one has stopped, and further steps move nothing"
    if run.status is not Status.out_of_steps:
        return f"not more steps: the run has ended as {run.status.name}"
    if isinstance(optimiser, Adam) and margin < wanted < -float(optimiser.log_eps):
        least = int((wanted - margin) / (-np.log(optimiser.b2) / 2)) + taken
        return f"--steps {least} at least: the loss of Adam falls by at most {np.sqrt(optimiser.b2):.6g} per step, and the margin {wanted:.3g} is asked for"
    if isinstance(getattr(optimiser, "rule", None), Constant) and margin < wanted:
        return f"--optimiser ngd: a constant step needs some e^m steps for the margin m, and {wanted:.3g} is asked for"
    missing = 1 - max(found.last.values())
    if missing < _NOTHING:
        return "other data: the best weight in this norm is one of the best in another, and no run tells them apart"
    longer = max(wanted / margin, missing / THETA) ** 2 if margin > 0 else 10.0
    return f"--steps {int(taken * max(longer, 2.0))}" if taken else None


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
    if options.optimiser == "gd" and isinstance(data, Multiclass) and isinstance(setting.loss, CrossEntropy):
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
    if options.step_size is not None or options.beta is not None:
        raise ArgumentError("--step-size", "penchant which-margin", "left out with an optimiser of your own", name)
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


def _run(
    options: Namespace, setting: Setting, optimiser: object, start: PyTree, references: dict[str, Solution]
) -> tuple[Trajectory, Prediction | None]:
    if not isinstance(optimiser, eqx.Module):
        from ..bridge.torch_settings import follow_torch

        return follow_torch(setting, optimiser, start, _STEPS if options.steps is None else options.steps), None  # pyright: ignore[reportArgumentType]
    steps, until = budget(options, optimiser, setting)  # pyright: ignore[reportArgumentType]
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


def _lines(found: Comparison, prediction: Prediction | None, run: Trajectory) -> Iterator[str]:
    yield from run.lines()
    for name, one in found.references.items():
        low, high = 1 / one.bracket.upper, 1 / one.bracket.lower
        yield f"{name:10} best margin {one.margin:.10g} in [{low:.12g}, {high:.12g}], share reached {found.last[name]:.4f}"
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
