"""A map of the starts above the risk of zero, on the standard data: balanced layers, whose products fill the plane."""

import numpy as np

from ....errors import quietly
from ....exhibits import Figure, Finding, Line
from ....lab import Lab, claims_in
from ....settings.network_starts import balanced
from ....training.events import LogExcessBelow, LogTimeAbove
from ....training.train import train
from ....verdict import at_most
from .. import basin
from ..evidence import FAR, problem

_HALF, _END = 6.0, 200.0  # of the map in |w|, and of the integration in time
_CHECKED = 6


def basin_map(lab: Lab, full: bool) -> tuple[Figure, tuple[Finding, ...]]:
    """Escape times over the plane of balanced products, and layers of a network that confirm them."""
    grid = np.linspace(-_HALF, _HALF, 120 if full else 60)  # an even number: weight 0 is no start
    starts = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    above = basin.log_risk(lab, starts) > np.log(np.log(2))
    times = np.full(len(starts), np.nan)
    times[above] = basin.escape_times(lab, starts[above], _END)
    curve = basin.stable_curve(lab, np.sqrt(2) * _HALF)
    curve = curve[np.abs(curve).max(axis=1) <= _HALF]
    figure = Figure(
        "map",
        "Starts above the risk of zero, by the time to risk 0.1",
        "w1",
        "w2",
        (
            Line("time to risk 0.1", starts[:, 0], starts[:, 1], "map", values=times),
            Line("ends in the saddle", curve[:, 0], curve[:, 1], "prediction"),
        ),
        f"Strips, two balanced layers, logistic risk: the flow of the product w is a flow in the plane. Empty cells lie below the risk of weight 0, or on the curve (no escape before t = {_END:g}).",
    )
    reached = np.flatnonzero(np.isfinite(times))
    chosen = reached[np.argsort(times[reached])][:: max(1, len(reached) // _CHECKED)]
    error = max(abs(_trained(lab, starts[k]) / times[k] - 1) for k in chosen)
    agreed = Finding(
        "The map is that of a network of two layers.",
        at_most(
            float(error),
            2e-3,
            f"largest relative difference of {len(chosen)} escape times from those of trained layers",
        ),
        "consequence of Lemma 1",
    )
    claim = claims_in(basin)[0]
    return figure, (agreed, Finding(claim.statement, claim(lab), claim.citation))


def _trained(lab: Lab, weight: np.ndarray) -> float:
    """The escape time of balanced layers with this product."""
    setting, _ = problem(lab, 2, logistic=True, width=6)
    with quietly():
        until = (LogExcessBelow(float(np.log(basin.RISK))), LogTimeAbove(float(np.log(2 * _END))))
        run = train(setting, FAR, balanced(setting, 0, weight), until=until, steps=20_000)
    return float(np.exp(run.log_time[-1]))
