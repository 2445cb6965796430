"""Loss and gradient of attention on an accelerator: `python -m benchmarks.accelerator [--out FILE] [--sizes N ...]`.

On its own because it needs a GPU with PyTorch and JAX on it, and nothing else that the other comparisons use.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch shares the device

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

jax.config.update("jax_enable_x64", True)

from penchant.files import write_bytes  # noqa: E402
from penchant.papers.attention_regression.setting.context_sums import context_sums  # noqa: E402

WIDTH = 64
SIZES = (16_384, 65_536, 131_072)
SPREADS = (0.125, 1.25)
"""Operator scale of V: at 0.125 logits have standard deviation 1 and attention is spread out, at 1.25 it is all but saturated."""

HEADER = """# Attention on an accelerator

Loss and gradients by U and V of softmax attention regression at d = m = 64, everything on one {device}. "ours" is `context_sums` as it runs by default;
with 2 slices it keeps 16 bits of each factor of a product; "blocked" is the form for processors. PyTorch is `scaled_dot_product_attention` with its backward
pass. An error is the Frobenius distance from the float64 result of the blocked form, relative, for (loss, gradient by U, gradient by V). "floor" is the arithmetic of
the products (5 for two passes, 4 where weights are kept) at the speed of a large matrix product measured in the same process: {peaks}.
Times are medians of {repeats} calls after a first one. V has Gaussian entries of standard deviation `spread` / 8.

At spread 1.25 the logits have standard deviation 10 and the softmax is all but saturated. The gradient by V then loses digits in float32, in the default form
and in PyTorch's alike, and the more the larger n is; the blocked form keeps them, at several times the time. Ratios of times depend on n too.
"""

Contestant = Callable[[], Any]


def problem(count: int, spread: float) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((count, WIDTH))
    key_query = rng.standard_normal((WIDTH, WIDTH)) * spread / np.sqrt(WIDTH)
    planted, value = (rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH) * size for size in (0.1, 1.0))
    targets = inputs @ planted.T + 0.03 * rng.standard_normal((count, WIDTH))
    return inputs, targets, value, key_query


def ours(arrays: tuple[np.ndarray, ...], dtype: Any, **options: Any) -> Contestant:
    placed = [jnp.asarray(array, dtype) for array in arrays]
    return lambda: jax.block_until_ready(context_sums(*placed, **options))


def peer(arrays: tuple[np.ndarray, ...], dtype: torch.dtype, backend: SDPBackend) -> Contestant:
    inputs, targets, value, key_query = (torch.tensor(array, dtype=dtype, device="cuda") for array in arrays)
    parameters = (value.requires_grad_(), key_query.requires_grad_())

    def run() -> tuple:
        stack = inputs[None, None]
        with sdpa_kernel(backend):
            means = torch.nn.functional.scaled_dot_product_attention(
                (inputs @ key_query.T)[None, None], stack, stack, scale=1.0
            )[0, 0]
        loss = ((means @ value.T - targets) ** 2).sum() / len(inputs)
        slopes = torch.autograd.grad(loss, parameters)
        torch.cuda.synchronize()
        return loss.detach(), *slopes

    return run


def timed(call: Contestant, repeats: int) -> tuple[list[np.ndarray], float]:
    """Arrays of the result, and the median time in milliseconds."""
    found, times = call(), []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    leaves = jax.tree.leaves(found) if not isinstance(found, tuple) else [leaf.double().cpu().numpy() for leaf in found]
    return [np.asarray(leaf, float) for leaf in leaves], 1e3 * float(np.median(times))


def errors(found: list[np.ndarray], exact: list[np.ndarray]) -> str:
    gaps = [np.linalg.norm(one - other) / np.linalg.norm(other) for one, other in zip(found, exact, strict=True)]
    return ", ".join(f"{gap:.1e}" for gap in gaps)


def peak(dtype: Any) -> float:
    """Operations per second of large matrix products, several in one call so that its overhead does not count."""
    size, products = 8192, 20
    matrix = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)) / np.sqrt(size), dtype)
    chain = jax.jit(lambda a: jax.lax.fori_loop(0, products, lambda _, b: a @ b, a))
    _, milliseconds = timed(lambda: [jax.block_until_ready(chain(matrix))[:1, :1].astype(float)], 3)
    return products * 2 * size**3 / milliseconds * 1e3


def rows(count: int, spread: float, peaks: dict[str, float], repeats: int) -> list[str]:
    arrays = problem(count, spread)
    pair = 2.0 * WIDTH * count**2  # operations of one product over all pairs
    half, exact = peaks["bfloat16"], peaks["float64"]
    reference, _ = timed(ours(arrays, jnp.float64, form="two_pass", blocks=(2048, 4096)), 1)
    contestants: list[tuple[str, Contestant, float | None]] = [
        ("ours, float32", ours(arrays, jnp.float32), 5 * 6 * pair / half),
        ("ours, float32, 2 slices", ours(arrays, jnp.float32, slices=2), 5 * 3 * pair / half),
        ("blocked, float32", ours(arrays, jnp.float32, form="two_pass", blocks=(2048, 4096)), None),
        ("PyTorch efficient, float32", peer(arrays, torch.float32, SDPBackend.EFFICIENT_ATTENTION), None),
        ("PyTorch flash, bfloat16", peer(arrays, torch.bfloat16, SDPBackend.FLASH_ATTENTION), 7 * pair / half),
        ("ours, float64", ours(arrays, jnp.float64), 4 * pair / exact),
        ("blocked, float64", ours(arrays, jnp.float64, form="two_pass", blocks=(2048, 4096)), None),
    ]
    lines = []
    for name, call, floor in contestants:
        found, milliseconds = timed(call, repeats)
        limit = "–" if floor is None else f"{1e3 * floor:.3g}"
        lines.append(f"| {count} | {spread} | {name} | {milliseconds:.4g} | {limit} | {errors(found, reference)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerator", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "ACCELERATOR.md")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if jax.default_backend() != "gpu" or not torch.cuda.is_available():
        parser.error("needs a GPU that JAX and PyTorch both see; the other comparisons run on a processor")
    peaks = {name: peak(getattr(jnp, name)) for name in ("bfloat16", "float64")}
    said = ", ".join(f"{rate / 1e12:.0f} Tflop/s in {name}" for name, rate in peaks.items())
    text = [
        HEADER.format(device=torch.cuda.get_device_name(), peaks=said, repeats=options.repeats),
        f"jax {jax.__version__}, torch {torch.__version__}\n",
        "| n | spread | contestant | ms | floor, ms | error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for spread in SPREADS:
        for count in options.sizes:
            text += rows(count, spread, peaks, options.repeats)
            write_bytes(options.out, ("\n".join(text) + "\n").encode())


if __name__ == "__main__":
    main()
