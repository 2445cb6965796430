"""Embedded evidence on joint training: the data of the paper's Figure 3, crowded data, and cached runs on them."""

import numpy as np

from ...diagnostics.direction import joint_misalignments
from ...diagnostics.rates import Rate, log_log_slope, rate
from ...lab import Lab, recipe
from ...optimisers import base as optimisers
from ...settings.joint import JointTokens, joint_setting, leaning_tokens, marked_tokens
from ...theory.joint import JointReferences, joint_references
from ...training.events import At, Every, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from .theorems import longest_token, near_orthogonal

SEEDS = range(10)
RULES = {
    "GD": optimisers.gradient_descent(0.1),
    "NGD": optimisers.block_normalised(
        0.05, 0.0, 0.0
    ),  # as one program with Eq. (13), of exponents that are numbers, too
    "Eq. (13)": optimisers.scheduled_descent(0.05),
    "joint NGD": optimisers.normalised_descent(0.05),
    "Polyak": optimisers.polyak(),
    "Polyak, cap 100": optimisers.polyak(cap=100.0),
}
SCHEDULE = At(tuple(np.unique(np.append([10, 100], np.geomspace(1e3, 1e4, 60).round()).astype(int)).tolist()))
LENGTH, LONG = 0.05, 0.3  # step lengths of the paper's figure, and of the runs that look far ahead


@recipe
def figure_data(lab: Lab) -> tuple[JointTokens, ...]:
    """The data of Figure 3, one set per seed: every sample supports the decoder."""
    return tuple(marked_tokens(seed=seed) for seed in SEEDS)


@recipe
def references(lab: Lab) -> tuple[JointReferences, ...]:
    return tuple(joint_references(data) for data in figure_data(lab))


@recipe
def fleet(lab: Lab, name: str) -> tuple[Trajectory, ...]:
    """Ten seeds of 1e4 steps in one vectorised run, by a rule of Figure 3."""
    return tuple(train([*map(joint_setting, figure_data(lab))], RULES[name], steps=10_000, recorder=SCHEDULE))


@recipe
def far_data(lab: Lab) -> tuple[JointTokens, ...]:
    """Twice as many sets, the first of them those of Figure 3."""
    return figure_data(lab) + tuple(marked_tokens(seed=seed) for seed in range(len(SEEDS), 2 * len(SEEDS)))


@recipe
def far_runs(lab: Lab) -> tuple[Trajectory, ...]:
    return tuple(
        train(
            [*map(joint_setting, far_data(lab))],
            optimisers.scheduled_descent(LONG),
            steps=100_000,
            recorder=LogSpaced(101),
        )
    )


@recipe
def orthogonal_data(lab: Lab) -> tuple[JointTokens, ...]:
    """Few samples in many dimensions, twenty times: C2, C3 and C5 hold on every seed."""
    return tuple(marked_tokens(4, 2, 600, seed=seed) for seed in range(20))


def allowed_length(sets: tuple[JointTokens, ...]) -> float:
    """The longest step that C4 allows on all of these data."""
    return 1 / (4 * max(longest_token(data) for data in sets) ** 2)


def watched(lab: Lab, group: str) -> tuple[tuple[JointTokens, ...], float]:
    """Data and length of the runs that are watched at every step.

    "figure": as in Figure 3; "inside": C1 to C5 hold; "long": the same data with steps a thousand times as long as C4 allows.
    """
    if group == "figure":
        return figure_data(lab), LENGTH
    return orthogonal_data(lab), allowed_length(orthogonal_data(lab)) * (1000 if group == "long" else 1)


@recipe
def every_step(lab: Lab, group: str) -> tuple[Trajectory, ...]:
    """4000 steps of Eq. (13), all recorded, on every data set."""
    data, length = watched(lab, group)
    return tuple(train([*map(joint_setting, data)], optimisers.scheduled_descent(length), steps=4000, recorder=Every()))


@recipe
def watched_references(lab: Lab, group: str) -> tuple[JointReferences, ...]:
    return references(lab) if group == "figure" else tuple(joint_references(data) for data in orthogonal_data(lab))


