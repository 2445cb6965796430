"""Deep linear networks: descent steps against eager PyTorch, and how our costs grow with depth and width."""

from typing import Any

import numpy as np
import torch

import penchant as pt
from penchant.settings.deep_linear import ensure_assumption2
from penchant.settings.generators import strips, teacher

from .machine import Limits
from .section import Section, ratio
from .timing import Timing, alternate, once, say

STEP, STEPS, CHECKED = 0.1, 1000, 10
PAIRS = ((2, 8), (4, 8), (8, 8), (4, 64), (4, 256))
DEPTHS, WIDTHS = (2, 4, 8), (16, 32, 64, 128)
FLOW_STEPS = 10

ABOUT = f"""Gradient descent with step {STEP} on the logistic risk of two strips in the plane (n = 40), {STEPS} steps, float64; PyTorch is eager, with gradients by
autograd and nothing recorded. "call" is the fixed part of our time, a call of one step. "differs" is the relative distance of the layers after {CHECKED} steps.
Below, the time of a single step of the flow, n = 100 points in 16 dimensions, as depth (at width 16) and width (at depth 4) grow; "exponent" is the slope of log
time against log size from the row before. Ours solves n x n systems whatever the width; a solver with a dense Jacobian would factorise as many unknowns as there are parameters."""


def compare(limits: Limits, quick: bool) -> Section:
    rows = [_against_torch(depth, width) for depth, width in (PAIRS[:1] if quick else PAIRS)]
    rows += _growth("depth", [(depth, 16) for depth in (DEPTHS[:2] if quick else DEPTHS)])
    if not quick:
        rows += _growth("width", [(4, width) for width in WIDTHS])
    notes = [
        "The lead hardly shrinks as layers widen, because the work is not the same: gradients have rank one, so we multiply layers with single vectors, the loop with all n points.",
        "A step of the flow costs little more for wider layers, until products of layers outweigh the n x n systems.",
    ]
    return Section("deep_linear_growth", "Deep linear networks: steps and growth", ABOUT, rows, notes)


def _start(setting: pt.Setting) -> Any:
    width = max(setting.parametrisation.widths)
    return ensure_assumption2(setting, setting.start(1, 1 / np.sqrt(width)))


def _against_torch(depth: int, width: int) -> dict[str, Any]:
    say(f"deep_linear_growth: descent, depth {depth}, width {width}")
    setting = pt.Setting(strips(0), pt.DeepLinear((width,) * (depth - 1)), pt.Logistic())
    start = _start(setting)
    train = lambda steps: pt.train(setting, pt.gradient_descent(STEP), start, steps=steps, recorder=pt.training.At(()))
    peer = lambda steps: _descend(np.asarray(setting.data.signed), start, steps)
    first = once(lambda: train(STEPS))[1]
    times = alternate({"PyTorch": lambda: peer(STEPS), "ours": lambda: train(STEPS), "call": lambda: train(1)}, 3)
    pairs = zip(train(CHECKED).at(), peer(CHECKED), strict=True)
    return {
        "what": f"{STEPS} descent steps",
        "depth": depth,
        "width": width,
        **{name: times[name] for name in ("ours", "PyTorch", "call")},
        "faster than PyTorch": ratio(times["PyTorch"], times["ours"]),
        "first call": first,
        "differs": max(float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in pairs),
    }


def _descend(signed: np.ndarray, start: Any, steps: int) -> list[np.ndarray]:
    """The loop one would write: the layers in a list, autograd, no optimiser object."""
    points = torch.tensor(signed)
    layers = [torch.tensor(np.asarray(layer), requires_grad=True) for layer in start]
    for _ in range(steps):
        features = points.T
        for layer in layers:
            features = layer @ features
        risk = torch.nn.functional.softplus(-features[0]).mean()
        gradients = torch.autograd.grad(risk, layers)
        with torch.no_grad():
            for layer, gradient in zip(layers, gradients, strict=True):
                layer -= STEP * gradient
    return [layer.detach().numpy() for layer in layers]


def _growth(axis: str, sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    data, before = teacher(100, 16, 0, push=0.2), None
    for depth, width in sizes:
        say(f"deep_linear_growth: flow, depth {depth}, width {width}")
        setting = pt.Setting(data, pt.DeepLinear((width,) * (depth - 1)), pt.Exponential())
        time, first = _flow_step(setting)
        size = depth if axis == "depth" else width
        slope = None if before is None else float(np.log(time.median / before[1]) / np.log(size / before[0]))
        parameters = sum(rows * columns for rows, columns in setting.parametrisation.shapes(data))
        rows.append(
            {
                "what": "step of the flow",
                "depth": depth,
                "width": width,
                "ours": time,
                "first call": first,
                "parameters": parameters,
                f"exponent of the {axis}": slope,
            }
        )
        before = (size, time.median)
    return rows


def _flow_step(setting: pt.Setting) -> tuple[Timing, Timing]:
    start = _start(setting)
    run = lambda: pt.train(setting, pt.GradientFlow(), start, steps=FLOW_STEPS)
    first = once(run)[1]
    return alternate({"": run}, 3)[""].scaled(1 / FLOW_STEPS), first
