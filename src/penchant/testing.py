"""The conformance checks, for whoever adds a problem, an optimiser, a theorem or a paper: each returns, or says what is wrong.

They ask for what the rest of penchant relies on and cannot see: that a slope is the slope of the loss, that an optimiser gives the
same run twice, that a slack has the sign of its hypothesis, that a check can fail. Not for whether a theorem is true.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .errors import PenchantError
from .lab import KINDS, Lab, Paper, claims_in
from .optimisers.base import Optimiser
from .problem import Problem, read
from .settings.base import Data, Parametrisation, Setting
from .theory.base import Prediction, Theorem
from .training.status import Status
from .training.train import train
from .training.trajectory import Trajectory
from .verdict import Outcome, Verdict

_EXACT = 1e-9  # relative, of identities that hold up to rounding
_DIFFERENCE = 1e-5  # relative, of central differences with a step of 1e-5
_FAILED = (Status.not_finite, Status.step_failed, Status.diverging_step)


class ConformanceError(PenchantError, AssertionError):
    """Something of the user's own does not do what penchant asks of it."""


def _require(holds: object, text: str) -> None:
    if not holds:
        raise ConformanceError(text)


def _close(found: object, wanted: object, tolerance: float, text: str) -> None:
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    _require(found.shape == wanted.shape, f"{text}: shape {found.shape}, not {wanted.shape}")
    size = max(float(np.abs(wanted).max(initial=0.0)), 1e-300)
    error = float(np.abs(found - wanted).max(initial=0.0)) / size
    _require(error <= tolerance, f"{text}: off by {error:.2g} of its size, more than {tolerance:g}")


def check_problem(setting: Setting, seed: int = 0, scale: float = 0.5) -> None:
    """Margins, their adjoint and Gram matrix, and the slope of the loss agree with one another at a random point.

    >>> import penchant as pt
    >>> check_problem(pt.Setting(pt.Classification([[2.0, 0.5], [0.1, -1.0]], [1, -1]), pt.Direct(), pt.Logistic()))
    """
    data = setting.data
    for part, wanted in ((data, Data), (setting.parametrisation, Parametrisation)):
        _require(isinstance(part, wanted), f"{type(part).__name__} lacks a part of `settings.base.{wanted.__name__}`")
    rng, params = np.random.default_rng(seed), setting.start(seed, scale)
    weight, again = setting.weight(params), setting.start(seed, scale)
    same = jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), params, again)
    _require(all(jax.tree.leaves(same)), "a start of one seed is not the same twice")
    _require(np.shape(weight) == tuple(data.weight_shape), f"the weight is not of shape {data.weight_shape}")
    reading = read(setting, params)
    count = len(reading.margins)
    _require(len(data.constrained()) == count, "`constrained` does not have one entry per margin")
    _close(data.margins(weight), reading.margins, _EXACT, "the margins of the weight are not those of the parameters")
    multipliers = jnp.asarray(rng.standard_normal(count))
    directly = jnp.vdot(multipliers, data.margins(weight)) - jnp.vdot(multipliers, data.margins(jnp.zeros_like(weight)))
    _close(jnp.vdot(data.adjoint(multipliers), weight), directly, _EXACT, "`adjoint` is not that of `margins`")
    rows = jax.vmap(data.adjoint)(jnp.eye(count)).reshape(count, -1)
    _close(data.gram(), rows @ rows.T, _EXACT, "`gram` is not the matrix of inner products of the features")
    _check_slope(setting, params, rng)
    floor = setting.infimum()
    _require(np.isfinite(floor.value) and floor.why, "the infimum needs a value, and a sentence that says why")


def _check_slope(setting: Setting, params: PyTree, rng: np.random.Generator) -> None:
    """The slope against a central difference of log(L - L*), along a random direction."""
    reading = read(setting, params)
    finite = all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves((reading.log_excess, reading.slope)))
    _require(finite, "the reading of a random start is not finite")
    along = jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape)), params)
    at = lambda h: float(read(setting, jax.tree.map(lambda p, v: p + h * v, params, along)).log_excess)
    wanted = float(jnp.exp(reading.log_scale - reading.log_excess) * setting.inner(reading.slope, along))
    _close((at(1e-5) - at(-1e-5)) / 2e-5, wanted, _DIFFERENCE, "the slope is not that of log(L - L*)")


