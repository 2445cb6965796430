"""Claims on a finite context: the bias of the gradients (Theorems 3 to 5), and the lemmas behind it on the softmax of one query over normal keys, given that query.

With v = V x, mu = Sigma V x, q = v' Sigma v and the own logit l = x'v the weights of a large context are those of N(mu, Sigma): a key counts
e^(k'v - q/2)/n, the query itself e^(l - q/2)/n. The first order in 1/n of every mean and variance below follows; the lemmas bound them.
"""

from collections.abc import Callable, Iterator
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...lab import Lab, claim, recipe
from ...verdict import Verdict, all_of, at_most
from .evidence import neighbourhood, scaling_problem
from .setting.context_bias import (
    Estimate,
    extrapolated,
    gradient_bias_samples,
    whitened_balance_bias,
    whitened_loss_bias,
)
from .theorems import GOEL


def agrees(found: Estimate, predicted: float, what: str) -> Verdict:
    """Confirmed within four standard errors."""
    text = f"{what}: |{found.mean:.6g} - {predicted:.6g}| in standard errors of {found.error:.2g}"
    return at_most(found.away(predicted), 4.0, text)


_POINTS = 24


@recipe
def _gradient_samples(lab: Lab) -> np.ndarray:
    """n (empirical - population gradient) at points of the neighbourhood of Theorem 3: points x draws x rows x d."""
    problem = scaling_problem(lab)
    layers = [problem.unwhiten(jnp.asarray(one)) for one in neighbourhood(problem, _POINTS, 5)]
    return np.stack([gradient_bias_samples(problem, one, 50, 400, k) for k, one in enumerate(layers)])


@recipe
def _balance_slopes(lab: Lab) -> np.ndarray:
    """The same for the gradient of the regulariser with the sample's covariance, less its linear part, which has mean 0."""
    problem, count, draws = scaling_problem(lab), 400, 1000

    def value(whitened: Array, seen: Array) -> Array:
        value, key = whitened[: problem.outputs], whitened[problem.outputs :].T
        product = seen @ (value.T @ value - key @ seen @ key.T)
        return 0.25 * jnp.trace(product @ product)

    def one(whitened: Array, key: Array) -> Array:
        rows, whole = jax.random.normal(key, (count, problem.inputs)), jnp.eye(problem.inputs)
        seen, slope = rows.T @ rows / count, lambda seen: jax.grad(value)(whitened, seen)
        exact, linear = jax.jvp(slope, (whole,), (seen - whole,))
        return count * (slope(seen) - exact - linear)

    keys = jax.random.split(jax.random.key(8), (_POINTS, draws))
    points = jnp.asarray(neighbourhood(problem, _POINTS, 5))
    return np.asarray(jax.jit(jax.vmap(jax.vmap(one, (None, 0))))(points, keys))


def _along(samples: np.ndarray, slopes: np.ndarray, what: str) -> Verdict:
    """Whether the mean of samples is the predicted slope along it, at every point and in the mean over all."""
    shares = np.einsum("pkij,pij->pk", samples, slopes) / np.sum(slopes**2, axis=(1, 2))[:, None]
    errors = shares.std(axis=1, ddof=1) / np.sqrt(shares.shape[1])
    worst = float((np.abs(shares.mean(axis=1) - 1) / errors).max())
    return all_of(
        agrees(Estimate.of(shares.ravel()), 1.0, f"{what}, mean over {len(shares)} points"),
        at_most(worst, 4.5, f"{what}: largest distance from 1 at a point, in standard errors"),
    )


def _slopes(lab: Lab, bias: Callable[[Array], Array]) -> np.ndarray:
    return np.asarray(jax.vmap(jax.grad(bias))(jnp.asarray(neighbourhood(scaling_problem(lab), _POINTS, 5))))


