"""Lemma 4 of the deep linear paper: where the orthogonal part of the weight is long the gradient shortens it, and how much of the constant is needed."""

from collections.abc import Callable, Iterator
from functools import partial

import jax.numpy as jnp
import numpy as np
from scipy.optimize import root_scalar
from scipy.special import lambertw

from ...lab import Lab, claim, recipe
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry, support_geometry
from ...settings.classification import Classification
from ...settings.generators import teacher
from ...settings.losses import AbstractLoss, Exponential, Logistic
from ...verdict import Verdict, all_of, at_least, close
from .theorems import JI

_SAMPLED = 4000  # weights per data set
_DRAWS = 3  # data sets per dimension, for the gap
_DIMENSIONS = (2, 3, 4, 6)


@recipe
def _spanned(lab: Lab, d: int) -> tuple[tuple[Classification, SupportGeometry], ...]:
    """The first few of a sequence of data sets whose support vectors span, as the lemma asks."""
    drawn = (teacher(20, d, seed, push=0.2) for seed in range(100))
    found = ((data, support_geometry(data, max_margin(data))) for data in drawn)
    spanned = (pair for pair in found if pair[1].radius > 0)
    return tuple(next(spanned) for _ in range(_DRAWS))


@recipe
def _one_against_many(lab: Lab, n: int, beyond: float) -> tuple[Classification, SupportGeometry]:
    """One support vector on one side of the maximum margin, n - 1 equal ones `beyond` times as far on the other: the worst case of the proof."""
    points = np.tile([0.5, 0.5 * beyond], (n, 1))
    points[0, 1] = -0.5
    data = Classification(points, np.ones(n))
    return data, support_geometry(data, max_margin(data))


# The others push most where their margin across is 1 for the exponential loss, 1.278 for the logistic one at <w, u> = 0.
_WORST = {"sharp": (8, 1 / lambertw(7 / np.e).real), "logistic": (4, 1.15)}


def _push(loss: AbstractLoss, signed: np.ndarray, across: np.ndarray, along: np.ndarray) -> np.ndarray:
    """-<w_perp, grad R> / |w_perp| in units of the sum of -l': positive where the gradient lengthens the orthogonal part."""
    slopes = np.asarray(loss.log_slope(jnp.asarray((across + along) @ signed.T)))
    shares = np.exp(slopes - slopes.max(axis=1, keepdims=True))
    return np.sum(shares * (across @ signed.T), axis=1) / shares.sum(axis=1) / np.linalg.norm(across, axis=1)


def _sampled(
    found: SupportGeometry, lengths: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Orthogonal parts of these lengths in random directions, and parts along the maximum margin, a tenth of them 0."""
    across = rng.standard_normal((len(lengths), len(found.direction)))
    across -= np.outer(across @ found.direction, found.direction)
    across *= (lengths / np.linalg.norm(across, axis=1))[:, None]
    sizes = np.abs(rng.normal(0, 10, len(lengths)))
    sizes[::10] = 0.0
    return lengths, across, np.outer(sizes, found.direction)


def _pulls_back(loss: AbstractLoss, name: str, factor: float) -> Callable[[Lab, bool], Verdict]:
    """Lemma 4 sampled: beyond K the gradient never pushes the orthogonal part outwards. The twin divides K by `factor`."""

    def check(lab: Lab, planted: bool) -> Verdict:
        worst, sets = -np.inf, [(d, _spanned(lab, d)[0]) for d in _DIMENSIONS]
        for d, (data, found) in [*sets, (2, _one_against_many(lab, *_WORST[name]))]:
            rng, threshold = np.random.default_rng(d), found.thresholds(len(data.signed))[name]
            lengths = threshold / (factor if planted else 1) * rng.uniform(1, 3, _SAMPLED)
            _, across, along = _sampled(found, lengths, rng)
            worst = max(worst, float(_push(loss, np.asarray(data.signed), across, along).max()))
        what = "smallest <w_perp, grad R> / |w_perp| beyond the threshold, in units of the sum of -l'"
        where = f"threshold divided by {factor:g}" if planted else f"{_SAMPLED} weights on each of five data sets"
        return at_least(-worst, 0.0, what, where)

    return check


@claim("deep-linear/pull-back-attained", f"{JI}, Lemma 4; derived for penchant", "sharpened")
def attained(lab: Lab, planted: bool) -> Verdict:
    """K cannot be smaller than W((n - 1)/e)/alpha: up to n = 8, one support vector against n - 1 attains it.
    The length at which the gradient turns, on the worst data for n samples; the twin has n where the proof needs n - 1."""
    checks = []
    for n in (4, 6, 8):
        reach = float(lambertw((n if planted else n - 1) / np.e).real)
        data, found = _one_against_many(lab, n, 1 / float(lambertw((n - 1) / np.e).real))
        unit = np.array([-found.direction[1], found.direction[0]])
        unit *= -np.sign(unit @ np.asarray(data.signed)[0])
        push = partial(_push, Exponential(), np.asarray(data.signed), along=np.zeros((1, 2)))
        turning = lambda length, push=push, unit=unit: float(push(length * unit[None])[0])
        predicted = reach / found.radius
        measured = root_scalar(turning, bracket=(predicted / 2, 2 * predicted), xtol=1e-15, rtol=1e-14).root
        checks.append(close(float(measured), predicted, 1e-12, f"{n} samples: length at which the gradient turns"))
    return all_of(*checks)


def violations(lab: Lab, loss: AbstractLoss, name: str, samples: int = 20_000) -> Iterator[tuple[int, float, float]]:
    """Dimension, longest orthogonal part that the gradient was seen to lengthen, and K, on random data."""
    for d in _DIMENSIONS:
        for draw, (data, found) in enumerate(_spanned(lab, d)):
            threshold, rng = found.thresholds(len(data.signed))[name], np.random.default_rng((d, draw))
            shares = np.exp(rng.uniform(np.log(1e-4), 0, samples))
            lengths, across, along = _sampled(found, threshold * shares, rng)
            pushed = _push(loss, np.asarray(data.signed), across, along) > 0
            yield d, float(lengths[pushed].max(initial=0.0)), threshold


pull_back = claim(
    "deep-linear/pull-back",
    f"{JI}, Lemma 4, with the sharper K = W(n/e)/alpha",
    "sharpened",
    statement="Where the orthogonal part is longer than K the gradient shortens it.",
    slow=True,
)(_pulls_back(Exponential(), "sharp", 1.2))
pull_back_logistic = claim(
    "deep-linear/pull-back-logistic",
    f"{JI}, Lemma 4",
    "proved",
    statement="Where the orthogonal part is longer than K = 2n/(e alpha) the gradient of the logistic risk shortens it.",
)(_pulls_back(Logistic(), "logistic", 3.0))
