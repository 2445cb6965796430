"""Claims on Polyak steps beyond the stability limit: how they swing across W_mm."""

from collections.abc import Sequence

import numpy as np

from ...diagnostics.rates import settling
from ...lab import Lab, claim, recipe
from ...optimisers.base import polyak
from ...references.base import Solution
from ...settings.base import Setting
from ...theory.token_hypotheses import stability_number, unstable_direction
from ...training.recorders import At
from ...training.train import train
from ...verdict import Verdict, all_of, at_most, covers
from .evidence import SEEDS, preset

_BEYOND = np.geomspace(0.04, 0.0025, 6)  # chi/c - 2


def late_swings(
    settings: Sequence[Setting], references: Sequence[Solution], ratios: np.ndarray, steps: int, kept: int
) -> np.ndarray:
    """<V, W> at the last `kept` Polyak steps with c = chi / ratio, V the direction of largest curvature: settings x ratios x steps."""
    pairs = list(zip(settings, references, strict=True))
    c = np.array([stability_number(one.data, found) / ratio for one, found in pairs for ratio in ratios])
    repeated = [one for one, _ in pairs for _ in ratios]
    runs = train(repeated, polyak(c), steps=steps, recorder=At(tuple(range(steps - kept + 1, steps))))
    directions = [unstable_direction(one.data, found) for one, found in pairs for _ in ratios]
    swings = [run.margins[-kept:] @ one for run, one in zip(runs, directions, strict=True)]
    return np.array(swings).reshape(len(pairs), len(ratios), kept)


@recipe
def _swings_beyond(lab: Lab) -> np.ndarray:
    settings, references = zip(*(preset(lab, "H", seed) for seed in SEEDS), strict=True)
    return late_swings(settings, references, 2 + _BEYOND, 6000, 20)


@claim(
    "self-attention/polyak-bifurcation",
    "Just beyond chi/c = 2 Polyak steps alternate between two points across W_mm, at a distance that grows like (chi/c - 2)^(1/2).",
    "derived for penchant",
    kind="ours",
    slow=True,
)
def bifurcation(lab: Lab, planted: bool) -> Verdict:
    """Beyond chi/c = 2 the steps alternate between two points across W_mm, whose distance grows like (chi/c - 2)^(1/2): preset H.

    Planted: like chi/c - 2.
    """
    swings = _swings_beyond(lab)
    apart = np.abs(np.diff(swings, axis=2)).mean(axis=2)
    repeat = np.abs(swings[:, :, 2:] - swings[:, :, :-2]).max(axis=2) / apart
    measured = settling([(1 / _BEYOND, one) for one in apart], (24.0, 410.0))  # towards the limit, where theory speaks
    text = "exponent in 1/(chi/c - 2) of the distance of the two points, chi/c = 2.04 to 2.0025, seeds 0-9"
    return all_of(
        at_most(float(repeat.max()), 1e-5, "what two steps change over what one does, worst of 60 runs"),
        covers(measured, -1.0 if planted else -0.5, text, rival=-0.6),
    )
