"""penchant side by side with its peers, in one process on one core: `python -m benchmarks [names...] [--quick]`.

Figures are recorded, never asserted: a benchmark that could fail a build would end up being tuned for the build.
"""

import os
import sys

# Before numpy, jax and torch size their thread pools: every contestant gets one core.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
os.environ |= dict.fromkeys(THREADS, "1")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # a cold time with a warm disk cache would not be cold
if sys.platform == "linux":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
