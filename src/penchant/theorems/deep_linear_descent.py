"""Claims of the deep linear paper on descent: the risk vanishes and the layers align (Theorems 3 and 4), and the pull of Lemma 4 behind it."""

from collections.abc import Callable
from functools import cache

import jax.numpy as jnp
import numpy as np

from ..diagnostics.alignment import alignments
from ..diagnostics.rates import log_log_slope
from ..errors import quietly
from ..optimisers.layerwise import BallStep, LayerDescent
from ..references.euclidean_margin import max_margin
from ..references.support_geometry import SupportGeometry, support_geometry
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import DeepLinear
from ..settings.generators import teacher
from ..settings.losses import AbstractLoss, Exponential, Logistic
from ..training.recorders import LogSpaced
from ..training.train import train
from ..training.trajectory import Trajectory
from ..verdict import Verdict, all_of, at_least, at_most
from .base import judge_direction
from .deep_linear import DeepLinearMaxMargin, sourced
from .deep_linear_problems import mirrored, problem

_STEPS = 200_000  # of Assumption 5, whose steps are short
_SAMPLED = 4000  # weights per data set


@cache
def proved_descent(depth: int) -> Trajectory:
    """Descent with the steps of Assumption 5 on the logistic risk; at depth 3 from a small start, whose layers need less growth to align."""
    setting, start = problem(depth, logistic=True, scale=0.4 if depth == 2 else 0.15)
    return train(setting, LayerDescent(BallStep(tight=depth > 2)), start, steps=_STEPS, recorder=LogSpaced(200))


@cache
def _mirrored_descent() -> Trajectory:
    """The same steps from w1 = -w2, which descent keeps to the last bit: above the risk of zero for ever."""
    start = mirrored()[1]
    setting = Setting(Classification([[1.0]], [1]), DeepLinear((3,)), Logistic())
    with quietly():
        return train(setting, LayerDescent(BallStep()), start, steps=_STEPS, recorder=LogSpaced(200))


def descent_risk(planted: bool) -> Verdict:
    """The risk falls as long as one follows it, about like the inverse of the sum of the steps, and so the layers grow."""
    checks = []
    for name, run in {"start w1 = -w2": _mirrored_descent()}.items() if planted else _proved().items():
        assert run.account is not None
        total, risk = np.exp(run.account["log_step_sum"][1:]), np.exp(run.log_excess[1:])
        slope = log_log_slope(total, risk, (total[-1] / 10, total[-1]))
        checks += [
            at_most(float(risk[-1]), 0.01, f"{name}: risk after {_STEPS} steps"),
            at_most(slope, -1.0, f"{name}: slope of log R in the log of the sum of the steps, last decade"),
            at_most(float(np.diff(run.log_excess).max()), 0.0, f"{name}: largest rise of log R"),
        ]
    return all_of(*checks)


def descent_aligns(planted: bool) -> Verdict:
    """Ratios, alignments and direction at the end; the twin looks at the start."""
    checks, record = [], 0 if planted else -1
    for name, run in _proved().items():
        found = alignments(run)
        prediction = DeepLinearMaxMargin().predict(run.setting, LayerDescent(BallStep()))
        checks += [
            at_most(float(found.deficit[record].max()), 0.05, f"{name}: largest 1 - spectral/Frobenius"),
            at_most(float(found.misfit[record].max()), 1e-2, f"{name}: largest 1 - |<v, u>|"),
            judge_direction(prediction, run.weight(record)),
        ]
    return all_of(*checks)


def _proved() -> dict[str, Trajectory]:
    return {f"depth {depth}": proved_descent(depth) for depth in (2, 3)}


@cache
def _spanned(d: int) -> tuple[Classification, SupportGeometry]:
    """The first of a sequence of data sets whose support vectors span, as the lemma asks."""
    for seed in range(100):
        data = teacher(20, d, seed, push=0.2)
        found = support_geometry(data, max_margin(data))
        if found.radius > 0:
            return data, found
    raise LookupError(f"no data set in dimension {d} has spanning support vectors")


def _pulls_back(loss: AbstractLoss, name: str) -> Callable[[bool], Verdict]:
    """Lemma 4 sampled: beyond K the gradient never pushes the orthogonal part outwards. The twin divides K by 1000."""

    def check(planted: bool) -> Verdict:
        worst = np.inf
        for d in (2, 3, 4, 6):
            data, found = _spanned(d)
            signed, rng = np.asarray(data.signed), np.random.default_rng(d)
            threshold = found.thresholds(20)[name] / (1000 if planted else 1)
            across = rng.standard_normal((_SAMPLED, d))
            across -= np.outer(across @ found.direction, found.direction)
            across *= (threshold * rng.uniform(1, 3, _SAMPLED) / np.linalg.norm(across, axis=1))[:, None]
            margins = (across + np.outer(np.abs(rng.normal(0, 10, _SAMPLED)), found.direction)) @ signed.T
            slopes = np.asarray(loss.log_slope(jnp.asarray(margins)))
            shares = np.exp(slopes - slopes.max(axis=1, keepdims=True))
            push = np.sum(shares * (across @ signed.T), axis=1) / shares.sum(axis=1)
            worst = min(worst, float((-push / np.linalg.norm(across, axis=1)).min()))
        return at_least(
            worst,
            0.0,
            "smallest <w_perp, grad R> / |w_perp| beyond the threshold, in units of the sum of -l'",
            "threshold divided by 1000" if planted else f"{_SAMPLED} weights in each of 2, 3, 4 and 6 dimensions",
        )

    return check


CLAIMS = (
    sourced(
        "descent-risk",
        "Descent with the steps of Assumption 5 sends the risk to 0.",
        "Theorem 3; the twin starts on the stable manifold of the saddle",
        descent_risk,
    ),
    sourced(
        "descent-aligns",
        "Descent with the steps of Assumption 5 aligns the layers and turns to the maximum margin.",
        "Theorems 3 and 4",
        descent_aligns,
    ),
    sourced(
        "pull-back",
        "Where the orthogonal part is longer than K the gradient shortens it.",
        "Lemma 4, with the sharper K = W(n/e)/alpha",
        _pulls_back(Exponential(), "sharp"),
    ),
    sourced(
        "pull-back-logistic",
        "Where the orthogonal part is longer than K = 2n/(e alpha) the gradient of the logistic risk shortens it.",
        "Lemma 4",
        _pulls_back(Logistic(), "logistic"),
    ),
)
