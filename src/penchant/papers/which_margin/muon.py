"""Muon: the polar factor finds the spectral margin; five Newton-Schulz steps rest below it; weight decay is Frank-Wolfe."""

from collections.abc import Iterator

import numpy as np

from ...lab import Lab, claim, derived, recipe
from ...norms import norm_named
from ...optimisers.newton_schulz import spread
from ...verdict import Verdict, at_least, at_most
from .comparison import THETA
from .evidence import along, best, drawn, features, mean_interval, past_turn, runs, tends
from .flows import Path, Rest, follow, newton_schulz, newton_schulz_with, rest_point
from .theorems import FAN

_FRANK_WOLFE = 2000
_HIGHEST = 1.20237  # no singular value leaves the rounds above it


@recipe
def flow(lab: Lab, seed: int) -> Path:
    return follow(features(lab, seed), newton_schulz, np.array([0.0, 300.0, 1000.0, 3000.0]))


@recipe
def rest(lab: Lab, seed: int) -> Rest:
    """Where the flow of Newton-Schulz steps comes to rest."""
    return rest_point(features(lab, seed), newton_schulz, flow(lab, seed).shares[-1])


def rest_share(lab: Lab, seed: int) -> float:
    """The share of the spectral margin at the rest point."""
    found = rest(lab, seed)
    return found.pace / float(np.linalg.norm(found.velocity, 2)) / best(lab)[seed]["spectral"].margin


def promised(lab: Lab, seed: int) -> float:
    """The least share that the rounds promise a limit: <U, G> over the nuclear norm of G, which is at least the best margin, over their largest spectral norm."""
    sizes = np.linalg.svd(np.tensordot(rest(lab, seed).shares, features(lab, seed), 1), compute_uv=False)
    return float(spread(sizes / np.linalg.norm(sizes)) @ sizes / sizes.sum()) / _HIGHEST


@claim("which-margin/muon", f"{FAN}, abstract (MUON) and (NMD)", "proved", slow=True)
def exact(lab: Lab, planted: bool) -> Verdict:
    """Muon with the polar factor maximises the spectral margin, with and without momentum.
    What 3000 steps tend to, less than 0.02 missing, on each of twenty data sets. Planted: five Newton-Schulz steps in place of the polar factor."""
    rules = ("muon ns5",) if planted else ("spectral", "muon")
    found = min(tends(lab, rule, "spectral").min() for rule in rules)
    return at_least(float(found), 1 - THETA, "smallest share of the spectral margin")


@derived("which-margin/newton-schulz", slow=True)
def rests(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Newton-Schulz Muon does not maximise the spectral margin: its flow rests where the replicator law says, with a mean share of 0.95 +- 0.02.
    Rest points of residual below 1e-8 on twenty data sets; the flow at time 3000 is as near as the soft
    minimum of N margins allows, log(N)/margin; no share is below what the rounds promise. Planted: the rest point of the polar factor, share 1."""
    found = np.array([rest_share(lab, seed) for seed in range(len(drawn(lab)))])
    yield at_most(max(max(rest(lab, seed)[3:]) for seed in range(len(found))), 1e-8, "largest residual of a rest point")
    reached = np.array([along(lab, seed, flow(lab, seed), "spectral")[-1] for seed in range(len(found))])
    allowed = np.array([np.log(len(features(lab, seed))) / flow(lab, seed).margins[-1] for seed in range(len(found))])
    apart = np.abs(reached - (1.0 if planted else found)) / allowed
    yield at_most(float(apart.max()), 1.0, "largest distance of the flow from its rest point, over log(N)/margin")
    mean, error = mean_interval(found)
    promise = [promised(lab, seed) for seed in range(len(found))]
    yield at_least(float((found / promise).min()), 1.0, "smallest share at rest over the promised one")
    yield at_most(mean + error, 1 - THETA, f"mean share at rest {mean:.4f}, with two standard errors")


@derived("which-margin/no-norm")
def no_norm(lab: Lab, planted: bool) -> Verdict:
    """Newton-Schulz steps are steepest descent in no norm: the angle of (f(cos), f(sin)) would never fall as that of (cos, sin) grows.
    The largest fall over a fine grid, in radians. Planted: a monotone map of the same kind, x -> 1.5 x - 0.5 x^3 five times."""
    monotone = lambda x: x
    for _ in range(5):
        monotone = lambda x, before=monotone: 1.5 * before(x) - 0.5 * before(x) ** 3
    angles = np.linspace(1e-4, np.pi / 4, 20_001)
    image = monotone if planted else spread
    turned = np.arctan2(image(np.sin(angles)), image(np.cos(angles)))
    return at_least(float((np.maximum.accumulate(turned) - turned).max()), 0.1, "largest fall of the angle")


@recipe
def shipped_end(lab: Lab, seed: int) -> Path:
    """The flow with the shipped epsilon at a margin of about a thousand."""
    end = 1000 / best(lab)[seed]["spectral"].margin / 0.9
    rule = newton_schulz_with(float(np.log(1e-7)))
    return follow(features(lab, seed), rule, np.array([0.0, end]), tolerance=1e-6)


@derived("which-margin/shipped-epsilon", slow=True)
def shipped(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The epsilon that Muon ships turns it into gradient descent beyond the margin log(1/eps) + log 485 = 22.3: the Frobenius margin, not the spectral one.
    eps = 1e-7 in the flow to a margin of a thousand, twenty data sets. With s = 22.3/margin, the sine of what is left of a right angle, the Frobenius share may miss log(N)/margin
    and s^2/2; the spectral share is that of the Frobenius solution, up to as much and s over the spectral norm of the unit solution. Planted: it ends at the spectral margin."""
    paths = [shipped_end(lab, seed) for seed in range(len(drawn(lab)))]
    return past_turn(lab, paths, "spectral", [22.3 / path.margins[-1] for path in paths], planted)


@derived("which-margin/frank-wolfe", slow=True)
def frank_wolfe(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Decoupled decay of steepest descent is Frank-Wolfe: weights stay in the ball of radius 1/decay, and margins are at least best margin/decay - log N - certified gap.
    Signs and polar factors, steps that fall like 1/t, twenty data sets. Planted: Newton-Schulz steps in the spectral ball."""
    names = {"frank-wolfe ns5" if planted else "frank-wolfe spectral": "spectral", "frank-wolfe max": "max"}
    for rule, name in names.items():
        norm, worst, short = norm_named(name), 0.0, -np.inf
        for seed, run in enumerate(runs(lab, rule, "exponential", _FRANK_WOLFE, 20.0)):
            rows, weight, gamma = features(lab, seed), run.weight(), best(lab)[seed][name].margin
            worst = max(worst, max(norm.value(one) for one in run.params) / 20.0)
            pull = np.tensordot(run.weights[-1], rows, 1)
            gap = 20.0 * norm.dual(pull) - np.vdot(pull, weight)
            short = max(short, gamma - (np.log(len(rows)) + gap) / 20.0 - np.tensordot(rows, weight, 2).min() / 20.0)
        yield at_most(worst, 1 + 1e-12, f"largest {name} norm times decay")
        yield at_most(short, 1e-9, f"best margin - decay (log N + gap + margin), {name}, largest")
