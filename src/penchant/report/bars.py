"""Numbers as lengths on a page: what was measured next to what decides, slack of hypotheses, and certificates."""

import math
import re
from typing import NamedTuple

_MOST = 12.0  # digits of a certificate that a page counts: a summary prints no more


class Gauge(NamedTuple):
    """One inequality of a claim: its text, both numbers, and where the measured one lies if the limit is in the middle (0 to 100)."""

    text: str
    predicted: float | None
    measured: float | None
    place: float | None


def gauges(claim: dict) -> list[Gauge]:
    """The inequalities of a claim, one by one.

    >>> gauges({"inequality": "gap = 0.5 <= 1", "predicted": 1.0, "measured": 0.5})
    [Gauge(text='gap = 0.5 <= 1', predicted=1.0, measured=0.5, place=25.0)]
    """
    listed = lambda value: value if isinstance(value, list) else [value]
    predicted, measured = listed(claim.get("predicted")), listed(claim.get("measured"))
    texts = claim["inequality"].split("; ")
    if not len(texts) == len(predicted) == len(measured):
        return [Gauge(claim["inequality"], None, None, None)]
    return [Gauge(text, p, m, _place(p, m)) for text, p, m in zip(texts, predicted, measured, strict=True)]


def _place(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or measured is None or not predicted or not math.isfinite(measured / predicted):
        return None
    return min(100.0, max(0.0, 50 * measured / predicted))


def slack_share(text: str) -> float | None:
    """The slack of a hypothesis as a share of a bar, from -1 to 1, so that any size can be seen: x / (1 + |x|); None where it is no number."""
    try:
        slack = float(text)
    except ValueError:
        return None
    return math.copysign(1.0, slack) if math.isinf(slack) else None if math.isnan(slack) else slack / (1 + abs(slack))


class Certified(NamedTuple):
    """Bounds of a certificate, and how many digits of the number between them they prove: at most twelve are counted."""

    lower: float
    upper: float
    digits: float


def certificate(text: str) -> Certified | None:
    """Bounds as a summary tells them: where both are printed alike, they prove the digits that are printed.

    >>> [round(certificate(text).digits, 6) for text in ("[0.5, 0.5005]", "[0.57259833, 0.57259833]")]
    [3.0, 8.0]
    """
    found = re.fullmatch(r"\[(\S+), (\S+)\]", text)
    try:
        lower, upper = (float(part) for part in found.groups()) if found else (math.nan, math.nan)
    except ValueError:
        return None
    if not 0 < lower <= upper < math.inf:
        return None
    gap = upper / lower - 1
    printed = max(len(re.sub(r"e.*|\D", "", part).lstrip("0")) for part in text.split(","))
    return Certified(lower, upper, min(_MOST, float(printed), max(0.0, -math.log10(gap)) if gap > 0 else _MOST))
