"""Claims on steps with the gradients of samples: the perturbed contraction (Lemma 4), and the covariance that preconditions (Lemma 3)."""

import numpy as np

from ...diagnostics.scaling import Exponent, exponent
from ...lab import Lab, claim, recipe
from ...training.recorders import Every
from ...verdict import Verdict, all_of, at_most, covers
from .context import scaling_problem
from .perturbation import Perturbation, covariance_error, perturbation
from .setting.curvature import contraction
from .setting.geometry import geometry_of
from .setting.sample import draw_sample, spectral_layer
from .training.algorithm1 import train_attention
from .training.preconditioned import PreconditionedDescent
from .training.sources import FullSample, Minibatch

COUNTS = (400, 1600, 6400)
_SETS = 60


@recipe
def sampled_steps(
    lab: Lab, source: str, geometry: str = "two_sided", count: int = 300, steps: int = 150
) -> Perturbation:
    """Steps of alpha/(4 beta^2) from the spectral start: on all samples ("full"), or on minibatches of half of them ("batch")."""
    truth = scaling_problem(lab, 1e-3)
    sample = draw_sample(truth, count, np.random.default_rng(5))
    chosen = FullSample(sample) if source == "full" else Minibatch(sample, count // 2)
    rule = PreconditionedDescent(geometry, contraction(truth, geometry_of(geometry)).step / 4)
    start = spectral_layer(sample.estimated)
    run = train_attention(chosen, rule, start, steps=steps, recorder=Every(1), truth=truth)
    return perturbation(run, rule, truth)


@claim(
    "attention-regression/lemma-4-samples",
    "With the gradients, regulariser and preconditioner of a sample dist^2 falls by the factor 1 - step alpha + 2 step^2 beta^2, up to (step/alpha + 2 step^2) epsilon^2.",
    "Goel, Soltanolkotabi, Bartlett, Softmax self-attention trained on linear regression, 2026, Lemma 4 with explicit constants",
    kind="proved",
    slow=True,
)
def lemma4_on_samples(lab: Lab, planted: bool) -> Verdict:
    """The recursion at every step, and the bound it gives at every layer; planted: the contraction of exact gradients, without epsilon."""
    checks = []
    for source in ("full", "batch"):
        found = sampled_steps(lab, source)
        before, after = found.distance[:-1] ** 2, found.distance[1:] ** 2
        allowed = found.gain * before if planted else found.allowed
        checks += [
            at_most(float(found.distance.max()), found.sure.radius, f"largest distance, {source}, bound r_0"),
            at_most(float((after / allowed).max()), 1.0, f"largest dist^2 / right-hand side, {source}, 150 steps"),
            at_most(float((after / found.bound[1:]).max()), 1.0, "largest dist^2 over the accumulated bound"),
            at_most(float(found.distance[-1] ** 2), found.limit, "dist^2 at the end, bound its limit"),
        ]
    return all_of(*checks)


@recipe
def covariance_errors(lab: Lab) -> Exponent:
    """The exponent in n of |Sigma^(1/2) S^-1 Sigma^(1/2) - 1|, S the covariance of n samples."""
    truth = scaling_problem(lab, 1e-3)

    def errors(count: int) -> np.ndarray:
        rng = np.random.default_rng([3, count])
        draws = (rng.standard_normal((count, truth.inputs)) @ np.asarray(truth.root) for _ in range(_SETS))
        return np.array([covariance_error(truth, rows.T @ rows / count) for rows in draws])

    return exponent({count: errors(count) for count in COUNTS})


@claim(
    "attention-regression/lemma-3-covariance",
    "The covariance of n samples preconditions like the true one up to a relative error O(n^-1/2).",
    "Goel, Soltanolkotabi, Bartlett, Softmax self-attention trained on linear regression, 2026, Lemma 3, second event",
    kind="proved",
)
def lemma3_covariance(lab: Lab, planted: bool) -> Verdict:
    """The 95 % interval of the exponent; planted: 1/n."""
    return covers(covariance_errors(lab), -1.0 if planted else -0.5, "exponent of the error in n", rival=-1.0)
