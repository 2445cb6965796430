"""From a row of a sweep to what `train` is given, and from a run to the numbers that are kept of it.

What is measured at the end of a run, by name: functions of the run and of what it was made of.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..diagnostics.direction import misalignment
from ..errors import ArgumentError, DataFileError
from ..flow.flow import is_flow
from ..optimisers.table import JOINT, Given, Scale
from ..references.euclidean_margin import max_margin
from ..settings.base import Setting
from ..settings.classification import Classification, Multiclass
from ..settings.files import KINDS, LOSSES, default_loss, guess
from ..settings.generators import Aligned
from ..settings.joint import JointTokens, joint_setting, normal_start
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection
from ..theory.selections import PROGRAMS, detect_limit
from ..training import asked
from ..training.flags import FLAGS
from ..training.train import train
from ..training.trajectory import Trajectory
from .lanes import drive_lanes
from .spec import BUDGETS, RUN, SPEC, generated, own_arrays

KEYS, ARRAYS = RUN, ("weight", "params", "margins", "series")
_SETTINGS = {
    Classification: "linear",
    Multiclass: "multiclass",
    TokenSelection: "attention",
    Regression: "regression",
}
_OPTIONS = dict.fromkeys(RUN) | {"optimiser": "flow", "reduction": "mean", "start": "zeros", "ties": "raise"}


class Member(NamedTuple):
    """One run before it starts; `truth` is the weight that made the targets, where there is one; `takes` are the options that change it."""

    setting: Setting
    optimiser: Any
    start: PyTree
    steps: int | None
    until: tuple
    truth: np.ndarray | None
    takes: tuple[str, ...]


def member(row: Mapping[str, Any]) -> Member:
    """What a row asks for."""
    options = SimpleNamespace(**{**_OPTIONS, **row, "seed": row.get("start_seed", row["seed"])})
    arrays, truth = ({}, None) if "data" in row else _generated(row)
    arrays = arrays or own_arrays(row)
    if type(arrays.get("made")) is JointTokens:
        return _joint(options, arrays["made"])
    kind = options.setting or (_SETTINGS[type(arrays["made"])] if "made" in arrays else guess(arrays))
    if kind not in KINDS:
        raise ArgumentError("setting", SPEC, f"one of {', '.join(KINDS)} on these data", repr(kind))
    try:
        setting, start = asked.setting_and_start(options, kind, arrays, LOSSES[options.loss or default_loss(kind)]())
    except DataFileError:
        found = f"{kind!r} on the generator {row.get('generator')}"
        raise ArgumentError("setting", SPEC, "one that fits the data of the generator", found) from None
    optimiser = asked.optimiser_of(options, setting, start)
    steps, until = asked.budget(options, optimiser, setting)
    optimiser, until = asked.watched(options, setting, optimiser, until, True)
    return Member(setting, optimiser, start, steps, asked.events(until), truth, _takes(row, kind))


def _takes(row: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """The keys, besides those of its data, that a run of a setting listens to: as `train`, and what only data from a file or a drawn start need."""
    optimiser, drawn = row.get("optimiser", "flow"), kind in ("deep-linear", "attention-kq", "attention-diagonal")
    deaf = {"scale"} if row.get("start", "zeros") == "zeros" and not drawn else set()
    deaf |= {"bias", "normalise"} if "data" not in row else set()
    return tuple(flag.key for flag in FLAGS if flag.taken(kind, optimiser) and flag.key in RUN and flag.key not in deaf)


def _generated(row: Mapping[str, Any]) -> tuple[dict[str, Any], np.ndarray | None]:
    """The data of a generator, and the weight that it planted."""
    data = generated(row)
    data, truth = data if type(data) is tuple else (data, None)
    return {"made": data.data if type(data) is Aligned else data}, truth


def joint_rule(options: Any, data: JointTokens, decays: tuple[float, float] | None = None) -> Any:
    """A rule for attention and decoder by its name; a length left open is the 1/(4 B^2) of the theorem."""
    asked.check_numbers(options)
    row, longest = JOINT[options.optimiser], float(np.linalg.norm(np.asarray(data.tokens), axis=-1).max())
    size = row.step(Scale(longest), options.beta) if options.step_size is None else options.step_size
    return row.make(Given(size, options.beta, np.inf if options.cap is None else options.cap, decays))


def _joint(options: SimpleNamespace, data: JointTokens) -> Member:
    """Attention and decoder together."""
    if options.optimiser not in JOINT or options.setting not in (None, "joint"):
        wanted = f"one of {', '.join(JOINT)} on tokens without a decoder"
        raise ArgumentError("optimiser", SPEC, wanted, options.optimiser)
    if any(getattr(options, name) is not None for name in BUDGETS[1:]):
        raise ArgumentError("steps", SPEC, "the budget of joint training", "another")
    if options.start not in ("zeros", "small"):
        raise ArgumentError("start", SPEC, "one of zeros, small on tokens without a decoder", options.start)
    scale = 1e-3 if options.scale is None else options.scale
    begin = normal_start(data, options.seed, scale) if options.start == "small" else None
    rule, setting = joint_rule(options, data), joint_setting(data, begin, LOSSES[options.loss or "exponential"]())
    steps = 10_000 if options.steps is None else options.steps
    return Member(setting, rule, setting.start(), steps, (), None, _takes(vars(options), "joint"))


def runs(made: Mapping[int, Member], records: int) -> Iterator[tuple[int, Trajectory | Exception]]:
    """Runs as they end: descents side by side where shapes agree, flows one after the other."""
    alike: dict[str, list[int]] = {}
    for k, one in made.items():
        if is_flow(one.optimiser):
            yield k, _alone(one)
        else:
            shapes = [np.shape(leaf) for leaf in jax.tree.leaves(one[:3])]
            alike.setdefault(str((jax.tree.structure(one[:3]), shapes)), []).append(k)
    for group in alike.values():
        try:
            for place, run in drive_lanes([made[k] for k in group], records):
                yield group[place], run
        except Exception as error:
            yield from ((k, error) for k in group)


def _alone(one: Member) -> Trajectory | Exception:
    try:
        return train(one.setting, one.optimiser, one.start, steps=one.steps, until=one.until)
    except Exception as error:
        return error


def outcome(run: Trajectory) -> dict[str, Any]:
    """The end of a run in numbers, and a digest of its data."""
    data = run.setting.data
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(data)))
    margin = {} if data.attained else {"smallest_margin": float(data.smallest(jnp.asarray(run.margins[-1])))}
    series = {name: float(getattr(run, name)[-1]) for name in ("log_excess", "log_slope", "norm")}
    reached = {"steps_taken": int(run.steps[-1]), "log_time_reached": float(run.log_time[-1])}
    return {"status": run.status.name, "reason": "", **reached, **series, **margin, "data_sha": digest.hexdigest()[:16]}


def arrays(run: Trajectory, wanted: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays that are kept of a run: its weight, its parameters by name, its last margins, or the series of its records."""
    found = {"weight": run.weight()} if "weight" in wanted else {}
    found |= {f"params_{name}": part for name, part in run.named().items()} if "params" in wanted else {}
    found |= {"margins": run.margins[-1]} if "margins" in wanted else {}
    series = ("steps", "log_time", "log_excess", "norm") if "series" in wanted else ()
    return found | {f"series_{name}": np.asarray(getattr(run, name)) for name in series}


Measure = Callable[[Trajectory, Any], float | str]


def _misalignment(run: Trajectory, one: Any) -> float:
    """1 - corr to the solution of the program that the parametrisation solves: Frobenius or l2, nuclear, l1."""
    solve = PROGRAMS.get(type(run.setting.parametrisation), max_margin)
    return misalignment(run.weight(), solve(run.setting.data).weight)


PLANTED = {"recovery": "the generator sparse_regression", "l1_ratio": "the generator sparse_regression"}
MEASURES: dict[str, Measure] = {
    "misalignment": _misalignment,
    "limit": lambda run, one: detect_limit(run).kind,
    # squared distance to the planted weight over its squared norm
    "recovery": lambda run, one: float(((run.weight() - one.truth) ** 2).sum() / (one.truth**2).sum()),
    "l1_ratio": lambda run, one: float(np.abs(run.weight()).sum() / np.abs(one.truth).sum()),
    "l1_norm": lambda run, one: float(np.abs(run.weight()).sum()),
    "l2_norm": lambda run, one: float(np.linalg.norm(run.weight())),
}
