"""Verdicts: confirmed, refuted or undecided, with the inequality that decided."""

from enum import Enum
from typing import Any

import equinox as eqx
import numpy as np

# Relative: what the last digits of a computed bound may differ by where theory has equality, as for a certificate at the optimum.
ROUNDING = 1e-12
_FIT = 1e-9  # slopes of fits are right to nine digits; exact laws have intervals far shorter than that


class Outcome(Enum):
    """Three values; `undecided` is what a check says until an inequality decides."""

    confirmed = "confirmed"
    refuted = "refuted"
    undecided = "undecided"


class Verdict(eqx.Module):
    """The outcome of a check, the inequality that decided it, what was predicted and what was measured."""

    outcome: Outcome
    inequality: str
    predicted: Any = None
    measured: Any = None
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.outcome.value}: {self.inequality}" + (f" ({self.detail})" if self.detail else "")


def at_most(measured: float, bound: float, what: str, detail: str = "") -> Verdict:
    """Confirmed if measured <= bound; undecided if either is not a number.

    >>> print(at_most(0.5, 1.0, "gap"))
    confirmed: gap = 0.5 <= 1
    """
    return _decide(measured <= bound, f"{what} = {measured:.6g} {{}} {bound:.6g}", ("<=", ">"), bound, measured, detail)


def at_least(measured: float, bound: float, what: str, detail: str = "") -> Verdict:
    """Confirmed if measured >= bound; undecided if either is not a number."""
    return _decide(measured >= bound, f"{what} = {measured:.6g} {{}} {bound:.6g}", (">=", "<"), bound, measured, detail)


def close(measured: float, predicted: float, tolerance: float, what: str, detail: str = "") -> Verdict:
    """Confirmed if |measured/predicted - 1| <= tolerance."""
    error = abs(measured / predicted - 1) if predicted else abs(measured)
    text = f"{what}: |{measured:.8g} / {predicted:.8g} - 1| = {error:.2g} {{}} {tolerance:.2g}"
    return _decide(error <= tolerance, text, ("<=", ">"), predicted, measured, detail)


def _decide(holds: Any, text: str, signs: tuple[str, str], predicted: Any, measured: Any, detail: str) -> Verdict:
    if not (np.isfinite(predicted) and np.isfinite(measured)):
        return Verdict(Outcome.undecided, text.format("?"), float(predicted), float(measured), detail)
    outcome = Outcome.confirmed if holds else Outcome.refuted
    return Verdict(outcome, text.format(signs[0] if holds else signs[1]), float(predicted), float(measured), detail)


def all_of(*verdicts: Verdict) -> Verdict:
    """Confirmed if all are, by all their inequalities; otherwise the first refuted one, or else the first undecided one, decides.

    >>> print(all_of(at_most(0.5, 1.0, "gap"), at_least(2.0, 1.0, "slack")))
    confirmed: gap = 0.5 <= 1; slack = 2 >= 1
    """
    if not verdicts:
        return Verdict(Outcome.undecided, "nothing was checked")
    for outcome in (Outcome.refuted, Outcome.undecided):
        for verdict in verdicts:
            if verdict.outcome is outcome:
                return verdict
    if len(verdicts) == 1:
        return verdicts[0]
    joined = lambda parts: "; ".join(dict.fromkeys(part for part in parts if part))
    return Verdict(
        Outcome.confirmed,
        joined(verdict.inequality for verdict in verdicts),
        tuple(verdict.predicted for verdict in verdicts),
        tuple(verdict.measured for verdict in verdicts),
        joined(verdict.detail for verdict in verdicts),
    )


def covers(interval: Any, predicted: float, what: str, detail: str = "", *, rival: float) -> Verdict:
    """Confirmed if the prediction lies in a measured interval (anything with `low` and `high`), refuted if it lies outside.

    `rival` is the nearest other value that the claim must be told from. An interval longer than the distance of the two could
    hold both: it confirms nothing, and neither does one without ends, as of a single run.

    >>> from types import SimpleNamespace
    >>> print(covers(SimpleNamespace(low=-2.1, high=-1.9), -2.0, "exponent", rival=-1.0))
    confirmed: exponent: -2 in [-2.1, -1.9]
    >>> print(covers(SimpleNamespace(low=-9.0, high=9.0), -2.0, "exponent", rival=-1.0))
    undecided: exponent: -2 in [-9, 9], which is too long to tell -2 from -1
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
