"""Descent: time per 1000 steps against an eager PyTorch loop of the same rule."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import penchant as pt
from penchant.diagnostics.direction import misalignment
from penchant.settings.generators import random_tokens

from . import torch_loop
from .machine import Limits
from .section import Ratio, Section, ratio, seconds
from .timing import alternate, once, say

SIZES = ((6, 8, 10), (20, 10, 30), (50, 10, 50), (50, 10, 200))
STEPS, CHECKED = 1000, 10
RULES = {
    "gradient descent": (pt.gradient_descent(1.0), torch_loop.gradient_descent(1.0)),
    "normalised": (pt.normalised_descent(0.1), torch_loop.normalised_descent(0.1)),
    "momentum": (pt.momentum(0.1), torch_loop.momentum(0.1)),
    "Polyak": (pt.polyak(), torch_loop.polyak()),
}
FEW = ("normalised", "Polyak")  # at the larger sizes: a rule costs next to nothing beside the gradient
ENDS = pt.training.At(())  # the peer records nothing, so we record the first and the last step only

ABOUT = f"""Time of {STEPS} steps from W = 0 on one attention layer (logistic loss, float64). `Direct` keeps W, `Gram` keeps one coefficient per
margin and gives the same iterates. "plain JAX" is the same normalised step on the ordinary loss, compiled: it separates what compilation
gives from what working in logarithms costs. "call" is the fixed part of our time, a call of one step; "step for step" leaves it out.
"differs" is the relative distance of our weights (the worse of the two forms) from those of PyTorch after {CHECKED} steps, "1 - corr" the distance of
either direction from the maximum-margin one at the end. "floor" is
the arithmetic of the two products with W (4nd² + 4nLd flops a step) at the speed of a matrix product."""


def compare(limits: Limits, quick: bool) -> Section:
    rows = [_row(SIZES[0], rule, limits, quick) for rule in (FEW[:1] if quick else RULES)]
    rows += [_row(size, rule, limits, quick) for size in (() if quick else SIZES[1:]) for rule in FEW]
    notes = [
        "The ratio is largest where PyTorch spends its time on dispatching small operations, and shrinks as the arithmetic grows: "
        "at d = 200 `Direct` is within a factor of about two of its floor and few times faster than PyTorch; only `Gram`, whose cost does not depend on d, keeps a larger lead.",
        "Against compiled code that forgoes logarithms (plain JAX) we are slower at every size. Over these 1000 normalised steps the ordinary loss is still "
        "accurate enough; where steps reach further it is not, and the last two columns show it: with momentum PyTorch leaves the right direction, with Polyak's rule "
        "it stands still once L - L* has cancelled, so there its time is that of steps no one wants.",
        "The first call compiles for some seconds, the time of thousands of eager steps: for one short run at a new size PyTorch finishes first.",
    ]
    return Section("steps", "Descent against an eager PyTorch loop", ABOUT, rows, notes)


def _row(size: tuple[int, int, int], rule: str, limits: Limits, quick: bool) -> dict[str, Any]:
    n, length, d = size
    say(f"steps: {rule}, n={n} L={length} d={d}")
    data = random_tokens(n, length, d, 0, equal_scores=True)
    reference = pt.references.max_margin(data).weight
    ours, theirs = RULES[rule]
    direct, gram = (pt.Setting(data, form, pt.Logistic()) for form in (pt.Direct(), pt.settings.Gram(data)))
    peer = _Peer(torch_loop.Attention(data), theirs, np.zeros((d, d)))
    tasks = {"PyTorch": lambda: peer(STEPS), "Direct": lambda: _train(direct, ours), "Gram": lambda: _train(gram, ours)}
    if rule == "normalised":
        plain = _plain(data, 0.1)
        tasks["plain JAX"] = lambda: jax.block_until_ready(plain(jnp.zeros((d, d))))
        tasks["plain JAX"]()
    first = once(tasks["Direct"])[1]
    tasks["Gram"]()
    times = alternate(tasks | {"call": lambda: _train(direct, ours, 1)}, 3 if quick or d >= 200 else 5)
    per_step = times["PyTorch"].median / (times["Direct"].median - times["call"].median)
    return {
        "n, L, d": f"{n}, {length}, {d}",
        "rule": rule,
        **{name: times.get(name) for name in ("PyTorch", "Direct", "Gram", "plain JAX", "call")},
        "Direct is faster by": ratio(times["PyTorch"], times["Direct"]),
        "step for step": Ratio(per_step),
        "Gram is faster by": ratio(times["PyTorch"], times["Gram"]),
        "first call (Direct)": first,
        "floor": seconds(STEPS * limits.seconds(4 * n * d * d + 4 * n * length * d)),
        f"differs at {CHECKED}": _difference((direct, gram), ours, peer),
        "1 - corr, ours": misalignment(_train(direct, ours).weight(), reference),
        "1 - corr, PyTorch": misalignment(peer(STEPS), reference),
    }


@dataclass(frozen=True)
class _Peer:
    problem: torch_loop.Attention
    update: torch_loop.Update
    start: np.ndarray

    def __call__(self, steps: int) -> np.ndarray:
        return torch_loop.descend(self.problem, self.update, steps, self.start)


def _train(setting: pt.Setting, optimiser: Any, steps: int = STEPS) -> Any:
    run = pt.train(setting, optimiser, steps=steps, recorder=ENDS)
    if run.steps[-1] != steps:
        raise RuntimeError(
            f"the run ended after {run.steps[-1]} steps, so its time would flatter us: {run.status.message}"
        )
    return run


def _difference(settings: tuple, optimiser: Any, peer: _Peer) -> float:
    found, weight = [_train(setting, optimiser, CHECKED).weight() for setting in settings], peer(CHECKED)
    return max(float(np.linalg.norm(one - weight) / np.linalg.norm(one)) for one in found)


def _plain(data: Any, length: float) -> Any:
    """Normalised descent on the loss itself, as one would write it in JAX."""

    def loss(weight: jax.Array) -> jax.Array:
        attention = jax.nn.softmax(data.logits(weight), axis=1)
        return jnp.mean(jax.nn.softplus(-jnp.sum(attention * data.scores, axis=1)))

    def step(_: Any, weight: jax.Array) -> jax.Array:
        gradient = jax.grad(loss)(weight)
        return weight - length * gradient / jnp.linalg.norm(gradient)

    return eqx.filter_jit(lambda start: jax.lax.fori_loop(0, STEPS, step, start))
