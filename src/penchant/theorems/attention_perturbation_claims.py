"""Claims on steps with the gradients of samples: the perturbed contraction (Lemma 4), and the covariance that preconditions (Lemma 3)."""

from functools import cache

import numpy as np

from ..diagnostics.scaling import Exponent, exponent
from ..optimisers.preconditioned import PreconditionedDescent
from ..settings.attention_curvature import contraction
from ..settings.attention_geometry import geometry_of
from ..settings.attention_sample import draw_sample, spectral_layer
from ..training.algorithm1 import train_attention
from ..training.attention_sources import FullSample, Minibatch
from ..training.recorders import Every
from ..verdict import Verdict, all_of, at_most, covers
from .attention_context_claims import scaling_problem
from .attention_evidence import attention_claim
from .attention_perturbation import Perturbation, covariance_error, perturbation

COUNTS = (400, 1600, 6400)
_SETS = 60


@cache
def sampled_steps(source: str, geometry: str = "two_sided", count: int = 300, steps: int = 150) -> Perturbation:
    """Steps of alpha/(4 beta^2) from the spectral start: on all samples ("full"), or on minibatches of half of them ("batch")."""
    truth = scaling_problem(1e-3)
    sample = draw_sample(truth, count, np.random.default_rng(5))
    chosen = FullSample(sample) if source == "full" else Minibatch(sample, count // 2)
    rule = PreconditionedDescent(geometry, contraction(truth, geometry_of(geometry)).step / 4)
    start = spectral_layer(sample.estimated)
    run = train_attention(chosen, rule, start, steps=steps, recorder=Every(1), truth=truth)
    return perturbation(run, rule, truth)


def lemma4_on_samples(planted: bool) -> Verdict:
    """The recursion at every step, and the bound it gives at every layer; planted: the contraction of exact gradients, without epsilon."""
    checks = []
    for source in ("full", "batch"):
        found = sampled_steps(source)
        before, after = found.distance[:-1] ** 2, found.distance[1:] ** 2
        allowed = found.gain * before if planted else found.allowed
        checks += [
            at_most(float(found.distance.max()), found.sure.radius, f"largest distance, {source}, bound r_0"),
            at_most(float((after / allowed).max()), 1.0, f"largest dist^2 / right-hand side, {source}, 150 steps"),
            at_most(float((after / found.bound[1:]).max()), 1.0, "largest dist^2 over the accumulated bound"),
            at_most(float(found.distance[-1] ** 2), found.limit, "dist^2 at the end, bound its limit"),
        ]
    return all_of(*checks)


@cache
def covariance_errors() -> Exponent:
    """The exponent in n of |Sigma^(1/2) S^-1 Sigma^(1/2) - 1|, S the covariance of n samples."""
    truth = scaling_problem(1e-3)

    def errors(count: int) -> np.ndarray:
        rng = np.random.default_rng([3, count])
        draws = (rng.standard_normal((count, truth.inputs)) @ np.asarray(truth.root) for _ in range(_SETS))
        return np.array([covariance_error(truth, rows.T @ rows / count) for rows in draws])

    return exponent({count: errors(count) for count in COUNTS})


def lemma3_covariance(planted: bool) -> Verdict:
    """The 95 % interval of the exponent; planted: 1/n."""
    return covers(covariance_errors(), -1.0 if planted else -0.5, "exponent of the error in n", rival=-1.0)


CLAIMS = (
    attention_claim(
        "lemma-4-samples",
        "With the gradients, regulariser and preconditioner of a sample dist^2 falls by the factor 1 - step alpha + 2 step^2 beta^2, up to (step/alpha + 2 step^2) epsilon^2.",
        "Lemma 4 with explicit constants",
        lemma4_on_samples,
    ),
    attention_claim(
        "lemma-3-covariance",
        "The covariance of n samples preconditions like the true one up to a relative error O(n^-1/2).",
        "Lemma 3, second event",
        lemma3_covariance,
    ),
)
