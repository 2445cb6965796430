"""Verdicts: whether a conclusion holds, whether the hypotheses do, and the inequality that decided."""

from enum import Enum
from html import escape
from typing import Protocol, runtime_checkable

import equinox as eqx
import numpy as np

# Relative: what the last digits of a computed bound may differ by where theory has equality, as for a certificate at the optimum.
ROUNDING = 1e-12
Measured = object  # a number, several, or nothing
_FIT = 1e-9  # slopes of fits are right to nine digits; exact laws have intervals far shorter than that


@runtime_checkable
class Interval(Protocol):
    """What was measured, from its low to its high end."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


class Outcome(Enum):
    """What a check says of a conclusion: three values, `undecided` until an inequality decides."""

    confirmed = "confirmed"
    refuted = "refuted"
    undecided = "undecided"


_CONCLUSIONS = {Outcome.confirmed: "holds", Outcome.refuted: "fails", Outcome.undecided: "undecided"}
_HEADLINES = {  # of a conclusion and its hypotheses; every other pair is undecided
    ("holds", "hold"): "confirmed",
    ("holds", "open"): "confirmed",
    ("holds", "fail"): "beyond the theorem",
    ("fails", "hold"): "refuted",
    ("fails", "fail"): "outside the theorem",
}
HEADLINES = (*dict.fromkeys(_HEADLINES.values()), "undecided")


class Verdict(eqx.Module):
    """The outcome of a check, the inequality that decided it, what was predicted and what was measured.

    `outcome` is about the conclusion alone. `hypotheses` says whether what the conclusion rests on does hold, does fail or is open; a
    check without hypotheses holds by construction. Only a conclusion that fails although the hypotheses hold refutes a theorem.

    >>> print(Verdict(Outcome.refuted, "gap = 2 > 1", hypotheses="fail"))
    outside the theorem: gap = 2 > 1
    """

    outcome: Outcome
    inequality: str
    predicted: Measured = None
    measured: Measured = None
    detail: str = ""
    hypotheses: str = "hold"

    @property
    def conclusion(self) -> str:
        """Whether the conclusion holds, fails or is undecided."""
        return _CONCLUSIONS[self.outcome]

    @property
    def headline(self) -> str:
        """Both facts in a word or three: one of `HEADLINES`."""
        return _HEADLINES.get((self.conclusion, self.hypotheses), "undecided")

    @property
    def facts(self) -> dict[str, str]:
        return {"conclusion": self.conclusion, "hypotheses": self.hypotheses}

    def lines(self) -> tuple[str, ...]:
        """How a verdict is shown in text: the headline with its reason, and both facts where hypotheses are in play."""
        reason = f"{self.headline}: {self.inequality}" + (f" ({self.detail})" if self.detail else "")
        facts = f"the conclusion {self.conclusion.replace('undecided', 'is undecided')}, the hypotheses {self.hypotheses.replace('open', 'are open')}"
        return (reason,) if self.hypotheses == "hold" else (reason, facts)

    def __str__(self) -> str:
        return self.lines()[0]

    def __repr__(self) -> str:
        return f"<Verdict {self}>"

    def _repr_html_(self) -> str:
        """The lines of the text, with the headline in bold."""
        return "<br>".join(map(escape, self.lines())).replace(self.headline, f"<b>{self.headline}</b>", 1)


def at_most(measured: float, bound: float, what: str, detail: str = "") -> Verdict:
    """Confirmed if measured <= bound; undecided if either is not a number."""
    return _decide(measured <= bound, f"{what} = {measured:.6g} {{}} {bound:.6g}", ("<=", ">"), bound, measured, detail)


def at_least(measured: float, bound: float, what: str, detail: str = "") -> Verdict:
    """Confirmed if measured >= bound; undecided if either is not a number."""
    return _decide(measured >= bound, f"{what} = {measured:.6g} {{}} {bound:.6g}", (">=", "<"), bound, measured, detail)


def close(measured: float, predicted: float, tolerance: float, what: str, detail: str = "") -> Verdict:
    """Confirmed if |measured/predicted - 1| <= tolerance."""
    error = abs(measured / predicted - 1) if predicted else abs(measured)
    text = f"{what}: |{measured:.8g} / {predicted:.8g} - 1| = {error:.2g} {{}} {tolerance:.2g}"
    return _decide(error <= tolerance, text, ("<=", ">"), predicted, measured, detail)


def _decide(
    holds: bool | np.bool_, text: str, signs: tuple[str, str], predicted: float, measured: float, detail: str
) -> Verdict:
    if not (np.isfinite(predicted) and np.isfinite(measured)):
        return Verdict(Outcome.undecided, text.format("?"), float(predicted), float(measured), detail)
    outcome = Outcome.confirmed if holds else Outcome.refuted
    return Verdict(outcome, text.format(signs[0] if holds else signs[1]), float(predicted), float(measured), detail)


def all_of(*verdicts: Verdict) -> Verdict:
    """Confirmed if all are, by all their inequalities; otherwise the first refuted one, or else the first undecided one, decides."""
    if not verdicts:
        return Verdict(Outcome.undecided, "nothing was checked")
    for outcome in (Outcome.refuted, Outcome.undecided):
        for verdict in verdicts:
            if verdict.outcome is outcome:
                return verdict
    if len(verdicts) == 1:
        return verdicts[0]
    joined = lambda parts: "; ".join(dict.fromkeys(part for part in parts if part))
    of = lambda name: tuple(getattr(verdict, name) for verdict in verdicts)
    text, detail = joined(of("inequality")), joined(of("detail"))
    return Verdict(Outcome.confirmed, text, of("predicted"), of("measured"), detail)


def covers(interval: Interval, predicted: float, what: str, detail: str = "", *, rival: float) -> Verdict:
    """Confirmed if the prediction lies in a measured interval (anything with `low` and `high`), refuted if it lies outside.

    `rival` is the nearest other value that the claim must be told from. An interval longer than the distance of the two could
    hold both: it confirms nothing, and neither does one without ends, as of a single run.
    """
    ends = f"[{interval.low:.6g}, {interval.high:.6g}]"
    if f"{interval.low:.6g}" == f"{interval.high:.6g}":
        ends = f"{(interval.low + interval.high) / 2:.6g} ± {(interval.high - interval.low) / 2:.2g}"
    text = f"{what}: {predicted:.6g} {{}} {ends}"
    measured = (interval.low + interval.high) / 2
    rounding = _FIT * max(1.0, abs(predicted))
    holds = interval.low - rounding <= predicted <= interval.high + rounding
    if holds and interval.high - interval.low > abs(predicted - rival):
        text = f"{text.format('in')}, which is too long to tell {predicted:.6g} from {rival:.6g}"
        return Verdict(Outcome.undecided, text, float(predicted), float(measured), detail)
    return _decide(holds, text, ("in", "not in"), predicted, measured, detail)
