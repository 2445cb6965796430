"""Laws of deep linear networks that the paper leaves open: rates to risk e^-1000000, where the support vectors span and where they do not (Assumption 3).

Deep linear networks in discrete time: the relative step beyond which descent leaves the flow, also with momentum.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.special import entr

from ...diagnostics.alignment import sine
from ...diagnostics.rates import Settling, log_log_slope, settling
from ...lab import Lab, claim, recipe
from ...optimisers.base import Descent
from ...optimisers.step_rules import HeavyBall, Polyak
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry
from ...theory.families.layers import critical_step
from ...training.events import LogExcessBelow, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_least, at_most, covers
from .drawn import DESCENTS, drawn, flows, weights_of
from .evidence import DERIVED, across, few_supports, flow, geometry, layers, levels, problem

DEPTHS = (2, 3, 4, 6)
STARTS = range(1, 7)
# Two decades: at depth 6 corrections fall like (-log R)^(-1/3), and only over a whole decade to less than half.
WINDOW = (1e4, 1e6)
# The first layer has terms (-log R)^-1 next to (-log R)^(-3/L): at depth 4 their ratio falls to less than half over two decades only.
FIRST_LAYER = (1e2, 1e6)

law = partial(claim, citation=DERIVED, kind="ours", slow=True)


def _nears(found: SupportGeometry, level: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The exponent in -log R, over its last decade, of the distance of the part across the maximum margin from `share` of the offset."""
    late = level > 0.09 * level[-1]
    beside = weights[late] - np.outer(weights[late] @ found.direction, found.direction)
    distance = np.linalg.norm(beside - share * found.offset, axis=1)
    return log_log_slope(level[late], distance, (level[-1] / 10, level[-1]))


@law("deep-linear/offset")
def offset(lab: Lab, planted: bool) -> Verdict:
    """The part of the network orthogonal to the maximum margin tends to one vector, the same for every depth, loss and start.
    The distance falls at least like half of the power -1 of -log R: on 24 draws of Assumption 3 at depths 2 and 3, and to risk e^-1e6 on the strips at depth 4 with both losses. Planted: a vector one per cent longer."""
    slopes, share = [], 1.01 if planted else 1.0
    for depth in DESCENTS:
        run, paths = flows(lab, depth), weights_of(flows(lab, depth).layers)
        parts = zip(drawn(lab, depth).found, -run.log_risk, paths, strict=True)
        slopes += [_nears(*part, share) for part in parts]
    for run in (flow(lab, 4, logistic, 1 + lab.seed) for logistic in (False, True)):
        slopes.append(_nears(geometry(lab), levels(run), np.stack([run.weight(k) for k in range(len(run))]), share))
    above = f"{sum(slope > -0.5 for slope in slopes)} of {len(slopes)} above"
    return at_most(max(slopes), -0.5, "slowest exponent in -log R of the distance from the predicted vector", above)