def check_optimiser(optimiser: Optimiser, setting: Setting, steps: int = 50) -> None:
    """An optimiser has every part, descends on `setting`, and gives the same run twice.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Classification([[2.0, 0.5], [0.1, -1.0]], [1, -1]), pt.Direct(), pt.Logistic())
    >>> check_optimiser(pt.sign_descent(0.01), setting)
    """
    _require(isinstance(optimiser, Optimiser), f"{type(optimiser).__name__} lacks `init`, `move` or `coordinatewise`")
    start = setting.start(0, 0.1)
    first, second = (train(setting, optimiser, start, steps=steps) for _ in range(2))
    _require(first.status not in _FAILED, f"the run ended with {first.status.name}: {first.status.message}")
    for name in ("log_excess", "margins", "norm", "log_time"):
        same = np.array_equal(getattr(first, name), getattr(second, name), equal_nan=True)
        _require(same, f"`{name}` differs between two equal runs")
    _require(bool(np.isfinite(first.norm).all()), "the norm of the parameters is not finite")
    _require(first.log_excess[-1] < first.log_excess[0], f"the loss did not fall in {steps} steps")


def check_theorem(theorem: Theorem, setting: Problem, optimiser: eqx.Module, run: Trajectory | None = None) -> None:
    """A theorem says what it is and whom it follows, predicts where it applies, and judges a run without breaking."""
    for part in ("name", "paper", "statement", "citation"):
        _require(getattr(theorem, part), f"the theorem has no {part}")
    _require(theorem.applies(setting, optimiser) is True, "the theorem does not apply here: `applies` must be True")
    found = theorem.predict(setting, optimiser)
    _require(isinstance(found, Prediction), "`predict` does not return a Prediction")
    for one in found.hypotheses:
        _require(one.name and one.detail, f"a hypothesis needs a name and what its slack measures: {one}")
        known = one.holds is not None and not np.isnan(one.slack)
        right = not known or one.holds == (one.slack >= 0)
        _require(right, f"the slack {one.slack:g} of {one.name} has the wrong sign")
    names = [one.name for one in (*found.hypotheses, *found.rivals)]
    _require(len(set(names)) == len(names), "two hypotheses or rivals have one name")
    _require(found.rivals, "a prediction without rivals cannot be told from anything")
    _require(found.rate, "the prediction says nothing about the rate, not even that it is unknown")
    bracket = getattr(found.reference, "bracket", None)
    _require(bracket is None or bracket.lower <= bracket.upper, "the reference is not certified: lower > upper")
    if run is not None:
        _require(isinstance(theorem.family.judge(found, run), Verdict), "`judge` does not return a Verdict")


def check_paper(paper: Paper, lab: Lab | None = None, tell: Callable[[str], None] = lambda text: None) -> None:
    """Every file that holds claims or studies is listed; every claim that is not slow has its verdict, and its twin is refuted.

    The twin of a claim is the same check with a falsehood planted in it: a check that cannot fail shows nothing.
    """
    check_contents(paper)
    lab = lab or Lab(theorems=lambda: paper.theorems)
    for claim in paper.claims:
        if claim.slow:
            continue
        tell(claim.name)
        verdict, twin = claim(lab), claim(lab, planted=True)
        _require(verdict.outcome is claim.expected, f"{claim.name}: {verdict}")
        _require(twin.outcome is Outcome.refuted, f"{claim.name}, with a falsehood planted: {twin}")


def check_contents(paper: Paper) -> None:
    """The table of contents of a paper, without running anything."""
    package = paper.module("__init__")
    folder = Path(str(package.__file__)).parent
    for file in folder.rglob("*.py"):
        place = ".".join(file.relative_to(folder).with_suffix("").parts)
        if not place.endswith("__init__"):
            _check_listed(paper, place, paper.module(place))
    names = [claim.name for claim in paper.claims]
    _require(len(set(names)) == len(names), "two claims have one name")
    for claim in paper.claims:
        _require(claim.statement and claim.citation and claim.kind in KINDS, f"{claim.name} is not sourced")
    for theorem in paper.theorems:
        _require(theorem.statement and theorem.citation, f"{theorem.name} is not sourced")


def _check_listed(paper: Paper, place: str, module: ModuleType) -> None:
    own = [claim for claim in claims_in(module) if claim.check.__module__ == module.__name__]
    _require(not own or place in paper.claim_files, f"{place}.py holds claims and is not listed")
    _require(
        not hasattr(module, "STUDIES") or place in paper.study_files, f"{place}.py holds studies and is not listed"
    )