@claim("attention-regression/bias-gradient", f"{GOEL}, Theorems 3, 4 and 5, constants by us", "sharpened", slow=True)
def gradient_bias(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """In the neighbourhood of the minima the expected empirical gradient differs from the population gradient by O(1/n), with the constant grad B_1; that of the regulariser with the sample's covariance with grad R_1.
    The bias along its prediction at 24 points; planted: B_1 and R_1 larger by a quarter."""
    problem, factor = scaling_problem(lab), 1.25 if planted else 1.0
    slopes = _slopes(lab, lambda whitened: factor * whitened_loss_bias(whitened, problem.target))
    yield _along(_gradient_samples(lab), slopes, "n (E grad L_n - grad L) along grad B_1")
    slopes = _slopes(lab, lambda whitened: factor * whitened_balance_bias(whitened, problem.outputs))
    yield _along(_balance_slopes(lab), slopes, "n (E grad R_n - grad R) along grad R_1")


_PAIRS, _BATCHES, _DRAWS, _COUNT = 120, 8, 100, 30
_POWERS = np.arange(1.0, 5.0)
_PARTS = ("h", "h h'", "C")


class Context(eqx.Module):
    """What a context gives: powers of n times the query's own weight and the others, the parts h, h h' and C, and their sums in Poincare's inequality."""

    own: Array
    others: Array
    parts: tuple[Array, Array, Array]
    sums: Array


def softmax_parts(keys: Array, pull: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    """Weights of the keys under logits k'v; their mean h, h h', and their covariance C."""
    weights = jax.nn.softmax(keys @ pull)
    mean = weights @ keys
    gaps = keys - mean[None]
    return weights, (mean, jnp.outer(mean, mean), gaps.T @ (weights[:, None] * gaps))


def _context(root: Array, query: Array, pull: Array, count: int, key: Array) -> Context:
    keys = (jax.random.normal(key, (count, len(query))) @ root).at[0].set(query)
    weights, parts = softmax_parts(keys, pull)
    gaps, covariance, spread = keys[1:] - parts[0][None], root @ root, parts[2]
    along, steep, lengths = gaps @ covariance @ pull, jnp.sum((root @ pull) ** 2), jnp.sum(gaps**2, axis=1)
    mean = jnp.trace(covariance) + 2 * along + steep * lengths  # |(1 + z v') Sigma^(1/2)|^2, z = k - h
    crossed, inner = lengths * along - gaps @ spread @ covariance @ pull, jnp.sum((gaps @ spread) * gaps, axis=1)
    wide = 2 * jnp.trace(covariance) * lengths + 2 * jnp.sum((gaps @ root) ** 2, axis=1) + 4 * crossed
    wide += steep * (lengths**2 - 2 * inner + jnp.sum(spread**2))
    sums = jnp.stack([mean, 4 * jnp.sum(parts[0] ** 2) * mean, wide]) @ weights[1:] ** 2
    powers = (count * weights[:, None]) ** _POWERS[None]
    return Context(powers[0], powers[1:].mean(axis=0), parts, sums)


@partial(jax.jit, static_argnums=3)
def _contexts(root: Array, queries: Array, pulls: Array, count: int, keys: Array) -> tuple[Context, Context]:
    """Means over the draws of a batch, of everything and of its square: pairs x batches."""

    def batch(query: Array, pull: Array, key: Array) -> tuple[Context, Context]:
        found = jax.vmap(lambda one: _context(root, query, pull, count, one))(jax.random.split(key, _DRAWS))
        mean = lambda leaf: leaf.mean(axis=0)
        return jax.tree.map(mean, found), jax.tree.map(lambda leaf: mean(leaf**2), found)

    return jax.lax.map(lambda one: jax.vmap(lambda key: batch(one[0], one[1], key))(one[2]), (queries, pulls, keys))


@recipe
def queries_and_pulls(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Normal queries x, each with V x of a layer of its own in the neighbourhood of Theorem 3."""
    problem = scaling_problem(lab)
    queries = np.random.default_rng(4).standard_normal((_PAIRS, problem.inputs)) @ np.asarray(problem.root)
    layers = [problem.unwhiten(jnp.asarray(one)) for one in neighbourhood(problem, _PAIRS, 3)]
    return queries, np.stack([np.asarray(layer.key_query) @ x for layer, x in zip(layers, queries, strict=True)])


@recipe
def context_moments(lab: Lab, count: int) -> tuple[Context, Context]:
    """Means of contexts of `count` keys and of their squares, given the query: pairs x batches."""
    keys = jax.random.split(jax.random.key(count), (_PAIRS, _BATCHES))
    found = _contexts(scaling_problem(lab).root, *map(jnp.asarray, queries_and_pulls(lab)), count, keys)
    return jax.tree.map(np.asarray, found)


class Law(eqx.Module):
    """What the parts tend to, n times their bias and n times their variance, pair by pair."""

    limits: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    variances: tuple[np.ndarray, ...]


def law(lab: Lab, own_weight: float = 1.0, tilt: float = 1.0) -> Law:
    """To first order in 1/n. With another share of the query's own weight or another power of e^q it is wrong."""
    covariance, (x, pulls) = np.asarray(scaling_problem(lab).covariance), queries_and_pulls(lab)
    outer, mu = lambda a, b: a[:, :, None] * b[:, None, :], pulls @ covariance
    q, square = np.sum(pulls * mu, axis=1), outer(mu, mu)
    own = own_weight * np.exp(np.sum(x * pulls, axis=1) - q / 2)[:, None, None]
    far = np.exp(tilt * q)[:, None, None]
    bias = (own * (x - mu)[:, :, None] - far * mu[:, :, None])[:, :, 0]
    squares = far * (covariance + square) + outer(bias, mu) + outer(mu, bias)
    spreads = own * (outer(x - mu, x - mu) - covariance) - far * (covariance + 2 * square)
    trace, size, stretched = np.trace(covariance), np.sum(mu**2, axis=1), np.sum((mu @ covariance) * mu, axis=1)
    wide = trace**2 + np.sum(covariance**2) + 2 * trace * size + 2 * stretched + size**2
    moved = 2 * ((trace + size) * size + stretched + size**2)
    variances = tuple(far[:, 0, 0] * one for one in (trace + size, moved, wide))
    return Law((mu, square, np.broadcast_to(covariance, square.shape)), (bias, squares, spreads), variances)


def _squared_bias(lab: Lab, count: int, part: int, weight: np.ndarray) -> Estimate:
    """n^2 |E F - F_0|^2, weighted mean over the pairs, from products of different batches, whose noise has mean 0; its error by leaving out each batch."""
    mean, limit = context_moments(lab, count)[0].parts[part], law(lab).limits[part]
    gaps = count * (mean - limit[:, None]).reshape(_PAIRS, _BATCHES, -1)
    products = np.einsum("p,pbk,pck->bc", weight / _PAIRS, gaps, gaps)
    np.fill_diagonal(products, 0.0)
    whole, without = products.sum(), products.sum() - 2 * products.sum(axis=1)
    return Estimate.of(whole / (_BATCHES - 1) - without / (_BATCHES - 2))


def _spread(lab: Lab) -> np.ndarray:
    """q = v' Sigma v of each pair, the variance of its logits."""
    pulls = queries_and_pulls(lab)[1]
    return np.sum((pulls @ np.asarray(scaling_problem(lab).covariance)) * pulls, axis=1)


def _weight_bounds(lab: Lab, count: int, power: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Lemma 9: bounds of n^p E w^p for the query's own weight and the others, pairs x powers; q enters times p^2/2."""
    x, pulls = queries_and_pulls(lab)
    own, room = np.sum(x * pulls, axis=1)[:, None] * _POWERS, _spread(lab)[:, None] * _POWERS**power / 2
    return (
        np.exp((1 - 1 / count) * own + room * (count - 1) / count**2),
        np.exp(-own / count + room * (1 - 1 / count - 1 / count**2)),
    )


def _low(found: np.ndarray) -> np.ndarray:
    """Mean over batches less four standard errors."""
    return found.mean(axis=1) - 4 * found.std(axis=1, ddof=1) / np.sqrt(_BATCHES)


@claim("attention-regression/lemma-8", f"{GOEL}, Lemma 8, formulas by us", "sharpened")
def lemma8(lab: Lab, planted: bool) -> Verdict:
    """A key k moves weights, mean and covariance of a context by w_k times (delta - w_j) v'a, a + z v'a and a z' + z a' + (z z' - C) v'a, with z = k - h.
    Automatic derivatives along random a in 60 contexts; planted: k for k - h in the mean."""
    rng = np.random.default_rng(6)
    keys, pulls, moves = (jnp.asarray(rng.standard_normal(shape)) for shape in ((60, 9, 3), (60, 3), (60, 3)))

    def errors(keys: Array, pull: Array, move: Array) -> Array:
        along = jnp.zeros_like(keys).at[1].set(move)
        (weights, parts), found = jax.jvp(lambda one: softmax_parts(one, pull), (keys,), (along,))
        gap, turn, share = keys[1] - parts[0], pull @ move, weights[1]
        mean = share * (move + (keys[1] if planted else gap) * turn)
        square = jnp.outer(mean, parts[0]) + jnp.outer(parts[0], mean)
        both = jnp.outer(move, gap) + jnp.outer(gap, move) + turn * (jnp.outer(gap, gap) - parts[2])
        wanted = (share * turn * (jnp.eye(len(keys))[1] - weights), (mean, square, share * both))
        gaps = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), found, wanted)
        return jnp.stack(jax.tree.leaves(gaps)).max()

    worst = float(jax.jit(jax.vmap(errors))(keys, pulls, moves).max())
    return at_most(worst, 1e-13, "largest error of a derivative, 60 contexts of 9 keys")


@claim("attention-regression/weight-moments", f"{GOEL}, Lemmas 9 and 10, constants by us", "sharpened", slow=True)
def weight_moments(lab: Lab, planted: bool) -> Verdict:
    """Given the query, n^p E w^p is at most e^(p l) for its own weight and e^(p^2 q/2) for another, up to 1/n in the exponents, p <= 4; variances are at most q/n and 2 q times such bounds.
    Less four standard errors, at 120 queries with layers of their own; planted: p q/2."""
    mean, _ = context_moments(lab, _COUNT)
    bounds, q, checks = _weight_bounds(lab, _COUNT, 1.0 if planted else 2.0), _spread(lab), []
    limits = q / _COUNT * np.sqrt(bounds[0][:, 3] * bounds[1][:, 3]), 2 * q * bounds[1][:, 1]
    cases = zip(("own weight", "other weights"), (mean.own, mean.others), bounds, limits, strict=True)
    for name, found, bound, limit in cases:
        variances = (found[:, :, 1] - found[:, :, 0] ** 2) * _DRAWS / (_DRAWS - 1)
        moment, variance = (
            float((_low(np.asarray(one)) / most).max()) for one, most in ((found, bound), (variances, limit))
        )
        checks += [
            at_most(moment, 1.0, f"largest moment of the {name} over its bound, p <= 4, {_PAIRS} queries"),
            at_most(variance, 1.0, f"largest variance of the {name} over its bound"),
        ]
    return all_of(*checks)


@claim(
    "attention-regression/context-means",
    f"{GOEL}, Lemmas 11-13, 15-18 and 20-22, constants by us",
    "sharpened",
    slow=True,
)
def context_means(lab: Lab, planted: bool) -> Verdict:
    """Given the query, h, h h' and the covariance C of a context are on average Sigma V x, its square and Sigma up to O(1/n), also in mean square over queries and weighted with |x|^2.
    n^2 E |E F - F_0|^2 against its law, from n and 2n, and that of h against the bound of Lemma 11; planted: half as much again of the query's own weight."""
    x = queries_and_pulls(lab)[0]
    right, checks, even = law(lab, own_weight=1.5 if planted else 1.0), [], np.ones(_PAIRS)
    for part, name in enumerate(_PARTS):
        expected = np.sum(right.biases[part].reshape(_PAIRS, -1) ** 2, axis=1)
        for weight, what in ((even, "1"), (np.sum(x**2, axis=1), "|x|^2")):
            found = extrapolated(*(_squared_bias(lab, n, part, weight) for n in (_COUNT, 2 * _COUNT)))
            checks.append(agrees(found, float(np.mean(weight * expected)), f"squared bias of {name}, weight {what}"))
    mu, bounds = right.limits[0], _weight_bounds(lab, _COUNT)
    bound = bounds[0][:, 0] * np.linalg.norm(x - mu, axis=1) + bounds[1][:, 1] * np.linalg.norm(mu, axis=1)
    share = _squared_bias(lab, _COUNT, 0, even).mean / float(np.mean(bound**2))
    return all_of(*checks, at_most(share, 1.0, "squared bias of h over the bound of Lemma 11, mean over queries"))


@claim(
    "attention-regression/context-variances", f"{GOEL}, Lemmas 14, 19 and 23, constants by us", "sharpened", slow=True
)
def context_variances(lab: Lab, planted: bool) -> Verdict:
    """Given the query, h, h h' and C vary by O(1/n), at most by the sums of squared derivatives in Poincare's inequality; n times the variance of h tends to e^q (tr Sigma + |mu|^2).
    Mean over 120 queries against the law, from n and 2n, and against the sums; planted: a law without e^q."""
    right, checks = law(lab, tilt=0.0 if planted else 1.0), []
    for part, name in enumerate(_PARTS):
        expected, found = right.variances[part], []
        for n in (_COUNT, 2 * _COUNT):
            mean, square = context_moments(lab, n)
            first, second = (one.parts[part].reshape(_PAIRS, _BATCHES, -1).mean(axis=1) for one in (mean, square))
            total = _BATCHES * _DRAWS
            found.append(n * np.sum(second - first**2, axis=1) * total / (total - 1))
        share = extrapolated(*(Estimate.of(one / expected.mean() - expected / expected.mean()) for one in found))
        checks.append(agrees(share, 0.0, f"n variance of {name} over its law, less 1"))
        sums = 2 * _COUNT * context_moments(lab, 2 * _COUNT)[0].sums[:, :, part].mean()
        checks.append(
            at_most(float(found[1].mean() / sums), 1.0, f"variance of {name} over the sum of its derivatives")
        )
    return all_of(*checks)