@law("deep-linear/time")
def time(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The risk falls like 1/(L margin^(2/L) t log^(2-2/L) t).
    log t = Lambda - log N + log(1 + p/Lambda), Lambda = -log R and p = 2 - 2/L. Left out is p (p + 1 + log n - H)/Lambda^2, H the entropy of the multipliers: N is a power of
    margin |w| = Lambda - log n + H. That, half as much for later orders, and the rounding of log t are allowed past risk e^-1000. Planted: a p one per cent larger."""
    data = problem(lab)[0].data
    dual = max_margin(data).dual
    beside = float(np.log(len(dual)) - entr(dual / dual.sum()).sum())
    for depth in DEPTHS:
        run, power = flow(lab, depth, seed=1 + lab.seed), 2 - 2 / depth
        late = levels(run) > 1e3
        level, log_time, log_slope = levels(run)[late], run.log_time[late], run.log_slope[late]
        apart = np.abs(log_time - (level - 2 * log_slope + np.log1p((1.01 if planted else 1.0) * power / level)))
        allowed = 1.5 * power * (power + 1 + beside) / level**2 + 4 * np.finfo(float).eps * level
        yield at_most(
            float((apart / allowed).max()), 1.0, f"depth {depth}: largest |log t - predicted| over what is left out"
        )


@recipe
def series(lab: Lab, depth: int, logistic: bool = False, seed: int = 1) -> dict[str, np.ndarray]:
    """The quantities that have an exponent in -log R: layer 2 (or 1 of 2), the pair above the first, the weight, the first layer."""
    run, found, unit = flow(lab, depth, logistic, seed), layers(lab, depth, logistic, seed), geometry(lab).direction
    middle = min(2, depth - 1) - 1
    return {
        "ratio": found.deficit[:, middle],
        "alignment": found.misfit[:, middle],
        "weight": np.array([sine(run.weight(k), unit) for k in range(len(run))]),
        "first layer": np.array([sine(vector, unit) for vector in found.first]),
    }


def exponents(depth: int) -> dict[str, float]:
    """The predicted exponents."""
    return {"ratio": -2 / depth, "alignment": -4 / depth, "weight": -1.0, "first layer": -min(1.0, 3 / depth)}


@recipe
def measured_exponents(lab: Lab, depth: int, logistic: bool = False, starts: range = STARTS) -> dict[str, Settling]:
    """Slopes of log-log fits over the last decades of -log R, with their drift and their interval over starts.

    The constant of the first layer is a signed number that some starts nearly lack, which then show the next term of the expansion: there
    the root mean square over the starts has the slope.
    """
    at = [levels(flow(lab, depth, logistic, seed)) for seed in starts]
    found = [series(lab, depth, logistic, seed) for seed in starts]
    late = lambda name: [(x[x > 1], one[name][x > 1]) for x, one in zip(at, found, strict=True)]
    slopes = {name: settling(late(name), WINDOW) for name in exponents(depth)}
    return slopes | {"first layer": settling(late("first layer"), FIRST_LAYER, pool=True)}


def _exponent(name: str, rival: Callable[[int], float]) -> Callable[[Lab, bool], Iterator[Verdict]]:
    def check(lab: Lab, planted: bool) -> Iterator[Verdict]:
        starts = range(1 + lab.seed, 1 + lab.seed + len(STARTS))
        for depth, logistic in (*((depth, False) for depth in DEPTHS), (4, True), (6, True)):
            values = exponents(depth)[name], rival(depth)
            wanted, other = values[::-1] if planted else values
            if wanted == other:
                continue  # at this depth the two laws say the same
            what = f"depth {depth}{', logistic' if logistic else ''}: exponent"
            yield covers(measured_exponents(lab, depth, logistic, starts)[name], wanted, what, rival=other)

    return check


ratio_exponent = law("deep-linear/ratio-exponent", statement="1 - spectral/Frobenius ~ (-log R)^(-2/L).")(
    _exponent("ratio", lambda depth: -1 / depth)
)
alignment_exponent = law(
    "deep-linear/alignment-exponent",
    statement="1 - |<v_{k+1}, u_k>| ~ (-log R)^(-4/L): twice the exponent of the paper's bound.",
)(_exponent("alignment", lambda depth: -2 / depth))
first_layer_exponent = law(
    "deep-linear/first-layer-exponent",
    statement="sin(angle of v_1 to the maximum margin) ~ (-log R)^-min(1, 3/L).",
)(_exponent("first layer", lambda depth: -1.0))


@law("deep-linear/no-span")
def no_span(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """If the support vectors do not span, the direction turns like (-log R)^(-1/L).
    Without Assumption 3 the direction turns like (-log R)^(-1/L)."""
    for depth in (2, 3, 4):
        paths = []
        for seed in range(3 + lab.seed, 6 + lab.seed):
            found, run = few_supports(lab, depth, seed)
            paths.append((levels(run), np.array([sine(run.weight(k), found.direction) for k in range(len(run))])))
        values = (-1.0, -1 / depth) if planted else (-1 / depth, -1.0)
        yield covers(settling(paths, WINDOW), values[0], f"depth {depth}: exponent", rival=values[1])


LEVEL = 2000.0  # of -log R, where corrections to the critical step have fallen below its two per cent
_STEPS = 200_000


@recipe
def relative_descent(lab: Lab, share: float, depth: int, momentum: float = 0.0) -> Trajectory:
    """Descent on the strips with steps that promise `share` of the critical drop of log R, with momentum 1 + beta times that, to risk e^-LEVEL."""
    setting, start = problem(lab, depth)
    drop = share * (1 + momentum) * critical_step(geometry(lab), depth)
    optimiser = Descent(Polyak(1 / drop), after=HeavyBall(momentum)) if momentum else Descent(Polyak(1 / drop))
    return train(setting, optimiser, start, steps=_STEPS, until=LogExcessBelow(-LEVEL), recorder=LogSpaced(40))


def offset_error(weight: np.ndarray, found: SupportGeometry) -> float:
    """Distance of the offset of a weight from the one the flow tends to, relative to that."""
    return float(np.linalg.norm(across(weight, found) - found.offset) / np.linalg.norm(found.offset))


def _around(lab: Lab, depth: int, scale: float, beta: float = 0.0) -> Iterator[Verdict]:
    """The offset settles two per cent below `scale` times the critical step, and not two per cent above."""
    error = lambda share: offset_error(relative_descent(lab, scale * share, depth, beta).weight(), geometry(lab))
    what = f"depth {depth}: relative error of the offset, step"
    yield at_most(error(0.98), 1e-3, f"{what} 0.98")
    yield at_least(error(1.02), 0.1, f"{what} 1.02")


@claim("deep-linear/critical-step", f"{DERIVED}; discretisation is open there", "ours", slow=True)
def critical(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Descent follows the flow to its offset if a step promises log R to drop by less than 2 L margin^2 / (largest variance of the support vectors across the margin), with momentum beta by less than 1 + beta times that, and only then.
    Two per cent below the critical step the offset is that of the flow, two per cent above it never settles; the twin has lost the factor L, and has 1 / (1 - beta), by which momentum speeds up."""
    for depth in (1, 2, 3, 4):
        yield from _around(lab, depth, 1 / depth if planted else 1.0)
    beta = 0.5
    for depth in (2, 3):
        yield from _around(lab, depth, 1 / (1 - beta) / (1 + beta) if planted else 1.0, beta)
