"""Embedded evidence on token selection with a fixed decoder: the two presets of the paper's Figure 2, and cached runs on them."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import lambertw

from ...diagnostics.direction import misalignments
from ...diagnostics.rates import Settling, settling
from ...flow.flow import GradientFlow
from ...lab import Lab, recipe
from ...optimisers.base import Accelerated, gradient_descent, momentum, normalised_descent, polyak
from ...problem import read
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.generators import signal_tokens
from ...settings.losses import Exponential
from ...settings.parametrisations import Direct, Gram
from ...settings.tokens import TokenSelection
from ...theory import token_hypotheses as conditions
from ...training.events import LogExcessBelow, NormAbove
from ...training.recorders import Every, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory

PAPER = "self_attention_rates"
SEEDS = range(10)
LENGTH = {"E": 0.05, "H": 0.1}


@recipe
def preset(lab: Lab, name: str, seed: int = 0) -> tuple[Setting, Solution]:
    """Preset E (nearly orthogonal tokens) or H (hard), in Gram form, with the maximum-margin reference."""
    data = signal_tokens(seed=seed) if name == "E" else signal_tokens(20, 5, 50, 1.0, 0.1, seed)
    return Setting(data, Gram(data), Exponential()), max_margin(data)


@recipe
def every_step(lab: Lab, name: str) -> Trajectory:
    """Normalised descent, recorded at every step: 10 000 of them on E, 4000 on H."""
    setting, _ = preset(lab, name)
    return train(setting, normalised_descent(LENGTH[name]), steps=10_000 if name == "E" else 4000, recorder=Every())


@recipe
def run_of(lab: Lab, rule: str) -> Trajectory:
    """10 000 steps on preset E; normalised descent and Polyak are recorded at every step."""
    if rule == "ngd":
        return every_step(lab, "E")
    setting, _ = preset(lab, "E")
    rules = {"gd": gradient_descent(1.0), "momentum": momentum(LENGTH["E"]), "polyak": polyak()}
    return train(setting, rules[rule], steps=10_000, recorder=Every() if rule == "polyak" else LogSpaced(120))


@recipe
def flow_run(lab: Lab) -> Trajectory:
    """The flow on preset E to log excess -1e4."""
    return train(preset(lab, "E")[0], GradientFlow(), until=LogExcessBelow(-1e4))


PARTIAL = tuple(range(3, 9))  # the seeds of preset H on which some pair does not support


@recipe
def partial_flows(lab: Lab) -> tuple[tuple[Trajectory, Solution], ...]:
    """The flow on preset H to |W| = 1e7, where not every pair supports, with the references."""
    pairs = (preset(lab, "H", seed) for seed in PARTIAL)
    return tuple((train(setting, GradientFlow(), until=NormAbove(1e7)), found) for setting, found in pairs)


@recipe
def ten_runs(lab: Lab, rule: str) -> tuple[tuple[Trajectory, Solution], ...]:
    """10 000 steps on ten data sets of preset E in one vectorised run, with their references."""
    settings, references = zip(*(preset(lab, "E", seed) for seed in SEEDS), strict=True)
    longest = np.array([float(np.diag(np.asarray(one.parametrisation.matrix)).max()) for one in settings])
    rules = {
        "ngd": normalised_descent(LENGTH["E"]),
        "ngd, cap 100": normalised_descent(LENGTH["E"], 100.0),
        "accelerated": Accelerated(0.5 / longest),
    }
    return tuple(
        zip(train(list(settings), rules[rule], steps=10_000, recorder=LogSpaced(120)), references, strict=True)
    )


def measured_rate(lab: Lab, rule: str) -> Settling:
    """Exponent of 1 - corr over steps 1e3 to 1e4."""
    return settling([(run.steps, misalignments(run, found)) for run, found in ten_runs(lab, rule)], (1e3, 1e4))


def sharp_constant(setting: Setting, reference: Solution, outside: float = 0.0) -> float:
    """The limit of |W|^2 (1 - corr): of the support pairs, plus half of `outside`, the square of what W has outside their span.

    That part is 0 where every pair supports; otherwise it depends on the path, and `outside_support` reads it off a run.
    """
    data: TokenSelection = setting.data
    support = reference.support
    gram, dual = np.asarray(data.gram())[np.ix_(support, support)], reference.dual[support]
    slope = np.repeat(np.asarray(setting.loss.log_slope(data.best_scores())), data.others.shape[1])
    beta = (slope + np.log(np.asarray(data.deficits()).ravel()))[support] - np.log(dual)
    shift = -(dual @ beta) / dual.sum()
    residual = np.linalg.solve(gram, beta + shift)
    return float(0.5 * residual @ gram @ residual + 0.5 * outside)


def outside_support(run: Trajectory, reference: Solution) -> np.ndarray:
    """Squared length of the part of W outside the span of the support features, at every record of a run from zero.

    By the accumulated multipliers of the other pairs and the Schur complement of their Gram matrix: nothing cancels.
    """
    support, gram = reference.support, np.asarray(run.setting.data.gram())
    inner, cross = gram[np.ix_(support, support)], gram[np.ix_(support, ~support)]
    schur = gram[np.ix_(~support, ~support)] - cross.T @ np.linalg.solve(inner, cross)
    others = run.dual[:, ~support]
    return np.einsum("rk,kl,rl->r", others, schur, others)


def _bound_constants(setting: Setting, xi: float) -> tuple[float, float]:
    """B^2, and the argument of the logarithm in Lemma 2 before division by pi."""
    data: TokenSelection = setting.data
    n, others = data.others.shape
    deficit, best = np.asarray(data.deficits()).max(axis=1), np.asarray(data.best_scores())
    strongest, weakest = (deficit * np.exp(-best + deficit)).max(), (deficit * np.exp(-best)).min()
    square = conditions.token_bound(data) ** 2
    return square, 2 * n * others * square * strongest / (xi**2 * weakest)


def lemma2_excess(setting: Setting, reference: Solution, xi: float, norm: np.ndarray) -> np.ndarray:
    """pi(R): by how much <-grad L, W/|W|> may exceed <-grad L, W_mm/|W_mm|> once |W| = R (inverse of R = |W_mm| log(A/pi)/pi)."""
    _, scale = _bound_constants(setting, xi)
    argument = scale * reference.value
    return argument * np.exp(-np.real(lambertw(argument * norm / reference.value)))


def naive_gradient_error(setting: Setting, reference: Solution, scale: float) -> tuple[float, float]:
    """Direction error at scale * W_mm of the plain float64 gradient, and of the log-space slope, against 60-digit arithmetic."""
    data: TokenSelection = setting.data
    weight = jnp.asarray(scale * reference.weight)

    def loss(weight: jax.Array) -> jax.Array:
        share = jax.nn.softmax(data.logits(weight), axis=1)
        return jnp.mean(setting.loss.value((share * data.scores).sum(axis=1)))

    naive = np.asarray(jax.grad(loss)(weight)).ravel()
    ours = np.asarray(read(Setting(data, Direct(), setting.loss), weight).slope).ravel()
    exact = exact_slope(data, np.asarray(weight)).ravel()
    unit = exact / np.linalg.norm(exact)

    def error(vector: np.ndarray) -> float:
        size = np.linalg.norm(vector)
        return float(np.linalg.norm(vector / size - unit)) if size > 0 else 1.0

    return error(naive), error(ours)


def exact_slope(data: TokenSelection, weight: np.ndarray) -> np.ndarray:
    """Direction of the exponential loss gradient in 60-digit decimal arithmetic, rounded at the very end."""
    from decimal import Decimal, localcontext

    tokens, queries, scores = (np.asarray(array) for array in (data.tokens, data.queries, data.scores))
    number = np.vectorize(Decimal, otypes=[object])
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**15, -(10**15)
        rows = []
        for token, query, score in zip(number(tokens), number(queries), number(scores), strict=True):
            logits = token @ (number(weight) @ query)
            share = np.array([(logit - max(logits)).exp() for logit in logits], dtype=object)
            share = share / share.sum()
            reached = (share * score).sum()
            deficit = np.array(
                [(share * (score - own)).sum() for own in score], dtype=object
            )  # reached - score, uncancelled
            rows.append((-reached).exp() * share * deficit)
        top = max(abs(value) for row in rows for value in row)
        pull = np.array([[float(value / top) for value in row] for row in rows])
    return np.einsum("nt,ntd,ne->de", pull, tokens, queries)
