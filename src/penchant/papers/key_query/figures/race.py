"""Which of a run's certificates is first to prove a gap: gathered, window, momentary multipliers, or the best mixture of all."""

from collections.abc import Iterator

import numpy as np

from ....exhibits import Finding, Shown, Table
from ....norms import L1, L2, Norm, Nuclear
from ....references.nuclear_margin import nuclear_margin
from ....settings.base import Setting
from ....settings.diagonal import DiagonalTokens
from ....settings.factored import Hadamard, KeyQuery
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct
from ....settings.token_generators import aligned_tokens, equal_score_tokens
from ....theory.certificate_mix import Race, race
from ....theory.certificates import KINDS
from ....theory.uniqueness import certified_rank
from ....training.trajectory import Trajectory
from ....verdict import Verdict, all_of, at_most
from .curves import Progress, flow_to

_LEVELS = (1e-1, 1e-2, 1e-3, 1e-4)
_KINDS = (*KINDS, "mixed")


def _entries(seed: int, full: bool) -> Iterator[tuple[str, Trajectory, Norm]]:
    """What runs: K and Q on generic data, the same on aligned data, their diagonals, and W."""
    for number in range(seed, seed + (4 if full else 2)):
        data = equal_score_tokens(3, 4, 5, number)
        rank = certified_rank(data, nuclear_margin(data))
        setting = Setting(data, KeyQuery(), Exponential())
        yield (
            f"K Q, data {number}, rank {rank}",
            flow_to(setting, setting.start(100 + number, 0.1 / np.sqrt(5)), 1e6),
            Nuclear(),
        )
    aligned = aligned_tokens(seed=1 + seed)
    start = aligned.start((0.1, 0.2, 0.15, 0.1, 0.3, 0.2), 7, 5 + seed)
    yield "K Q, aligned", flow_to(Setting(aligned.data, KeyQuery(7), Exponential()), start, 1e6), Nuclear()
    for number in (5 + seed, 6 + seed) if full else (5 + seed,):
        diagonal = DiagonalTokens(equal_score_tokens(4, 4, 12, number))
        first = Hadamard().one_sided(diagonal, 1.0, np.random.default_rng(0))
        yield f"diagonal, data {number}", flow_to(Setting(diagonal, Hadamard(), Exponential()), first, 1e6), L1()
    direct = Setting(equal_score_tokens(3, 4, 5, 1 + seed), Direct(), Exponential())
    yield f"W, data {1 + seed}", flow_to(direct, None, 1e6), L2()


def race_parts(seed: int, full: bool, progress: Progress) -> tuple[Finding, Table]:
    """The finding that a mixture is never later, and the table of all races."""
    races = {}
    for name, run, norm in _entries(seed, full):
        progress(f"race of certificates: {name}")
        races[name] = race(run, norm, _LEVELS)
    finding = Finding(
        "Gathered multipliers are never the first to certify a gap of 1e-2 where K and Q (or their diagonals) are trained.",
        _gathered_last({name: found for name, found in races.items() if not name.startswith("W")}),
        "observed",
    )
    return finding, _table(races)


def _gathered_last(races: dict[str, Race]) -> Verdict:
    level = _LEVELS.index(1e-2)
    slow = lambda found: min(
        float(found.margins["accumulated"][level]), 1e12
    )  # a gap never reached counts as one at the end
    return all_of(
        *(
            at_most(
                float(found.margins["instant"][level]),
                slow(found),
                f"margin of a gap of 1e-2 at the moment's multipliers, {name}",
            )
            for name, found in races.items()
        )
    )


def _table(races: dict[str, Race]) -> Table:
    cell = lambda margin: Shown(margin, ".1e") if np.isfinite(margin) else "-"
    rows = tuple(
        (name, Shown(level, ".0e"), *(cell(float(found.margins[kind][k])) for kind in _KINDS), found.first(k))
        for name, found in races.items()
        for k, level in enumerate(_LEVELS)
    )
    caption = (
        "The margin at which the best bounds so far first enclose the optimum to the relative gap, to margin 1e6 with four records a decade; "
        "`mixed` is the best convex combination of all dual points up to there, so it is never later than the others."
    )
    return Table("race", "Which certificate is first", ("run", "gap", *_KINDS, "first"), rows, caption)
