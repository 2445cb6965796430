"""The runs that the key-query claims are about, each made once and shared."""

import numpy as np

from ...errors import NotSeparableError
from ...flow.flow import GradientFlow, Levels
from ...lab import Lab, recipe
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.linear_programs import diagonal_margin
from ...references.norm_margin import nuclear_margin
from ...settings.base import Setting
from ...settings.factored import DiagonalTokens, Factors, Hadamard, KeyQuery, Pair
from ...settings.generators import Aligned, aligned_tokens, equal_score_tokens
from ...settings.losses import Exponential
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory.judge import excess
from ...training.events import LogTimeAbove, MarginAbove
from ...training.train import train
from ...training.trajectory import Trajectory
from .hypotheses import initial_loss

STEPS = 5000
TOP = 1e6
LEVELS = (1e2, 1e3, 1e4, 1e5)  # records before the last one, at TOP; landing on a level costs a dozen steps
W0 = (0.1, 0.2, 0.15, 0.1, 0.3, 0.2)
DEFAULT = GradientFlow()
COARSE = GradientFlow(
    tolerance=1e-5, margin_tolerance=1e-2
)  # for many draws: their ends differ from those of DEFAULT by 1e-4
PRECISE = GradientFlow(tolerance=3e-13, margin_tolerance=1e-7, order=6)  # for identities: what is left is rounding


def flow_to(
    setting: Setting, start: object, top: float = TOP, levels: tuple[float, ...] = LEVELS, flow: GradientFlow = DEFAULT
) -> Trajectory:
    """Gradient flow to a margin, recorded at the levels on the way."""
    recorder = Levels("margin", levels)
    return train(setting, flow, start, until=MarginAbove(top), steps=STEPS, recorder=recorder)


def keys_and_queries(seed: int, scale: float = 0.1, width: int = 5, draw: int | None = None) -> tuple[Setting, Factors]:
    """K and Q on 3 samples of 4 tokens in 5 dimensions, with a random start."""
    setting = Setting(equal_score_tokens(3, 4, 5, seed), KeyQuery(width), Exponential())
    return setting, setting.start(100 + seed if draw is None else draw, scale / np.sqrt(width))


@recipe
def matrix_run(
    lab: Lab, seed: int = 1, scale: float = 0.1, width: int = 5, draw: int | None = None
) -> tuple[Trajectory, Solution]:
    """Gradient flow on the data of `keys_and_queries` to margin 1e6, and the nuclear reference."""
    return flow_to(*keys_and_queries(seed, scale, width, draw)), nuclear(lab, seed)


@recipe
def nuclear(lab: Lab, seed: int) -> Solution:
    """The nuclear reference of the data of `matrix_run`."""
    return nuclear_margin(equal_score_tokens(3, 4, 5, seed))


@recipe
def direct_run(lab: Lab, seed: int = 1) -> tuple[Trajectory, Solution]:
    """Gradient flow on W from 0 on the same data, and the Frobenius reference."""
    data = equal_score_tokens(3, 4, 5, seed)
    return flow_to(Setting(data, Direct(), Exponential()), None), max_margin(data)


def on_diagonals(tokens: TokenSelection, scale: float | np.ndarray = 0.1) -> tuple[Setting, Pair]:
    """Diagonal K and Q on these tokens, and a start in which every coordinate has one factor of this scale and one that is 0."""
    data = DiagonalTokens(tokens)
    return Setting(data, Hadamard(), Exponential()), Hadamard().one_sided(data, scale, np.random.default_rng(0))


@recipe
def unseparated(lab: Lab) -> list[Trajectory]:
    """Twenty diagonal flows from one-sided starts on drawn data with equal scores that a full matrix separates and no diagonal does, until they settle."""
    found, seed = [], 1000 * lab.seed
    while len(found) < 20:
        tokens, seed = equal_score_tokens(4, 4, 4, seed), seed + 1
        setting, start = on_diagonals(tokens, 1.0)
        try:
            diagonal_margin(setting.data)
        except NotSeparableError as error:
            until, recorder = LogTimeAbove(25.0), Levels("margin", ())
            if error.full:
                found.append(train(setting, COARSE, start, until=until, steps=STEPS, recorder=recorder))
    return found


def diagonal(seed: int, scale: float | np.ndarray) -> tuple[Setting, Pair]:
    """Diagonal K and Q on 4 samples of 4 tokens in 12 dimensions, with a one-sided start."""
    return on_diagonals(equal_score_tokens(4, 4, 12, seed), scale)


@recipe
def diagonal_run(lab: Lab, seed: int = 5, scale: float = 1.0) -> tuple[Trajectory, Solution]:
    """Gradient flow on the data of `diagonal` to margin 1e6, and the l1 reference."""
    setting, start = diagonal(seed, scale)
    return flow_to(setting, start), diagonal_margin(setting.data)


@recipe
def precise_diagonal_run(lab: Lab) -> Trajectory:
    """`diagonal_run` to the tolerance of an identity."""
    return flow_to(*diagonal(5, 1.0), flow=PRECISE)


@recipe
def precise_aligned_run(lab: Lab) -> tuple[Trajectory, Aligned]:
    """`aligned_run` to the tolerance of an identity."""
    run, aligned = aligned_run(lab)
    return flow_to(run.setting, run.at(0), levels=(), flow=PRECISE), aligned


@recipe
def aligned_run(lab: Lab, shift: float = 0.0) -> tuple[Trajectory, Aligned]:
    """Gradient flow on aligned data from an aligned start, moved off alignment by `shift`."""
    aligned = aligned_tokens()
    start, rng = aligned.start(W0, 7, 5), np.random.default_rng(9)
    moved = Factors(*(leaf + shift * rng.standard_normal(leaf.shape) for leaf in (start.key, start.query)))
    return flow_to(Setting(aligned.data, KeyQuery(7), Exponential()), moved), aligned


@recipe
def aligned_draws(lab: Lab, shift: float = 0.0) -> list[tuple[Trajectory, Aligned]]:
    """Twenty aligned data sets of drawn lengths, shares and frames inside Assumption 3 with their flows to margin 1e3, from aligned starts moved off by `shift`."""
    found, seed = [], 1000 * lab.seed
    while len(found) < 20:
        rng = np.random.default_rng(seed)
        lengths, queries, shares = rng.uniform(0.7, 1.5, 3), rng.uniform(0.7, 1.5, 3), rng.uniform(-0.2, 0.2, 3)
        aligned = aligned_tokens(tuple(lengths), tuple(queries), tuple(shares), seed=seed)
        setting, start = (
            Setting(aligned.data, KeyQuery(7), Exponential()),
            aligned.start(rng.uniform(0.1, 0.3, 6), 7, 5),
        )
        seed += 1
        if initial_loss(setting, aligned.data, start).holds:
            moved = Factors(*(leaf + shift * rng.standard_normal(leaf.shape) for leaf in (start.key, start.query)))
            found.append((flow_to(setting, moved, 1e3, (1e2,), COARSE), aligned))
    return found


def excess_at(run: Trajectory, reference: Solution, record: int = -1) -> float:
    """How far the norm at margin 1 of a record is above its minimum, relatively."""
    return excess(run.setting.data, run.weight(record), reference)
