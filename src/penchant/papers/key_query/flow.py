"""Every statement of the key-query paper as a check with a refutation twin.

Training K and Q in steps: gradient descent keeps the nuclear norm, steps of equal size in every entry have a norm of their own.
"""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from ...lab import Lab, claim, conjectured, derived, recipe
from ...norms import Norm, SignProduct
from ...optimisers.base import Adam, Descent, gradient_descent, normalised_descent, sign_descent
from ...problem import read_once
from ...references.base import Solution
from ...references.bracket import adjoint, margins
from ...references.euclidean_margin import max_margin
from ...references.linear_programs import sign_product_margin
from ...references.norm_margin import nuclear_margin
from ...settings.base import Setting
from ...settings.factored import DiagonalTokens, Hadamard, Pair, PlusMinus
from ...settings.generators import Aligned, aligned_tokens, equal_score_tokens
from ...settings.losses import Exponential
from ...settings.parametrisations import Direct
from ...theory.judge import excess
from ...training.events import MarginAbove
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import ROUNDING, Verdict, at_least, at_most, close
from . import evidence
from . import hypotheses as assumptions
from .evidence import excess_at, flow_to, keys_and_queries, nuclear
from .theorems import SHEEN


@claim("key-query/assumption-3", f"{SHEEN}, Assumption 3", "ours", slow=True)
def assumption3(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """With score gap 6 the loss at W = 0 is below every one-sample failure.
    The loss at W = 0 with score gap 6; with gap 1 the assumption fails."""
    for n in (3, 4):
        data = equal_score_tokens(n, 4, 5, 0, gap=1.0 if planted else 6.0)
        setting = Setting(data, Direct(), Exponential())
        found = assumptions.initial_loss(setting, data, setting.start())
        yield at_least(found.slack, 0.0, f"slack of '{found.name}'")
        formula = (1 + (n - 1) * np.exp(-6.0)) / (n * np.exp(-6.0 / 4))  # bound over loss, both in closed form
        allowed = np.log(formula - n * np.exp(-6.0) / (n * np.exp(-1.5))) - np.log1p(-np.exp(-6.0 + 1.5))
        yield close(found.slack, float(allowed), 1e-9, f"slack at W = 0, n = {n}")


def _drawn_pairs(swollen: float = 1.0) -> Iterator[tuple[tuple[Setting, Pair], tuple[Setting, Pair]]]:
    """Twenty drawn points (a, b) of drawn data, and (w+, w-) with the same weight and `swollen` times the same sums of squares, which is (4)."""
    for seed in range(20):
        rng, data = np.random.default_rng(seed), DiagonalTokens(equal_score_tokens(4, 4, 12, seed))
        (a, b), signs = rng.standard_normal((2, 12)), rng.choice([-1.0, 1.0], (2, 12))
        half = (a**2 + b**2) / 2 * swollen
        points = (Hadamard(), Pair(a, b)), (PlusMinus(), Pair(*(signs * np.sqrt([half + a * b, half - a * b]))))
        one, other = ((Setting(data, kind, Exponential()), pair) for kind, pair in points)
        yield one, other


def _speed(setting: Setting, point: Pair, quantity: Callable[[Pair], jax.Array]) -> np.ndarray:
    """Of a quantity along the flow, in units of the loss."""
    return -np.asarray(jax.jvp(quantity, (point,), (read_once(setting, point).slope,))[1])


def _shared(setting: Setting, point: Pair) -> np.ndarray:
    """The speeds of the weight and of the sums of squares of both factors."""
    squares = lambda pair: pair.first**2 + pair.second**2
    both = lambda pair: jnp.stack([setting.parametrisation.weight(pair, setting.data), squares(pair)])
    return _speed(setting, point, both)


@claim("key-query/lemma-4.1", f"{SHEEN}, Lemma 4.1", "proved")
def lemma41(lab: Lab, planted: bool) -> Verdict:
    """The flow of diagonal K and Q equals that of (w+^2 - w-^2)/2 from any start (4).
    Where (4) holds both flows move the weight and the sums of squares alike, at 20 drawn points of drawn data: so it goes on holding. Planted: sums of squares one
    per cent apart."""
    pairs = [(_shared(*one), _shared(*other)) for one, other in _drawn_pairs(1.01 if planted else 1.0)]
    errors = [float(np.abs(other - one).max() / np.abs(one).max()) for one, other in pairs]
    return at_most(max(errors), ROUNDING, "largest difference of velocities over the largest", f"{len(errors)} draws")


@claim("key-query/lemma-a.1", f"{SHEEN}, Lemma A.1", "proved", slow=True)
def lemma_a1(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The diagonal weight is w_0^2 sinh of the gathered multipliers.
    w = w_0^2 sinh(2 B' phi) with phi the gathered multipliers."""
    run, factor = evidence.precise_diagonal_run(lab), 1.0 if planted else 2.0
    features, errors = np.asarray(run.setting.data.features()), []
    for k in (1, 3, -1):
        miss = np.abs(run.weight(k) - np.sinh(factor * run.dual[k] @ features)).max()
        errors.append(float(miss / np.abs(run.weight(k)).max()))
    # At margin 1e6 the rounding of the margins, 1e-10, is what remains.
    what = "largest error of w_0^2 sinh(2 B'phi), relative to the largest weight"
    yield from _ladder(errors, (1e-12, 1e-12, 2e-10), what)


def _ladder(errors: list[float], bounds: tuple[float, ...], what: str) -> Iterator[Verdict]:
    """Errors at margins 1e2, 1e4 and 1e6 against their bounds; the last decides first."""
    rows = list(zip(errors, bounds, ("1e2", "1e4", "1e6"), strict=True))
    return (at_most(error, bound, f"{what} at margin {margin}") for error, bound, margin in reversed(rows))


@claim("key-query/conserved-diagonal", f"{SHEEN}, proof of Lemma 4.1", "proved", slow=True)
def conserved_diagonal(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """a^2 - b^2 and w+ w- are conserved.
    Their velocity is 0 at 20 drawn points of drawn data, and along a flow to margin 1e6 a^2 - b^2 stays what it was. Planted: of a first factor with a millionth of the second."""
    other, speeds = 1e-6 * planted, []
    for setting, point in (one for pair in _drawn_pairs() for one in pair):
        kept = lambda pair, kind=setting.parametrisation: kind.conserved(
            Pair(pair.first + other * pair.second, pair.second)
        )
        speeds.append(float(np.abs(_speed(setting, point, kept)).max() / np.abs(_shared(setting, point)).max()))
    yield at_most(max(speeds), ROUNDING, "largest velocity over that of the weight or the sums of squares")
    if not planted:
        run = evidence.precise_diagonal_run(lab)
        first, last = (np.asarray(run.setting.parametrisation.conserved(run.at(k))) for k in (0, -1))
        drift = float(np.abs(last - first).max() / run.norm[-1] ** 2)
        yield at_most(drift, 1e-14, "drift of a^2 - b^2 over the square of the norm")


def _value(run: Trajectory, weight: np.ndarray, reference: Solution, rival: np.ndarray) -> Verdict:
    found, far = (excess(run.setting.data, one, reference) for one in (weight, rival))
    return at_most(found, far / 10, f"{reference.norm} norm at margin 1 over its minimum - 1", f"rival at {far:.3g}")


@claim("key-query/lemma-5.1", f"{SHEEN}, Lemma 5.1", "proved", slow=True)
def lemma51(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The flow preserves alignment.
    On twenty draws to margin 1e3, and on one to margin 1e6. Planted: starts moved off it by 1e-6."""
    shift, far = (1e-6, ()) if planted else (0.0, (evidence.aligned_run(lab),))
    pairs = [*evidence.aligned_draws(lab, shift), *far]
    if not planted:
        start = max(aligned.residual(run.at(0)) for run, aligned in pairs)
        yield at_most(start, 1e-12, "largest alignment residual of a start")
    largest = np.array([max(aligned.residual(run.at(k)) for k in range(len(run))) for run, aligned in pairs])
    above = f"{int((largest > 1e-11).sum())} of {len(pairs)} above"
    yield at_most(float(largest.max()), 1e-11, "largest alignment residual along a flow", above)


@claim("key-query/theorem-5.1", f"{SHEEN}, Theorem 5.1", "proved", slow=True)
def theorem51(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """On aligned data W / margin tends to the closed form.
    W / margin tends to sum_i u_i u_i' / b_i like 1 / margin: at margin 1e6, and from margin 1e2 to 1e3 on twenty draws inside Assumption 3. Planted: the b_i without their factor 1 - c_i."""
    run, aligned = evidence.aligned_run(lab)
    yield at_most(_miss(run, aligned, -1, planted), 2e-7, "|W/margin - W*| / |W*| at margin 1e6")
    falls = np.array([_miss(*pair, -1, planted) / _miss(*pair, -2, planted) for pair in evidence.aligned_draws(lab)])
    text = f"largest ratio of |W/margin - W*| at margin 1e3 to that at 1e2, {len(falls)} draws"
    yield at_most(float(falls.max()), 0.15, text, f"{int((falls > 0.15).sum())} above")


def _miss(run: Trajectory, aligned: Aligned, record: int, planted: bool) -> float:
    """|W/margin - W*| / |W*| at a record."""
    if planted:
        best = jnp.take_along_axis(aligned.data.tokens, aligned.data.optimal[:, None, None], axis=1)[:, 0]
        lengths = jnp.linalg.norm(best, axis=1) * jnp.linalg.norm(aligned.data.queries, axis=1)
        aligned = Aligned(aligned.data, aligned.key_basis, aligned.query_basis, np.asarray(lengths))
    target = aligned.solution()
    return float(np.linalg.norm(run.weight(record) / run.smallest_margin()[record] - target) / np.linalg.norm(target))


@derived("key-query/aligned-closed-form")
def aligned_closed_form(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """On aligned data the nuclear and the Frobenius solution coincide.
    On aligned data one matrix solves the nuclear and the Frobenius program. Planted: on generic data."""
    aligned = aligned_tokens()
    data = equal_score_tokens(3, 4, 5, 1) if planted else aligned.data
    nuclear, frobenius = nuclear_margin(data), max_margin(data)
    far = excess(data, frobenius.weight, nuclear)
    yield at_most(far, 1e-6 if planted else 1e-9, "nuclear excess of the Frobenius solution")
    yield close(nuclear.value, float((1 / aligned.strengths).sum()), 1e-9, "sum of 1/b_i")
    root = float(np.sqrt((1 / aligned.strengths**2).sum()))
    yield close(frobenius.value, root, 1e-12, "root of the sum of 1/b_i^2")


@claim("key-query/contrast", f"{SHEEN}, section 4.2", "proved", slow=True)
def contrast(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Training (K, Q) minimises the nuclear norm, training W the Frobenius norm.
    On the same data the flow on (K, Q) goes to the nuclear and the flow on W to the Frobenius solution. Planted: swapped."""
    for seed in (0, 1):
        (run, nuclear), (direct, frobenius) = evidence.matrix_run(lab, seed), evidence.direct_run(lab, seed)
        product_weight, direct_weight = (direct.weight(), run.weight()) if planted else (run.weight(), direct.weight())
        yield _value(run, product_weight, nuclear, frobenius.weight)
        margin = np.asarray(margins(run.setting.data, direct_weight)).min()
        above = float(np.linalg.norm(direct_weight) / margin / frobenius.value - 1)
        yield at_most(above, 1e-6, "Frobenius norm at margin 1 over its minimum - 1")


SEEDS = range(4)
_SIZE = 0.002  # of steps of equal size in every entry
SHORT = 0.9  # the b2 of an Adam whose memory of ten steps is short against the fall of the loss


@recipe
def signs(lab: Lab, seed: int) -> Solution:
    """The reference in the norm of sign products, of the data of `matrix_run`."""
    return sign_product_margin(equal_score_tokens(3, 4, 5, seed))


@recipe
def stepped(lab: Lab, kind: str, seed: int, width: int = 5) -> Trajectory:
    """K and Q trained in steps on the data and from the start of `matrix_run`; `kind` is one of `RULES`."""
    (optimiser, steps), (setting, start) = RULES[kind], keys_and_queries(seed, width=width)
    return train(setting, optimiser, start, steps=steps)


RULES: dict[str, tuple[Adam | Descent, int]] = {
    "gradient descent": (gradient_descent(1.0), 20_000),
    "normalised descent": (normalised_descent(0.02), 20_000),
    "sign descent": (sign_descent(_SIZE), 40_000),  # both end before, where the slope of an entry underflows
    f"Adam, b2 = {SHORT}": (Adam(_SIZE, 0.0, 0.0, SHORT), 40_000),
    "Adam, b2 = 0.99": (Adam(_SIZE, 0.0, 0.0, 0.99), 40_000),
    "Adam, b2 = 0.999": (Adam(_SIZE, 0.0, 0.9, 0.999), 40_000),
}


def factor_excess(run: Trajectory, reference: Solution) -> float:
    """width max|K| max|Q| / margin over the least norm of sign products, minus 1; no W = K Q' has a larger norm than that."""
    params, margin = run.at(), float(run.smallest_margin()[-1])
    size = float(np.abs(np.asarray(params.key)).max() * np.abs(np.asarray(params.query)).max())
    return np.shape(params.key)[1] * size / margin / reference.value - 1


def best_bound(run: Trajectory, norm: Norm) -> float:
    """The largest lower bound on a norm that the multipliers of any record prove, gathered or of the moment."""
    points = np.maximum([*run.dual[1:], *run.weights], 0.0)
    return max(float(point.sum()) / norm.dual(np.asarray(adjoint(run.setting.data, point))) for point in points)


@conjectured("key-query/descent", slow=True)
def descent_follows_flow(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Gradient descent on (K, Q) has the nuclear excess of the flow at equal margin.
    At margin 6 gradient descent stands where the flow does. Planted: where the flow is at margin 12."""
    for seed in (1, 3):
        (setting, start), reference = keys_and_queries(seed), nuclear(lab, seed)
        run = train(setting, gradient_descent(0.05), start, until=MarginAbove(6.0), steps=100_000)
        flow = excess_at(flow_to(setting, start, 12.0, (6.0,)), reference, 2 if planted else 1)
        what = f"nuclear excess of descent and of flow at margin 6, data {seed}"
        yield close(excess_at(run, reference), flow, 2e-2, what)


def _in_signs(lab: Lab, kind: str, planted: bool) -> Iterator[Verdict]:
    for seed in SEEDS:
        run, reference = stepped(lab, kind, seed), signs(lab, seed)
        first, start = (np.append(run.at(record).key, run.at(record).query) for record in (1, 0))
        error = float(np.abs(np.abs(first - start) / _SIZE - 1).max())
        yield at_most(error, 1e-9, f"{kind}: error of the length of the first step, data {seed}")
        far = excess_at(run, nuclear(lab, seed))
        yield at_most(far if planted else factor_excess(run, reference), 0.1, f"{kind}: excess, data {seed}")
        if not planted:
            yield at_least(far, 0.15, f"{kind}: nuclear excess, data {seed}")
            bound = best_bound(run, SignProduct()) / reference.value
            yield at_most(bound, 1 + 1e-9, "largest lower bound over the optimum")


@conjectured("key-query/sign-descent", slow=True)
def sign_norm(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Sign descent on (K, Q) minimises the norm of sign products, not the nuclear norm.
    Sign descent bounds the entries of K and Q as tightly as possible. Planted: it minimises the nuclear norm."""
    return _in_signs(lab, "sign descent", planted)


@conjectured("key-query/adam", slow=True)
def adam_norm(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Adam with a short memory on (K, Q) minimises the norm of sign products.
    So does Adam with a short memory. Planted: with b2 = 0.99."""
    if planted:
        long = factor_excess(stepped(lab, "Adam, b2 = 0.99", 0), signs(lab, 0))
        yield at_most(long, 0.1, "Adam, b2 = 0.99: excess, data 0")
    else:
        yield from _in_signs(lab, f"Adam, b2 = {SHORT}", planted)
