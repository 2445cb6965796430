"""Loss and gradient of attention over a sample of n: quadratic in time, flat in memory, against PyTorch's fused attention."""

import resource
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from penchant.papers.attention_regression.setting.context_sums import context_sums
from penchant.papers.attention_regression.setting.sample import attention_experiment

from .machine import Limits
from .section import Section, ratio, seconds
from .timing import alternate, once, say

SIZES = (2000, 10_000, 20_000, 40_000, 100_000)
QUICK = (1000, 2000, 4000)
PEER_LIMIT = 20_000  # PyTorch is timed up to here
REPEATED = 40_000  # beyond, the first call is the measurement: compilation is a small part of it

ABOUT = """Empirical loss and both gradients at d = 5, m = 10 in float64. "ours" is `context_sums` (one exponential per pair, blocks of queries,
no n x n array), "PyTorch" `scaled_dot_product_attention` with its backward pass. "exponent" is the slope of
log time against log n from the row above; memory is the peak of the process after the row. The floor counts 52 operations per pair, the exponential as none."""


def compare(limits: Limits, quick: bool) -> Section:
    rows: list[dict[str, Any]] = []
    for n in QUICK if quick else SIZES:
        say(f"attention regression, n = {n}")
        rows.append(_row(n, limits, rows[-1] if rows else None))
    notes = [
        "Two exponentials per pair cannot be avoided where PyTorch recomputes weights in its backward pass; ours has one, and two products with the keys on either side of it.",
        "Peak memory is that of the process: imports and compiled code are most of it.",
    ]
    return Section("attention-regression", "Attention over a sample", ABOUT, rows, notes)


def _row(n: int, limits: Limits, above: dict[str, Any] | None) -> dict[str, Any]:
    found = attention_experiment(n=n)
    x, y = jnp.asarray(found.inputs), jnp.asarray(found.targets)
    layer = found.start
    call = lambda: jax.block_until_ready(context_sums(x, y, layer.value, layer.key_query))
    tasks: dict[str, Callable[[], Any]] = {"ours": call}
    ours, first = once(call)
    peer = _peer(found) if n <= PEER_LIMIT else None
    if peer is not None:
        tasks["PyTorch"] = peer
    times = alternate(tasks, 3) if n <= REPEATED else {"ours": first}
    gap = None if peer is None else _gap(ours, peer())
    return {
        "n": n,
        "first call": first,
        **times,
        "ours beats PyTorch by": ratio(times["PyTorch"], times["ours"]) if peer is not None else None,
        "per pair": seconds(times["ours"].median / n**2),
        "floor": seconds(limits.seconds(52.0 * n**2)),
        "exponent": None
        if above is None
        else float(np.log(times["ours"].median / above["ours"].median) / np.log(n / above["n"])),
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "differs": gap,
    }


def _peer(found: Any) -> Callable[[], tuple]:
    """The same loss and gradients by PyTorch: queries V x, keys and values x, scale 1."""
    x, y = torch.tensor(found.inputs), torch.tensor(found.targets)
    value = torch.tensor(np.asarray(found.start.value), requires_grad=True)
    key_query = torch.tensor(np.asarray(found.start.key_query), requires_grad=True)

    def run() -> tuple:
        value.grad = key_query.grad = None
        stack = x[None, None]
        means = torch.nn.functional.scaled_dot_product_attention((x @ key_query.T)[None, None], stack, stack, scale=1.0)
        loss = ((means[0, 0] @ value.T - y) ** 2).sum() / len(x)
        loss.backward()
        return loss.item(), value.grad.numpy(), key_query.grad.numpy()

    return run


def _gap(ours: Any, theirs: tuple) -> float:
    """Largest difference of the key-query gradients, relative."""
    return float(np.abs(np.asarray(ours.key_query) - theirs[2]).max() / np.abs(theirs[2]).max())
