"""Any `torch.optim` optimiser on a setting, as it is.

It sees the gradient itself, in float64, which underflows once margins pass some 700; penchant's own rules see its logarithm.
"""

from collections.abc import Callable
from inspect import signature

import equinox as eqx
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from jaxtyping import PyTree

from ..errors import ArgumentError, kind
from ..problem import Reading, read
from ..settings.base import Setting
from ..training.events import LogSpaced
from ..training.loop import check_steps
from ..training.status import Status
from ..training.trajectory import Trajectory, describe

_look = eqx.filter_jit(read)


def follow_torch(setting: Setting, make: Callable, start: PyTree = None, steps: int = 1000) -> Trajectory:
    """Train the weight of a setting with `make([parameter])`, a torch.optim optimiser. Multipliers move as those of gradient steps of the same length.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Classification([[2.0, 0.5], [0.1, -1.0]], [1, -1]), pt.Direct(), pt.Logistic())
    >>> run = follow_torch(setting, lambda parameters: torch.optim.SGD(parameters, 0.5), steps=20)
    >>> bool(abs(run.log_excess - pt.train(setting, pt.gradient_descent(0.5), steps=20).log_excess).max() < 1e-12)
    True
    """
    begin = setting.start() if start is None else start
    weight = torch.nn.Parameter(torch.tensor(np.asarray(begin, float)))
    optimiser = make([weight])
    if not isinstance(optimiser, torch.optim.Optimizer):
        raise ArgumentError("make", "follow_torch", "a function that makes a torch.optim optimiser", kind(optimiser))
    schedule = set(LogSpaced().schedule(check_steps(steps, "follow_torch")).tolist())
    found, dual, log_time = [], 0.0, -np.inf
    look = lambda: _look(setting, weight.detach().numpy().copy())
    needs = signature(optimiser.step).parameters.get("closure")  # line searches read the loss again, where they like
    again = (lambda: _set_gradient(weight, look()),) if needs and needs.default is needs.empty else ()
    for step in range(steps + 1):
        before = weight.detach().numpy().copy()
        reading = look()
        if step in schedule:
            found.append(_record(setting, reading, before, step, log_time, dual))
        _set_gradient(weight, reading)
        optimiser.step(*again)  # pyright: ignore[reportArgumentType, reportCallIssue] (a closure returns a tensor)
        moved = np.linalg.norm(weight.detach().numpy() - before)
        multiplier = moved / np.exp(float(reading.log_slope_norm))
        dual = dual + multiplier * np.asarray(reading.weights)
        if moved > 0:
            log_time = np.logaddexp(log_time, np.log(multiplier) - float(reading.log_scale))
    series = {name: np.array([one[name] for one in found]) for name in found[0]}
    header = {**describe(setting, None), "optimiser": repr(optimiser), "steps": steps}
    return Trajectory(setting, **series, status=Status.out_of_steps, header=header)  # pyright: ignore[reportArgumentType]


def _set_gradient(weight: torch.nn.Parameter, reading: Reading) -> torch.Tensor:
    """The gradient of the loss into its place; the excess loss, as closures return it."""
    weight.grad = torch.tensor(np.exp(float(reading.log_scale)) * np.asarray(reading.slope))
    return torch.tensor(np.exp(float(reading.log_excess)))


def _record(setting: Setting, reading: Reading, weight: np.ndarray, step: int, log_time: float, dual: object) -> dict:
    return {
        "steps": step,
        "log_time": log_time,
        "log_excess": float(reading.log_excess),
        "log_slope": float(reading.log_relative_slope),
        "norm": float(setting.norm(weight)),  # pyright: ignore[reportArgumentType]
        "margins": np.asarray(reading.margins),
        "weights": np.asarray(reading.weights),
        "dual": np.zeros_like(reading.weights) + dual,
        "params": weight,
    }
