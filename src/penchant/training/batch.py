"""Batches: which of the settings, step sizes and starts of a call vary, and how they line up.

What a run of a deep linear network is told before it starts: a start that cannot move is refused, broken assumptions are announced.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_map_with_path
from jaxtyping import Array, PyTree

from ..errors import ArgumentError, CriticalPointError, DivergedRun, StepSizeError, warn
from ..flow.flow import GradientFlow, is_flow
from ..optimisers.base import Optimiser
from ..optimisers.layerwise import risk_bounds, safe_step
from ..problem import read
from ..settings.base import Setting
from ..settings.deep_linear import Layers, layer_norms, layered
from ..settings.factored import Pair, check_moving
from .events import Limits
from .status import Status
from .trajectory import Trajectory


class Batch:
    """A call of `train` lined up for vectorisation: `size` is None for a single run."""

    def __init__(self, setting: Setting | Sequence[Setting], optimiser: Any, start: PyTree):
        self.optimiser = optimiser
        many_settings = not isinstance(setting, Setting)
        self.settings = list(setting) if many_settings else [setting]
        self.setting = _stack(self.settings) if many_settings else setting
        if start is None:
            starts = [one.start() for one in self.settings]
            start = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts) if many_settings else starts[0]
        start = as_array(self.settings[0], start, "train")
        named = lambda path: (
            f"W{path[0].idx + 1}" if len(path) == 1 and hasattr(path[0], "idx") else f"start{keystr(path)}"
        )
        self.start = tree_map_with_path(lambda path, leaf: _real(leaf, named(path)), start)  # layers are W1, W2, ...
        if isinstance(self.start, Pair):
            check_moving(self.start)
        many_starts = _is_batch(self.settings[0], self.start)
        lengths = [leaf.shape[0] for leaf in jax.tree.leaves(optimiser) if np.ndim(leaf) == 1]
        lengths += [len(self.settings)] * many_settings + [jax.tree.leaves(self.start)[0].shape[0]] * many_starts
        if len(set(lengths)) > 1:
            found = f"batches of {', '.join(str(length) for length in sorted(set(lengths)))}"
            raise ArgumentError("start", "train", "a batch as long as those of the settings and step sizes", found)
        self.size = lengths[0] if lengths else None
        if self.size == 0:
            raise ArgumentError("start", "train", "a start or a non-empty batch of them", "a batch of 0")
        self.many_starts = many_starts
        varying = jax.tree.map(lambda leaf: 0 if np.ndim(leaf) == 1 else None, optimiser)
        self.axes = (eqx.if_array(0) if many_settings else None, varying, 0 if many_starts else None)

    def members(self) -> Iterator[tuple[Setting, Any, PyTree]]:
        """The single runs of the batch, one after another."""
        for k in range(self.size or 1):
            setting = self.settings[k % len(self.settings)]
            optimiser = jax.tree.map(lambda leaf, k=k: leaf[k] if np.ndim(leaf) == 1 else leaf, self.optimiser)
            start = jax.tree.map(lambda leaf, k=k: leaf[k], self.start) if self.many_starts else self.start
            yield setting, optimiser, start


def as_array(setting: Setting, start: PyTree, owner: str) -> PyTree:
    """Where the parameters are one array, a list of numbers is a way to write it; any other start as it is."""
    if not (isinstance(start, list) and isinstance(setting.start(), jax.Array)):
        return start
    try:
        return np.asarray(start)
    except ValueError as error:
        raise ArgumentError("start", owner, "an array", f"ragged rows ({error})") from None


def single_start(setting: Setting, start: PyTree, owner: str) -> PyTree:
    """One start of a setting, made of real, finite arrays of the right shapes."""
    start = jax.tree.map(lambda leaf: _real(leaf, "start", owner), as_array(setting, start, owner))
    if _is_batch(setting, start, owner):
        raise ArgumentError("start", owner, "a single start", "a batch of them")
    return start


def _stack(settings: Sequence[Setting]) -> Setting:
    """Settings of one structure and shape as one setting with a leading axis on every array."""
    if not settings:
        raise ArgumentError("setting", "train", "a setting or a non-empty list of settings", "an empty list")
    kinds = {str((jax.tree.structure(one), [np.shape(leaf) for leaf in jax.tree.leaves(one)])) for one in settings}
    if len(kinds) > 1:
        raise ArgumentError("setting", "train", "settings of one shape", f"{len(kinds)} different shapes")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)


def _is_batch(setting: Setting, start: PyTree, owner: str = "train") -> bool:
    """Whether every array of the start has one axis more than a single start has."""
    single = setting.parametrisation.zeros(setting.data)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(start)]
    wanted = [np.shape(leaf) for leaf in jax.tree.leaves(single)]
    if shapes == wanted:
        return False
    if len(shapes) == len(wanted) and all(shape[1:] == one for shape, one in zip(shapes, wanted, strict=True)):
        return True
    found = f"shape {shapes}"
    if layered(setting) and len(shapes) == len(wanted):
        rank = max(len(shape) for shape in shapes) - 2  # 1 if a batch was meant
        k = next(k for k, (shape, one) in enumerate(zip(shapes, wanted, strict=True)) if shape[max(rank, 0) :] != one)
        found = f"W{k + 1} of shape {shapes[k]}"
    elif layered(setting):
        found = f"{len(shapes)} layers instead of {len(wanted)}, of shape {shapes}"
    raise ArgumentError("start", owner, f"of shape {wanted}, or a batch of such", found)


def _real(leaf: object, label: str, owner: str = "train") -> Array:
    """An array of a start in float64, if it is real and finite."""
    if np.ma.isMaskedArray(leaf) and np.ma.count_masked(leaf):
        raise ArgumentError("start", owner, "without masked entries", f"{np.ma.count_masked(leaf)} of them in {label}")
    found = np.asarray(leaf)
    if found.dtype.kind not in "biuf":
        raise ArgumentError("start", owner, "made of real arrays", f"{label} = {leaf!r}")
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        where = f" at index {tuple(bad[0].tolist())}" if found.ndim else ""
        entries = f"{found[tuple(bad[0])]} in {label}{where} ({len(bad)} such entries)"
        raise ArgumentError("start", owner, "finite", entries)
    return jnp.asarray(found, float)


_FAINT = 1e-12  # a gradient this small, relative to the product of the layers, is mostly rounding


@eqx.filter_jit
def _look(setting: Setting, start: Layers) -> tuple[Array, Array, Array, Array]:
    """The log risk of a start and the length of its slope, the log risk of weight 0, and the product of the sizes of the layers."""
    reading, zero = read(setting, start), setting.weigh(jnp.zeros(setting.samples))
    return reading.log_excess, reading.log_slope_norm, zero.log_excess, jnp.prod(layer_norms(start))


def check_networks(members: Iterable[tuple[Setting, Optimiser | GradientFlow, PyTree]], levels: Limits) -> None:
    """Check every run of a call whose weight is a product of layers; one warning per kind, however many runs."""
    above, count, faint, steep = [], 0, False, ""
    for setting, optimiser, start in members:
        if not layered(setting):
            continue
        now, slope, zero, product = map(float, _look(setting, start))
        if np.isneginf(slope):
            raise CriticalPointError("train")
        count += 1
        above.append(now - zero)
        faint = faint or np.exp(slope) < _FAINT * product
        steep = steep or _steep(setting, optimiser, start)
        level = float(levels.log_excess)
        if is_flow(optimiser) and level >= now:
            wanted = f"a LogExcessBelow under the log risk of the start, {now:.6g}"
            raise ArgumentError("until", "train with GradientFlow", wanted, f"{level:g}")
    high = [rise for rise in above if rise > 0]
    if high:
        which = "The start lies" if count == 1 else f"{len(high)} of {count} starts lie"
        text = f"{which} above the risk of weight 0, by up to {max(high):.3g} in log R (Assumption 2): nothing is promised. `ensure_assumption2(setting, start)` repairs it."
        warn(text)
    if faint:
        warn("The gradient at the start is below 1e-12 of the product of the layers: rounding decides where it points.")
    if steep:
        warn(steep)


def _steep(setting: Setting, optimiser: Optimiser | GradientFlow, start: PyTree) -> str:
    """Assumption 4: the constants that a rule uses must bound slope and curvature of the risk, at least below the start."""
    rule: Any = getattr(optimiser, "rule", None)
    if hasattr(rule, "step") and setting.loss.kind == "exponential":
        safe, step = safe_step(setting, start), float(rule.step)
        bounded = f"The exponential loss has no bounds on slope and curvature (Assumption 4); those below the risk of the start allow a constant step of {safe:.3g}"
        return "" if step <= safe * (1 + 1e-9) else f"{bounded}, not {step:g}: nothing is promised."
    if not hasattr(rule, "slope"):
        return ""
    name, found = type(rule).__name__, risk_bounds(setting, start)
    if found is None:
        loss = type(setting.loss).__name__
        return f"{name} needs bounds on slope and curvature of the loss (Assumption 4), which are not known for {loss}."
    beta, slope = found
    room = 1 + 1e-9
    if beta <= room * float(rule.beta) and slope <= room * float(rule.slope):
        return ""
    return (
        f"{name} uses beta = {float(rule.beta):g}, slope = {float(rule.slope):g}, but this risk is only bounded by {beta:.6g} and {slope:.6g} "
        f"(Assumption 4): pass {name}(beta={beta:.6g}, slope={slope:.6g})."
    )


def raise_if_diverged(setting: Setting, optimiser: Optimiser | GradientFlow, start: PyTree, run: Trajectory) -> None:
    """A `StepSizeError` with a safe step for a constant step on layers, a `DivergedRun` for any other run that could not go on."""
    rule: Any = getattr(optimiser, "rule", None)
    if getattr(rule, "fixed", False) and run.status is Status.diverging_step:
        why = "it raised the risk ten times in a row, or left the region of the weights"
        raise StepSizeError(float(np.max(rule.step)), safe_step(setting, start), why)
    if run.status in (Status.diverging_step, Status.not_finite, Status.step_failed):
        raise DivergedRun(run, run.status.name, int(run.steps[-1]), run.ending)
