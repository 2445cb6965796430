"""One configuration for every test: float64, one thread, strict ranks, fixed seeds, compiled code kept between runs."""

import gc
import os
from pathlib import Path

import hypothesis
import jax
import numpy as np
import pytest

from penchant.cache import compile_quickly

ONE_CORE = "--xla_cpu_multi_thread_eigen=false"
CACHE = Path(__file__).resolve().parents[1] / ".cache"

os.environ.setdefault("PENCHANT_CACHE", str(CACHE / "penchant"))  # never the folder of whoever runs the tests
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(CACHE / "jax")))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

hypothesis.settings.register_profile(
    "penchant",
    deadline=None,  # the first example of a shape compiles
    derandomize=True,  # a red run must be red again tomorrow
    database=None,
)
hypothesis.settings.load_profile("penchant")


def pytest_addoption(parser):
    parser.addoption("--optimised", action="store_true", help="compile as users do: slower, and other roundings")


def pytest_configure(config):
    os.environ.setdefault("XLA_FLAGS", ONE_CORE)  # read when the first array is made
    if not config.getoption("--optimised"):
        compile_quickly()  # tests compile much and run little


def pytest_unconfigure():
    gc.unfreeze()  # what the commands have set aside: DuckDB's nanobind would tell of leaks, which are none


@pytest.fixture
def rng(request):
    """A generator that depends on the name of the test and on nothing else."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Compiled code of one file is of no use to the next one, and a worker that keeps it all grows to gigabytes."""
    yield
    jax.clear_caches()
