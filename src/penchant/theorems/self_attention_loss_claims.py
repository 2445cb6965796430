"""Claims that the theorems on token selection survive other losses: the logistic one and the correlation."""

from functools import cache

import numpy as np

from ..diagnostics.direction import misalignments
from ..diagnostics.rates import settling
from ..optimisers.base import gradient_descent, normalised_descent, polyak
from ..settings.base import Setting
from ..settings.losses import Correlation, Logistic
from ..training.recorders import LogSpaced
from ..training.train import train
from ..training.trajectory import Trajectory
from ..verdict import Verdict, all_of, at_most, covers
from .base import Claim, Theorem, judge_direction
from .self_attention import VASUDEVA, AttentionGradientDescent, AttentionNormalisedDescent, AttentionPolyak
from .self_attention_evidence import LENGTH, PAPER, SEEDS, preset

_LOSSES = {"logistic loss": Logistic(), "correlation": Correlation()}
_RULES = {
    "gd": (AttentionGradientDescent(), gradient_descent(1.0)),
    "ngd": (AttentionNormalisedDescent(), normalised_descent(LENGTH["E"])),
    "polyak": (AttentionPolyak(), polyak()),
}


@cache
def _runs(loss: str, rule: str) -> tuple[Trajectory, ...]:
    """10 000 steps on ten data sets of preset E in one vectorised run."""
    pairs = (preset("E", seed)[0] for seed in SEEDS)
    settings = [Setting(one.data, one.parametrisation, _LOSSES[loss]) for one in pairs]
    return tuple(train(settings, _RULES[rule][1], steps=10_000, recorder=LogSpaced(60)))


def _directions(loss: str, rule: str, planted: bool) -> Verdict:
    """The verdict of the theorem on the first data set. Planted: on the first gradient, its nearest rival."""
    theorem: Theorem = _RULES[rule][0]
    run = _runs(loss, rule)[0]
    prediction = theorem.predict(run.setting, _RULES[rule][1])
    return judge_direction(prediction, prediction.rivals[0].weight if planted else run.weight())


def _fast(rule: str, planted: bool) -> Verdict:
    """Direction, and an exponent of 1 - corr below the proved -1 with its whole interval. Planted: below -2.1."""
    checks = []
    for loss in _LOSSES:
        pairs = zip(_runs(loss, rule), SEEDS, strict=True)
        series = [(run.steps, misalignments(run, preset("E", seed)[1])) for run, seed in pairs]
        found = settling(series, (1e3, 1e4))
        text = f"{loss}: upper end of the exponent {found} of 1 - corr, steps 1e3 to 1e4, seeds 0-9,"
        checks += [_directions(loss, rule, False), at_most(found.high, -2.1 if planted else -1.0, text)]
    return all_of(*checks)


def theorem1(planted: bool) -> Verdict:
    return _fast("ngd", planted)


def theorem7(planted: bool) -> Verdict:
    return _fast("polyak", planted)


def theorem6(planted: bool) -> Verdict:
    """Gradient descent: the direction, and L - L* like 1/t, as for the exponential loss."""
    checks = []
    for loss in _LOSSES:
        found = settling([(run.steps, np.exp(run.log_excess)) for run in _runs(loss, "gd")], (1e3, 1e4))
        text = f"{loss}: exponent of L - L*, steps 1e3 to 1e4, seeds 0-9"
        checks += [_directions(loss, "gd", planted), covers(found, -1.0, text, rival=-0.9)]
    return all_of(*checks)


def _claim(name: str, conclusion: str, theorem: str, check: object) -> Claim:
    statement = f"With the logistic loss and the correlation {conclusion}."
    citation = f"{VASUDEVA}, {theorem} with another loss, by us"
    return Claim(f"self-attention/{name}-other-losses", PAPER, statement, citation, check)  # pyright: ignore[reportArgumentType]


CLAIMS = (
    _claim(
        "theorem-1", "normalised descent turns W to W_mm, 1 - corr falling at least like 1/t", "Theorem 1", theorem1
    ),
    _claim("theorem-6", "gradient descent turns W to W_mm, L - L* falling like 1/t", "Theorem 6", theorem6),
    _claim("theorem-7", "Polyak steps turn W to W_mm, 1 - corr falling at least like 1/t", "Theorem 7", theorem7),
)
