"""Which margin does a run maximise? Its smallest margin per unit of every norm, as a share of the best one, along the run.

A share is certified: its divisor is the upper end of the bracket on the best margin, so that a run never looks better than it is. Margins
are judged and not directions, because the best weight in most of these norms is not unique.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np

from ...errors import ArgumentError
from ...exhibits import Figure, Line, Table, table
from ...norms import norm_named
from ...references.base import Solution
from ...references.norm_margin import norm_margin
from ...settings.base import Data
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict

NAMES = ("frobenius", "l1", "max", "spectral", "nuclear")
THETA = 0.02  # of the best margin may be missing where a run is said to maximise it
APART = 5.0  # times what is missing must be missing in every other norm
_GAP, _COARSE, _MANY = 1e-9, 1e-6, 2000  # width of the brackets, and of those of more margins than that
_BEGUN = 10.0  # times log N, N the number of margins: a smaller one says little of where the share ends
_LAST: list[Any] = []  # data, and the best margins of it
LEAD = 0.01  # by which another norm's share must be ahead before a run has changed its mind


def best_margins(data: Data, names: Iterable[str] | None = None) -> dict[str, Solution]:
    """The best margin in every norm, bracketed; those of the last data are kept, for the next optimiser that is asked about them."""
    if getattr(data, "inside", None) is not None:
        fix = "`penchant predict DATA` and `penchant train DATA` (in Python: `max_margin(data.outside())`) say what training selects there"
        raise ArgumentError("data", "which-margin", "data whose margins all grow", type(data).__name__, fix)
    gap = _GAP if len(data.constrained()) <= _MANY else _COARSE
    if not _LAST or _LAST[0] is not data:
        _LAST[:] = data, {}
    fitting = NAMES if len(data.weight_shape) == 2 else NAMES[:3]  # singular values need a matrix
    for name in (wanted := tuple(names or fitting)):
        if name not in _LAST[1]:
            _LAST[1][name] = replace(norm_margin(data, norm_named(name), gap), norm=name)
    return {name: _LAST[1][name] for name in wanted}


class Comparison(eqx.Module):
    """The shares of a run in every norm, at every record; those before the margin is positive are negative or 0."""

    references: dict[str, Solution]
    shares: dict[str, np.ndarray]
    steps: np.ndarray
    log_time: np.ndarray
    margin: np.ndarray

    @property
    def last(self) -> dict[str, float]:
        return {name: float(share[-1]) for name, share in self.shares.items()}

    @property
    def reached(self) -> dict[str, float | None]:
        """The last shares, to be shown; None while the run does not separate, and where the bracket does not resolve the best margin."""
        known = {name: one.certified and self.last[name] > 0 for name, one in self.references.items()}
        return {name: share if known[name] else None for name, share in self.last.items()}

    @property
    def leader(self) -> str | None:
        """The norm in which the run has the largest share in the end; None while it does not separate."""
        return max(self.last, key=self.last.__getitem__) if self.margin[-1] > 0 else None

    @property
    def maximises(self) -> str | None:
        """The leader, unless it is known to stay short of the best margin."""
        known = self.leader and self.verdict(self.leader).outcome is not Outcome.refuted
        return self.leader if known else None

    @property
    def ahead(self) -> float:
        """By how much the leader's share exceeds the next one."""
        first, second = sorted(self.last.values(), reverse=True)[:2]
        return first - second

    @property
    def begun(self) -> float:
        """The margin from which on a share that is not reached says something: 10 log N, N the number of margins."""
        return _BEGUN * float(np.log(len(next(iter(self.references.values())).dual)))

    def turns(self) -> Iterator[tuple[float, float, str, str]]:
        """Where the run changes its mind, once it separates: margin, log time, and the norm that another one is then ahead of, by more than 0.01."""
        table, names, now = np.stack([*self.shares.values()]), [*self.shares], -1
        for record in np.flatnonzero(self.margin > 0):
            column = table[:, record]
            best = int(column.argmax())
            if now < 0 or column[best] > column[now] + LEAD:
                if now >= 0:
                    yield float(self.margin[record]), float(self.log_time[record]), names[now], names[best]
                now = best

    def verdict(self, norm: str) -> Verdict:
        """Whether the run maximises the margin in this norm: less than 0.02 is missing, less than before, and five times as much in every other norm.

        Refuted where the share has stopped growing below that, by a fit of what is missing to c0 + c1/margin over the last decade of the margin. At a
        margin m the soft minimum of N margins may miss log(N)/m of any share: a decade that begins below log N decides nothing.
        """
        missing, others = 1 - self.shares[norm], {name: 1 - found for name, found in self.last.items() if name != norm}
        text = f"1 - share of the best {norm} margin = {missing[-1]:.3g}"
        if not self.margin[-1] > 0:
            return Verdict(Outcome.undecided, "the smallest margin is not positive: not separating")
        if not self.references[norm].certified:
            return Verdict(Outcome.undecided, f"the bracket does not resolve the best {norm} margin")
        limit, error = self._limit(norm)
        begun = self.begun
        if missing[-1] > THETA and self.margin[-1] < begun:
            words = f"{text} > {THETA:g}, but the margin {self.margin[-1]:.3g} is below 10 log N = {begun:.3g}: too short a run to tell"
            return Verdict(Outcome.undecided, words, THETA, float(missing[-1]))
        if missing[-1] > THETA and limit - 2 * error > THETA:
            detail = f"what is missing tends to {limit:.3g} +- {error:.1g}"
            return Verdict(Outcome.refuted, f"{text} > {THETA:g}", THETA, float(missing[-1]), detail)
        if missing[-1] > THETA:
            return Verdict(Outcome.undecided, f"{text} > {THETA:g}, and still falling", THETA, float(missing[-1]))
        known = {name: one.certified for name, one in self.references.items()}
        near = [name for name, found in others.items() if found < APART * missing[-1] or not known[name]]
        if near:
            words = f"{text}, but {', '.join(near)} cannot be told from it on these data yet"
            return Verdict(Outcome.undecided, words, THETA, float(missing[-1]))
        nearest = min(others, key=others.__getitem__)
        detail = f"{others[nearest]:.3g} is missing in the nearest other norm, {nearest}"
        return Verdict(Outcome.confirmed, f"{text} <= {THETA:g}", THETA, float(missing[-1]), detail)

    def _limit(self, norm: str) -> tuple[float, float]:
        """What is missing in the end, and its error: a fit of c0 + c1/margin over the last decade of the margin, leaving out each third of it, the early one
        among them, so that a share whose growth does not slow down like that has a large one."""
        _, moved = np.unique(self.margin, return_index=True)  # where a run stands still there is nothing to fit
        kept = np.sort(moved[self.margin[moved] > self.margin[-1] / 10])
        x, y = 1 / self.margin[kept], (1 - self.shares[norm])[kept]
        if len(kept) < 6:
            return 0.0, np.inf
        ends = [
            np.polyfit(np.delete(x, part), np.delete(y, part), 1)[1] for part in np.array_split(np.arange(len(x)), 3)
        ]
        return float(np.polyfit(x, y, 1)[1]), float(np.ptp(ends))

    def figure(self, title: str = "Which margin is maximised?") -> Figure:
        seen = self.margin > 0
        lines = (Line(name, self.log_time[seen], share[seen]) for name, share in self.shares.items())
        caption = (
            "Smallest margin per unit of each norm, over the best one. A share of 1 is the maximum margin in that norm."
        )
        return Figure("shares", title, "log time", "share of the best margin", tuple(lines), caption)

    def table(self) -> Table:
        turns = (f"from {before} to {after} at margin {margin:.4g}" for margin, _, before, after in self.turns())
        shown = {name: "none" if share is None else share for name, share in self.reached.items()}
        rows = ((name, one.margin, one.bracket.gap, shown[name]) for name, one in self.references.items())
        columns = {"norm": "", "best margin": ".10g", "certified gap": ".0e", "share reached": ".4f"}
        return table("margins", "Best margins", columns, rows, f"Turns: {', '.join(turns) or 'none'}.")

    def content(self) -> dict:
        """Plain values, as `which-margin --json` prints them."""
        ends = lambda one: {"margin": one.margin, "lower": 1 / one.bracket.upper, "upper": 1 / one.bracket.lower}
        return {
            "references": {name: ends(found) for name, found in self.references.items()},
            "shares": self.reached,
            "maximises": self.maximises,
            "turns": [dict(zip(("margin", "log_time", "from", "to"), turn, strict=True)) for turn in self.turns()],
        }


def compare(run: Trajectory, references: dict[str, Solution]) -> Comparison:
    """The shares of a run of the data that the references are of."""
    margin = run.smallest_margin()
    weights = [run.weight(record) for record in range(len(run))]
    sizes = {name: np.array([one.measure.value(weight) for weight in weights]) for name, one in references.items()}
    per_unit = {name: margin / np.where(size > 0, size, 1.0) for name, size in sizes.items()}
    shares = {name: found.bracket.lower * per_unit[name] for name, found in references.items()}
    return Comparison(references, shares, run.steps, run.log_time, margin)