def watched_runs(lab: Lab, *groups: str) -> list[tuple[Trajectory, float, JointReferences]]:
    """All watched runs of these groups with the length of their steps and their programs."""
    return [
        (run, watched(lab, group)[1], found)
        for group in groups
        for run, found in zip(every_step(lab, group), watched_references(lab, group), strict=True)
    ]


@recipe
def far_pairs(lab: Lab) -> list[tuple[Trajectory, JointReferences]]:
    return list(zip(far_runs(lab), map(joint_references, far_data(lab)), strict=True))


def circumstances(lab: Lab, *groups: str) -> str:
    """Which conditions of the theorem the watched runs meet."""
    return "; ".join(_conditions_met(*watched(lab, group)) for group in groups)


def far_circumstances(lab: Lab) -> str:
    """The same of the long runs."""
    return _conditions_met(far_data(lab), LONG)


def _conditions_met(data: tuple[JointTokens, ...], length: float) -> str:
    n, _, d = data[0].tokens.shape
    ratios = [1 - near_orthogonal(one).slack for one in data]
    excess = length / allowed_length(data)
    third = "holds" if max(ratios) <= 1 else f"is missed by a factor {min(ratios):.2g} to {max(ratios):.2g}"
    fourth = "holds" if excess <= 1 else f"is missed by a factor {excess:.3g}"
    return f"n = {n}, d = {d}, seeds 0-{len(data) - 1}, length {length:.3g}: C3 {third}, C4 {fourth}"


@recipe
def crowded(lab: Lab, seed: int) -> JointTokens:
    """Few dimensions: some samples do not support the decoder, and Condition C5 fails."""
    return marked_tokens(10, 2, 14, 0.3, 3.0, seed)


def alignments(lab: Lab, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Steps and 1 - corr of W of a fleet."""
    pairs = zip(fleet(lab, name), references(lab), strict=True)
    return [(run.steps, joint_misalignments(run, found.attention.weight)) for run, found in pairs]


def attention_rate(lab: Lab, name: str) -> Rate:
    """Exponent of 1 - corr of W over steps 1e3 to 1e4, with its interval over the seeds."""
    return rate([log_log_slope(*one, (1e3, 1e4)) for one in alignments(lab, name)])


def norm_rate(lab: Lab, name: str, block: str) -> Rate:
    """Exponent of |W| or |u| over steps 1e3 to 1e4."""
    return rate([log_log_slope(run.steps, getattr(run, f"norm_{block}"), (1e3, 1e4)) for run in fleet(lab, name)])


@recipe
def leaning_data(lab: Lab) -> tuple[JointTokens, ...]:
    """One sample does not support the decoder; C2 holds, and C3 fails as little as it can where C5 fails."""
    return tuple(leaning_tokens(seed=seed) for seed in SEEDS)


RATIOS = tuple(
    0.1 * (1 + seed % 5) for seed in SEEDS
)  # of |u| to |W|: below 0.6 the sample without support still counts


@recipe
def leaning_runs(lab: Lab, name: str) -> tuple[Trajectory, ...]:
    """At the longest step of C4: 1e5 steps of Eq. (13), or 1e4 of blocks whose lengths have the ratios above, one per seed."""
    length = 1 / (4 * longest_token(leaning_data(lab)[0]) ** 2)
    rules = {
        "NGD": (
            optimisers.block_normalised(np.full(len(SEEDS), length), length_u=length * np.array(RATIOS)),
            10_000,
        ),
        "Eq. (13)": (optimisers.scheduled_descent(length), 100_000),
    }
    rule, steps = rules[name]
    return tuple(train([*map(joint_setting, leaning_data(lab))], rule, steps=steps, recorder=LogSpaced(101)))


def leaning_rate(lab: Lab, name: str, program: str) -> Rate:
    """Exponent in log t of 1 - corr of W to a program of the optimal tokens, over steps 1e3 to 1e5."""
    slopes = []
    for run in leaning_runs(lab, name):
        distance = joint_misalignments(run, getattr(joint_references(run.data), program).weight)
        slopes.append(log_log_slope(np.log(np.maximum(run.steps, 1)), distance, (np.log(1e3), np.log(1e5))))
    return rate(slopes)
