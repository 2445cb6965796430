"""Embedded evidence on joint training: the data of the paper's Figure 3, crowded data, and cached runs on them."""

from functools import cache

import numpy as np

from ..diagnostics.joint import joint_misalignments
from ..diagnostics.rates import Rate, log_log_slope, rate
from ..optimisers.joint import BlockNormalised, JointDescent, JointNormalised, JointPolyak, scheduled_descent
from ..settings.joint import JointTokens, marked_tokens
from ..training.joint import JointTrajectory, train_joint
from ..training.recorders import At, Every, LogSpaced
from .joint_limits import JointReferences, joint_references

SEEDS = range(10)
RULES = {
    "GD": JointDescent(0.1),
    "NGD": BlockNormalised(0.05),
    "Eq. (13)": scheduled_descent(0.05),
    "joint NGD": JointNormalised(0.05),
    "Polyak": JointPolyak(),
    "Polyak, cap 100": JointPolyak(cap=100.0),
}
SCHEDULE = At(tuple(np.unique(np.append([10, 100], np.geomspace(1e3, 1e4, 60).round()).astype(int)).tolist()))
LENGTH, LONG = 0.05, 0.3  # step lengths of the paper's figure, and of the runs that look far ahead


@cache
def figure_data() -> tuple[JointTokens, ...]:
    """The data of Figure 3, one set per seed: every sample supports the decoder."""
    return tuple(marked_tokens(seed=seed) for seed in SEEDS)


@cache
def references() -> tuple[JointReferences, ...]:
    return tuple(joint_references(data) for data in figure_data())


@cache
def fleet(name: str) -> tuple[JointTrajectory, ...]:
    """Ten seeds of 1e4 steps in one vectorised run."""
    return tuple(train_joint(figure_data(), RULES[name], steps=10_000, recorder=SCHEDULE))


@cache
def far_runs() -> tuple[JointTrajectory, ...]:
    return tuple(train_joint(figure_data(), scheduled_descent(LONG), steps=100_000, recorder=LogSpaced(101)))


@cache
def every_step() -> JointTrajectory:
    return train_joint(figure_data()[0], scheduled_descent(LENGTH), steps=4000, recorder=Every())


@cache
def crowded(seed: int) -> JointTokens:
    """Few dimensions: some samples do not support the decoder, and Condition C5 fails."""
    return marked_tokens(10, 2, 14, 0.3, 3.0, seed)


@cache
def crowded_runs(name: str, seeds: tuple[int, ...] = (0, 1, 2, 13, 15)) -> dict[int, JointTrajectory]:
    rule = BlockNormalised(LENGTH) if name == "NGD" else scheduled_descent(LONG)
    runs = train_joint([crowded(seed) for seed in seeds], rule, steps=60_000, recorder=At((100, 1000, 10_000)))
    return dict(zip(seeds, runs, strict=True))


def attention_rate(name: str) -> Rate:
    """Exponent of 1 - corr of W over steps 1e3 to 1e4, with its interval over the seeds."""
    pairs = zip(fleet(name), references(), strict=True)
    return rate(
        [log_log_slope(run.steps, joint_misalignments(run, found.attention.weight), (1e3, 1e4)) for run, found in pairs]
    )


def norm_rate(name: str, block: str) -> Rate:
    """Exponent of |W| or |u| over steps 1e3 to 1e4."""
    return rate([log_log_slope(run.steps, getattr(run, f"norm_{block}"), (1e3, 1e4)) for run in fleet(name)])
