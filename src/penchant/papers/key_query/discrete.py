"""Training K and Q in steps: gradient descent keeps the nuclear norm, steps of equal size in every entry have a norm of their own."""

from collections.abc import Iterator

import numpy as np

from ...lab import Lab, conjectured, recipe
from ...norms import Norm, SignProduct
from ...optimisers.base import Adam, Descent, gradient_descent, normalised_descent, sign_descent
from ...references.base import Solution
from ...references.bracket import adjoint
from ...references.polyhedral_margin import sign_product_margin
from ...settings.generators import equal_score_tokens
from ...training.events import MarginAbove
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_least, at_most, close
from .evidence import excess_at, flow_to, keys_and_queries, nuclear

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
