"""Training keys and queries: time to a given nuclear excess, against the published practice."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import penchant as pt
from penchant.theory.judge import excess

from .machine import Limits
from .section import Section, ratio
from .timing import alternate, once, say
from .torch_loop import Attention

SIZES = ((6, 5, 10), (20, 8, 32))
LEVELS = (3e-1, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
LENGTH, DECAY = 0.05, 2e-16
STEPS, COMPILED_STEPS, INTERVAL = 20_000, 200_000, 50

ABOUT = f"""Time until the nuclear norm at margin 1 exceeds its minimum by less than a level, on attention with equal scores and the logistic loss, from
the same random K and Q of deviation 0.01. The published practice is normalised descent on both matrices (length {LENGTH:g}) in eager PyTorch, float64, with
a weight decay of {DECAY:g} that keeps the gradient from being exactly 0; it may take {STEPS:,} steps. "normalised descent" is the same rule in logarithms,
compiled, without decay (ours, {COMPILED_STEPS:,} steps); "flow" is our gradient flow. Runs are followed once to learn where they pass a level, and
then timed to there without looking."""

Contestant = Callable[[float], Callable[[], Any] | str]


def compare(limits: Limits, quick: bool) -> Section:
    rows = [row for size in (SIZES[:1] if quick else SIZES) for row in _ladder(size, quick)]
    notes = [
        "In floating point the loss has no gradient left once margins pass about 36; what then moves the weights is the decay, towards 0. The practice "
        "therefore stops short of an excess that no budget improves.",
        "To the excesses it does reach the practice is faster than the flow, and the same rule in logarithms, compiled, faster than both: a step of the flow "
        "solves N x N systems. The flow catches up where excesses are small, because it multiplies the margin where descent adds to it, and it alone "
        "has the physical time.",
    ]
    return Section("key-query", "Keys and queries: the flow against the published practice", ABOUT, rows, notes)


def _ladder(size: tuple[int, int, int], quick: bool) -> list[dict[str, Any]]:
    data = pt.settings.equal_score_tokens(*size, 0, gap=1.0)
    setting, reference = pt.Setting(data, pt.KeyQuery(), pt.Logistic()), pt.references.nuclear_margin(data)
    start = setting.start(1, 0.01)
    contestants: dict[str, Contestant] = {
        "flow": _flow(setting, start, reference),
        "PyTorch": _published(data, start, reference),
        "normalised descent": _descent(setting, start, reference),
    }
    rows = []
    for level in LEVELS[:3] if quick else LEVELS:
        say(f"key-query: n, L, d = {size}, excess {level:g}")
        tasks = {name: contestant(level) for name, contestant in contestants.items()}
        timed = {name: task for name, task in tasks.items() if not isinstance(task, str)}
        times = alternate(timed, 1 if quick else 3)
        cells = {name: times.get(name, task) for name, task in tasks.items()}
        ratios = {
            f"faster than {name}": ratio(times[name], times["flow"])
            for name in times
            if name != "flow" and "flow" in times
        }
        rows.append({"n, L, d": ", ".join(map(str, size)), "excess": f"{level:g}", **cells, **ratios})
    return rows


def _first(excesses: list[float], level: float) -> int | None:
    return next((k for k, value in enumerate(excesses) if value <= level), None)


def _followed(run: Any, reference: Any) -> list[float]:
    return [excess(run.setting.data, run.weight(k), reference) for k in range(len(run))]


def _flow(setting: pt.Setting, start: Any, reference: Any) -> Contestant:
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.MarginAbove(1e7), steps=5000)
    values = _followed(run, reference)

    def contestant(level: float) -> Callable[[], Any] | str:
        record = _first(values, level)
        if record is None:
            return f"failed: {min(values):.1e}"
        steps = int(run.steps[record])
        return lambda: pt.train(setting, pt.GradientFlow(), start, steps=steps, recorder=pt.flow.Levels("margin", ()))

    return contestant


def _descent(setting: pt.Setting, start: Any, reference: Any) -> Contestant:
    train = lambda steps, recorder: pt.train(
        setting, pt.normalised_descent(LENGTH), start, steps=steps, recorder=recorder
    )
    run = train(COMPILED_STEPS, pt.training.LogSpaced(300))
    train(1, pt.training.At(()))  # compiles for the short schedule
    values = _followed(run, reference)

    def contestant(level: float) -> Callable[[], Any] | str:
        record = _first(values, level)
        if record is None:
            return f"failed: {min(values):.1e} after {COMPILED_STEPS:,} steps"
        return lambda: train(int(run.steps[record]), pt.training.At(()))

    return contestant


def _published(data: Any, start: Any, reference: Any) -> Contestant:
    problem, begin = Attention(data), [np.array(leaf) for leaf in (start.key, start.query)]
    seen: list[tuple[int, float]] = []
    look = lambda step, key, query: seen.append((step, excess(data, key @ query.T, reference)))
    _, spent = once(lambda: _practice(problem, begin, STEPS, look))

    def contestant(level: float) -> Callable[[], Any] | str:
        record = _first([value for _, value in seen], level)
        if record is None:
            best = min(seen, key=lambda pair: pair[1])
            return f"failed: best {best[1]:.2g} at step {best[0]:,}, then {seen[-1][1]:.2g} after {STEPS:,} steps and {spent.median:.0f} s"
        return lambda: _practice(problem, begin, seen[record][0], None)

    return contestant


def _practice(problem: Attention, begin: list[np.ndarray], steps: int, look: Any) -> tuple[np.ndarray, ...]:
    """Normalised descent on K and Q with the published weight decay."""
    factors = [torch.tensor(array, requires_grad=True) for array in begin]
    for step in range(steps):
        if look is not None and step % INTERVAL == 0:
            look(step, *(factor.detach().numpy() for factor in factors))
        loss = problem.loss(factors[0] @ factors[1].T)
        gradients = torch.autograd.grad(loss, factors)
        with torch.no_grad():
            pulls = [gradient + DECAY * factor for gradient, factor in zip(gradients, factors, strict=True)]
            length = torch.sqrt(sum(pull.square().sum() for pull in pulls))
            for factor, pull in zip(factors, pulls, strict=True):
                factor -= (LENGTH / length) * pull
    return tuple(factor.detach().numpy() for factor in factors)
