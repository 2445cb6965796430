"""What the figures were measured on, and the two physical limits of one of its cores."""

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("penchant", "jax", "numpy", "scipy", "torch", "cvxpy", "clarabel", "scs", "diffrax")


@dataclass(frozen=True)
class Limits:
    """Flops per second of a float64 matrix product and bytes per second of a copy larger than the caches."""

    flops: float
    bytes: float

    def seconds(self, flops: float, traffic: float = 0.0) -> float:
        """No program on this core does the given work faster than this."""
        return max(flops / self.flops, traffic / self.bytes)


def limits() -> Limits:
    square, long = np.ones((700, 700)), np.ones(16_000_000)
    target = np.empty_like(long)
    product = _fastest(lambda: square @ square)
    copy = _fastest(lambda: np.copyto(target, long))
    return Limits(2 * 700**3 / product, 2 * long.nbytes / copy)


def _fastest(task: Any) -> float:
    times = []
    for _ in range(8):
        begin = time.process_time()
        task()
        times.append(time.process_time() - begin)
    return min(times)


def describe(found: Limits) -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cores used": 1,
        "load average at the start": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES if find_spec(name) is not None},
        "matrix product, one core": f"{found.flops / 1e9:.0f} Gflop/s",
        "copy, one core": f"{found.bytes / 1e9:.0f} GB/s",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
