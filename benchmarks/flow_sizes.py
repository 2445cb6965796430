"""The flow from small to large: every task in a process of its own, with nothing compiled before."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

import penchant as pt
from penchant.settings.generators import random_tokens, separable

from .machine import Limits
from .section import Section
from .timing import Timing, once, say

LADDER = (2_500, 5_000, 10_000)

ABOUT = """Gradient flow to margin 1e6 (breast cancer: without an end, as `train` chooses it), logistic loss, default tolerances. Each row is one process that finds no compiled
program: "first call" has compilation in it, "again" is the same call once more, "MiB" the largest memory of the process. The exponent is that of n in "again" since the row above."""

Made = tuple[pt.Setting, Any]


def _linear(n: int) -> Made:
    return pt.Setting(separable(n, 100, seed=0), pt.Direct(), pt.Logistic()), None


def _tokens(size: tuple[int, int, int]) -> Made:
    return pt.Setting(random_tokens(*size, 0, equal_scores=True), pt.Direct(), pt.Logistic()), None


def _product() -> Made:
    setting = pt.Setting(random_tokens(50, 10, 64, 0, equal_scores=True), pt.KeyQuery(), pt.Logistic())
    return setting, setting.start(0, 0.1)


def _cancer() -> Made:
    inputs, labels = load_breast_cancer(return_X_y=True)
    inputs = np.c_[(inputs - inputs.mean(axis=0)) / inputs.std(axis=0), np.ones(len(inputs))]
    return pt.Setting(pt.Classification(inputs, 2 * labels - 1), pt.Direct(), pt.Logistic()), None


TASKS: dict[str, Callable[[], Made]] = {
    "attention, n, L, d = 6, 5, 10": lambda: _tokens((6, 5, 10)),
    "breast cancer with bias": _cancer,
    **{f"linear, d = 100, n = {n:,}": lambda n=n: _linear(n) for n in LADDER},
    "keys and queries, n, L, d = 50, 10, 64": _product,
    "attention, n, L, d = 200, 20, 100": lambda: _tokens((200, 20, 100)),
}


def measure(name: str) -> dict[str, Any]:
    """One task, in this process."""
    setting, start = TASKS[name]()
    until = None if "cancer" in name else pt.MarginAbove(1e6)
    train = lambda: pt.train(setting, pt.GradientFlow(), start, until=until)
    run, first = once(train)
    again = once(train)[1]
    facts = {"steps": int(run.steps[-1]), "ended": run.status.name}
    if "cancer" in name:
        facts["verdict"] = pt.judge(pt.predict(setting, pt.GradientFlow(), setting.start()), run).outcome.name
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"task": name, "first": first.median, "again": again.median, **facts, "MiB": peak}


def _apart(name: str) -> dict[str, Any]:
    say(f"flow-sizes: {name}")
    told = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    found = subprocess.run([sys.executable, "-m", __name__, name], env=told, capture_output=True, text=True, check=True)
    row = json.loads(found.stdout)
    for key, column in (("first", "first call"), ("again", "again")):
        seconds = row.pop(key)
        row[column] = Timing(seconds, seconds, seconds, 1)
    return row


def compare(limits: Limits, quick: bool) -> Section:
    rows = [_apart(name) for name in (list(TASKS)[:2] if quick else TASKS)]
    ladder = [row for row in rows if row["task"].startswith("linear")]
    for small, large, n, m in zip(ladder, ladder[1:], LADDER, LADDER[1:], strict=False):
        large["exponent"] = float(np.log(large["again"].median / small["again"].median) / np.log(m / n))
    notes = ["No peer is in this table: it is what a flow costs."]
    return Section("flow-sizes", "The flow from small to large", ABOUT, rows, notes)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
