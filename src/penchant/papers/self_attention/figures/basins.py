"""Where token selection ends, by its start and by its score gaps: basins of the locally optimal selections, and a map of the pair."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ....exhibits import Figure, Finding, Line, Shown, Table
from ....optimisers.base import normalised_descent
from ....settings.base import Setting
from ....settings.generators import local_pair, local_single
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct, Gram
from ....settings.tokens import TokenSelection
from ....theory.selections import is_locally_optimal
from ....theory.token_hypotheses import attention_floor, near_orthogonal_pairs
from ....training.recorders import At
from ....training.train import train
from ....verdict import at_least

_RADIUS, _LENGTH, _STEPS = 8.0, 0.05, 10_000
_SETTLED = 0.9  # attention below this on its leading token leaves the selection open
_CASES: dict[str, Callable[[], TokenSelection]] = {
    "pair, gaps 1 and 0.1": lambda: local_pair(1.0, 0.1),
    "pair, gaps 1 and 0.25": lambda: local_pair(1.0, 0.25),
    "single sample": local_single,
}


class Basins(eqx.Module):
    """Starts on rings around 0 (rings x directions x 2) and the selection each has reached; None where attention is open."""

    data: TokenSelection
    radii: np.ndarray
    starts: np.ndarray
    reached: tuple[tuple[tuple[int, ...] | None, ...], ...]

    def selections(self) -> list[tuple[int, ...]]:
        return sorted({one for ring in self.reached for one in ring if one is not None})

    def shares(self, tokens: tuple[int, ...] | None) -> np.ndarray:
        """Share of the directions that end there, ring by ring."""
        return np.array([sum(one == tokens for one in ring) / len(ring) for ring in self.reached])

    def volume(self, tokens: tuple[int, ...] | None) -> float:
        """Share of the disc that ends there: the rings stand at equal distances, and weigh like their radius."""
        return float(self.radii @ self.shares(tokens) / self.radii.sum())


def basins(data: TokenSelection, rings: int, directions: int) -> Basins:
    """Normalised descent from starts in the plane of the features: the entries of W in its last column, which the query meets."""
    radii = _RADIUS * np.arange(1, rings + 1) / rings
    angles = 2 * np.pi * (np.arange(directions) + 0.5) / directions
    plane = radii[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    starts = np.zeros((rings * directions, *data.weight_shape))
    starts[:, :2, 2] = plane.reshape(-1, 2)
    rule = normalised_descent(_LENGTH)
    setting = Setting(data, Direct(), Exponential())
    runs = train(setting, rule, jnp.asarray(starts), steps=_STEPS, recorder=At(()))
    ends = jnp.asarray(np.stack([run.margins[-1] for run in runs]))
    shares = np.exp(np.asarray(jax.vmap(data.log_attention)(ends)))
    settled = shares.max(axis=2).min(axis=1) >= _SETTLED
    tokens = [
        tuple(int(token) for token in share.argmax(axis=1)) if one else None
        for share, one in zip(shares, settled, strict=True)
    ]
    found = tuple(tuple(tokens[k * directions : (k + 1) * directions]) for k in range(rings))
    return Basins(data, radii, plane, found)


def _portrait(name: str, case: str, found: Basins) -> Figure:
    flat = [one for ring in found.reached for one in ring]
    points = found.starts.reshape(-1, 2)
    lines = []
    for tokens in [*found.selections(), *([None] if None in flat else [])]:
        at = points[[one == tokens for one in flat]]
        lines.append(Line("open" if tokens is None else f"tokens {list(tokens)}", at[:, 0], at[:, 1], "points"))
    optimal = [int(token) for token in np.asarray(found.data.optimal)]
    return Figure(
        name,
        f"Basins: {case}",
        "first entry of the start",
        "second entry of the start",
        tuple(lines),
        f"Every point is a start, its colour the selection that was reached; the optimal one is {optimal}. {_STEPS} normalised steps of "
        f"length {_LENGTH:g}. W enters by the two entries that are shown.",
    )


def basin_results(full: bool) -> tuple[list[Figure], Table, Finding]:
    """Portraits, volumes of the basins, and whether every settled run is on a locally optimal selection."""
    figures, rows, settled, optimal = [], [], 0.0, 0.0
    rings, directions = (24, 96) if full else (8, 32)
    for number, (case, make) in enumerate(_CASES.items()):
        found = basins(make(), rings, directions)
        figures.append(_portrait(f"basins-{number}", case, found))
        for tokens in found.selections():
            shares = found.shares(tokens)
            good = is_locally_optimal(found.data, tokens).locally_optimal
            settled, optimal = settled + shares.sum(), optimal + shares.sum() * good
            ends = (Shown(shares[k], ".3f") for k in (0, rings // 2, -1))
            rows.append((case, str(list(tokens)), "yes" if good else "no", Shown(found.volume(tokens), ".3f"), *ends))
        rows.append((case, "open", "", Shown(found.volume(None), ".3f"), "", "", ""))
    shown = (1 / rings, (rings // 2 + 1) / rings, 1.0)
    columns = (
        "data",
        "reached",
        "locally optimal",
        f"share of the disc of radius {_RADIUS:g}",
        *(f"of directions at radius {_RADIUS * part:.3g}" for part in shown),
    )
    caption = f"{rings} radii, {directions} directions each; the disc lies in the plane of the features, the only one that margins see."
    table = Table("basins", "Volume of the basin of each selection", columns, tuple(rows), caption)
    verdict = at_least(optimal / settled if settled else np.nan, 1.0, "share of the settled runs, over all starts")
    return figures, table, Finding("From any start, runs settle on a locally optimal selection.", verdict)


def gap_map(full: bool) -> tuple[Figure, Table]:
    """Score gaps of the pair, from zero: where training is global, with the ratio of Assumption 1 on either side of the border."""
    firsts = np.geomspace(0.25, 4.0, 17 if full else 5)
    ratios = np.linspace(0.05, 0.5, 46 if full else 10)
    sets = [local_pair(float(first), float(first * ratio)) for first in firsts for ratio in ratios]
    settings = [Setting(data, Gram(data), Exponential()) for data in sets]
    runs = train(settings, normalised_descent(0.01), steps=40_000, recorder=At(()))
    shares = np.stack(
        [np.exp(np.asarray(run.setting.data.log_attention(jnp.asarray(run.margins[-1])))) for run in runs]
    )
    right = shares[:, np.arange(2), np.asarray(sets[0].optimal)].min(axis=1) >= _SETTLED
    wrong = ~right & (shares.max(axis=2).min(axis=1) >= _SETTLED)
    grid = np.array([(first, ratio) for first in firsts for ratio in ratios])
    kinds = {"global": right, "local": wrong, "open": ~right & ~wrong}
    lines = tuple(Line(name, grid[at, 1], grid[at, 0], "points") for name, at in kinds.items() if at.any())
    rows = []
    for k, first in enumerate(firsts):
        row = slice(k * len(ratios), (k + 1) * len(ratios))
        local, above = np.flatnonzero(wrong[row]), np.flatnonzero(right[row])
        low, high = (local[-1] if len(local) else None), (above[0] if len(above) else None)
        cells = [
            cell
            for end in (low, high)
            for cell in (("", "") if end is None else (Shown(ratios[end], ".3f"), _assumption(settings[row][int(end)])))
        ]
        rows.append((Shown(first, ".3g"), *cells))
    columns = (
        "first gap",
        "largest local ratio",
        "pull / push there",
        "smallest global ratio",
        "pull / push there too",
    )
    caption = "Ratio: second score gap over the first. Assumption 1 in pairs asks for a pull / push of at most 1; it is sufficient, not necessary."
    figure = Figure(
        "gaps",
        "Score gaps of the pair that end globally",
        "second score gap over the first",
        "first score gap",
        lines,
        "Two samples of two tokens; 40 000 normalised steps of length 0.01 from zero.",
        "linear",
        "log",
    )
    return figure, Table("gaps", "Border between local and global", columns, tuple(rows), caption)


def _assumption(setting: Setting) -> Shown:
    floor = attention_floor(setting, setting.start(), 0.01)
    return Shown(1 - near_orthogonal_pairs(setting.data, setting.loss, floor).slack, ".3g")
