"""Phase diagrams of token selection: where Polyak's step is stable, and where training ends globally."""

from collections.abc import Callable, Sequence
from itertools import product

import equinox as eqx
import numpy as np

from ....diagnostics.rates import linear_slope, settling
from ....errors import InfeasibleSVM
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....lab import Lab, Study, claims_in
from ....optimisers.base import normalised_descent, polyak
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....settings.generators import local_pair, random_tokens, signal_tokens
from ....settings.losses import Exponential
from ....settings.parametrisations import Gram
from ....settings.tokens import TokenSelection
from ....theory.selections import Limit, detect_limit
from ....theory.token_hypotheses import stability_number
from ....training.recorders import At, LogSpaced
from ....training.train import train
from ....verdict import at_least, at_most, covers
from .. import stability
from .basins import basin_results, gap_map
from .bifurcations import drop_figure, swing_figure


def run_stability(lab: Lab) -> Result:
    """The drop of log(L - L*) per Polyak step times c against chi/c: exactly 1 below 2, less above."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    seeds = range(seed, seed + (10 if full else 5))
    settings, references = [], []
    for one in seeds:
        data = signal_tokens(20, 5, 50, 1.0, 0.1, one)
        settings.append(Setting(data, Gram(data), Exponential()))
        references.append(max_margin(data))
    chi = [stability_number(one.data, found) for one, found in zip(settings, references, strict=True)]
    rows, points, series = [], [], {}
    for c in (1.0, 2.0, 4.0) if full else (1.0, 2.0):
        progress(f"Polyak with c = {c:g}, {len(settings)} data sets")
        runs = train(settings, polyak(c), steps=10_000, recorder=At(tuple(range(2500, 10_000, 125))))
        for number, value, one in zip(seeds, chi, runs, strict=True):
            series.setdefault((c, value / c < 2), []).append((one.steps, -c * one.log_excess))
            drop = -c * linear_slope(one.steps, one.log_excess, (5e3, 1e4))
            points.append((value / c, drop))
            rows.append(
                (
                    number,
                    Shown(c, "g"),
                    Shown(value, ".4f"),
                    Shown(value / c, ".4f"),
                    Shown(drop, ".4f"),
                    "stable" if value / c < 2 else "unstable",
                )
            )
    ratio, drop = np.array(points).T
    stable = ratio < 2
    settled = {
        c: covers(
            settling(runs, (2.5e3, 1e4), linear_slope), 1.0, f"c * drop, c = {c:g}, {len(runs)} stable runs", rival=0.99
        )
        for (c, calm), runs in series.items()
        if calm and len(runs) > 1
    }
    findings = [
        Finding(f"A Polyak step lowers log(L - L*) by 1/c where chi/c < 2: c = {c:g}.", one)
        for c, one in settled.items()
    ]
    if (~stable).any():
        verdict = at_most(float(drop[~stable].max()), 1 - 1e-3, "largest c * drop of the unstable runs")
        findings.append(Finding("It lowers it by less where chi/c > 2: the iterates oscillate.", verdict))
    order = np.argsort(ratio)
    figure = Figure(
        "stability",
        "The stability number decides",
        "chi / c",
        "drop of log(L - L*) per step, times c",
        (
            Line("runs", ratio[order], drop[order], "points"),
            Line("stable limit", np.array([2.0, 2.0]), np.array([drop.min(), 1.0]), "prediction"),
        ),
        "Preset H; fitted over steps 5 000 to 10 000.",
    )
    table = Table(
        "stability",
        "Polyak's step against the stability number",
        ("seed", "c", "chi", "chi / c", "c * drop", "predicted"),
        tuple(rows),
        "chi is computed from the data alone.",
    )
    definitions = {
        **DEFINITIONS,
        "chi": "largest curvature of log(L - L*) across W_mm relative to the step Polyak takes; stable below 2c",
        "V": "the unit direction of that curvature, orthogonal to W_mm",
    }
    progress("bifurcations beyond the stable limit")
    findings += [Finding(claim.statement, claim(lab), claim.citation) for claim in claims_in(stability)]
    figures = (
        figure,
        swing_figure(settings[0], references[0], full),
        drop_figure(settings, references, list(seeds), full),
    )
    return Result(tuple(findings), figures, (table,), {}, definitions)


def _limits(sets: list[TokenSelection], length: float, steps: int) -> list[Limit]:
    settings = [Setting(data, Gram(data), Exponential()) for data in sets]
    return [
        detect_limit(one) for one in train(settings, normalised_descent(length), steps=steps, recorder=LogSpaced(3))
    ]


def threshold(rounds: int) -> tuple[float, float]:
    """The second score gap at which `local_pair(1, gap)` stops being global, by sections of nine in vectorised runs."""
    low, high = 0.1, 0.25
    for _ in range(rounds):
        grid = np.linspace(low, high, 11)
        kinds = [limit.kind for limit in _limits([local_pair(1.0, gap) for gap in grid[1:-1]], 0.01, 40_000)]
        low = max([low, *(gap for gap, kind in zip(grid[1:-1], kinds, strict=True) if kind == "local")])
        high = min([high, *(gap for gap, kind in zip(grid[1:-1], kinds, strict=True) if kind == "global")])
    return float(low), float(high)


class _Group(eqx.Module):
    """The data sets of one dimension, kind of scores and common part that have a solution, and where training on each ended."""

    dimension: int
    equal: bool
    shift: float
    limits: tuple[Limit, ...]

    def of_kind(self, kind: str) -> list[Limit]:
        return [limit for limit in self.limits if limit.kind == kind]

    def share(self) -> float:
        """Of global runs; not a number without data sets, which decide nothing."""
        return len(self.of_kind("global")) / len(self.limits) if self.limits else float("nan")

    def optimal(self) -> int:
        """Local runs on a locally optimal selection."""
        return sum(limit.reached is not None and limit.reached.locally_optimal for limit in self.of_kind("local"))

    def name(self) -> str:
        return f"{'equal' if self.equal else 'random'} scores and a common part of length {self.shift:g}"

    def row(self) -> tuple:
        known = [limit.misalignment for limit in self.limits if not np.isnan(limit.misalignment)]
        median = Shown(np.median(known), ".1e") if known else ""
        share = f"{len(self.of_kind('global'))}/{len(self.limits)}"
        scores = "equal" if self.equal else "random"
        local, still_open = len(self.of_kind("local")), len(self.of_kind("undecided"))
        return (self.dimension, scores, Shown(self.shift, "g"), share, local, self.optimal(), still_open, median)


def global_findings(groups: Sequence[_Group]) -> list[Finding]:
    """For each kind of scores and common part, whether every run in the largest dimension is global."""
    largest = max(group.dimension for group in groups)
    findings = []
    for group in groups:
        if group.dimension < largest:
            continue
        others = {kind: len(group.of_kind(kind)) for kind in ("local", "undecided")}
        detail = f"{len(group.limits)} data sets; {others['local']} local, {others['undecided']} open"
        verdict = at_least(group.share(), 1.0, f"share of global runs at d = {largest}", detail)
        findings.append(Finding(f"With {group.name()} every run in {largest} dimensions is global.", verdict))
    return findings


def _local_finding(groups: Sequence[_Group]) -> Finding:
    local = sum(len(group.of_kind("local")) for group in groups)
    share = sum(group.optimal() for group in groups) / local if local else float("nan")
    verdict = at_least(share, 1.0, f"share of the {local} local runs on a locally optimal selection")
    return Finding("Runs that end locally end on a locally optimal selection.", verdict)


def _grouped(seed: int, full: bool, count: int, progress: Callable[[str], None]) -> list[_Group]:
    groups = []
    for shift, equal in product((0.0, 0.5, 1.0) if full else (0.0, 1.0), (True, False)):
        for d in (3, 4, 6, 8, 12) if full else (3, 6, 12):
            progress(f"d = {d}, common part {shift:g}, {'equal' if equal else 'random'} scores")
            sets = _feasible([_shifted(d, one, equal, shift) for one in range(seed, seed + count)])
            groups.append(_Group(d, equal, shift, tuple(_limits(sets, 0.05, 20_000)) if sets else ()))
    return groups


def run_phase(lab: Lab) -> Result:
    """Share of runs that reach the optimal tokens: against the dimension, the scores and the correlation of tokens."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    count = 16 if full else 8
    groups = _grouped(seed, full, count, progress)
    lines = []
    for name in dict.fromkeys(group.name() for group in groups):
        same = [group for group in groups if group.name() == name]
        shares = np.array([group.share() for group in same])
        style = "line" if same[0].equal else "prediction"
        lines.append(Line(name, np.array([float(group.dimension) for group in same]), shares, style))
    findings = [*global_findings(groups), _local_finding(groups)]
    progress("threshold of the second score gap")
    low, high = threshold(3 if full else 2)
    width = at_most(
        high - low,
        2e-4 if full else 2e-3,
        f"width of the bracket [{low:.5f}, {high:.5f}] of the critical second score gap",
    )
    findings.append(
        Finding(
            "Two samples of two tokens: below a critical second score gap training ends locally, above it globally.",
            width,
        )
    )
    table = Table(
        "phase",
        "Global runs among feasible data sets",
        (
            "d",
            "scores",
            "common part",
            "global / feasible",
            "local",
            "of these on a locally optimal selection",
            "open",
            "median 1 - corr to the reached direction",
        ),
        tuple(group.row() for group in groups),
        "n = 5, T = 4; 20 000 normalised steps of length 0.05 from zero; a common vector of the given length is added to every token.",
    )
    figure = Figure(
        "phase",
        "Share of runs that reach the optimal tokens",
        "dimension",
        "share of feasible data sets",
        tuple(lines),
        f"{count} data sets per point.",
    )
    critical = Table(
        "threshold",
        "Critical second score gap of the pair",
        ("largest local", "smallest global"),
        ((Shown(low, ".5f"), Shown(high, ".5f")),),
        "First gap 1; 40 000 normalised steps of length 0.01 from zero.",
    )
    definitions = {
        **DEFINITIONS,
        "global, local": "all samples attend to an optimal token, or some to another one, with an attention of at least 0.9",
        "open": "some sample gives no token an attention of 0.9, so that the run has ended nowhere yet",
        "feasible": "with a weight that separates the optimal tokens from all others",
        "locally optimal": "a selection whose maximum-margin direction exists, and whose tokens have higher scores than their active neighbours",
        "score gap": "score of the optimal token minus that of the other one",
        "pull / push": "largest ratio, over samples and pairs, of how far other samples can pull attention back to how far the sample's own gradient pushes it",
    }
    progress("basins of the locally optimal selections")
    portraits, volumes, settled = basin_results(full)
    progress("score gaps of the pair")
    gaps, border = gap_map(full)
    tables = (table, critical, volumes, border)
    return Result((*findings, settled), (figure, *portraits, gaps), tables, {}, definitions)


def _shifted(d: int, seed: int, equal: bool, shift: float) -> TokenSelection:
    """Random tokens with a common vector of length `shift` added, the scores unchanged: all tokens and queries correlate."""
    data = random_tokens(5, 4, d, seed, equal_scores=equal)
    common = np.zeros(d)
    common[0] = shift
    return TokenSelection(np.asarray(data.tokens) + common, scores=np.asarray(data.scores))


def _feasible(sets: list[TokenSelection]) -> list[TokenSelection]:
    def solvable(data: TokenSelection) -> bool:
        try:
            max_margin(data)
        except InfeasibleSVM:
            return False
        return True

    return [data for data in sets if solvable(data)]


STUDIES = (
    Study("polyak-stability", "Where Polyak's step is stable", run_stability),
    Study("local-global-phase", "Where training ends globally", run_phase),
)
