"""Training K and Q in steps: gradient descent keeps the nuclear norm, steps of equal size in every entry have a norm of their own."""

from typing import Any

import numpy as np

from ...lab import Lab, conjectured, recipe
from ...norms import Linf, Norm, SignProduct
from ...optimisers.base import Adam, gradient_descent, normalised_descent, sign_descent
from ...references.base import Solution
from ...references.bracket import adjoint
from ...references.polyhedral_margin import polyhedral_margin, sign_product_margin
from ...settings.base import Setting
from ...settings.diagonal import DiagonalTokens
from ...settings.factored import Hadamard
from ...settings.generators import equal_score_tokens
from ...settings.losses import Exponential
from ...theory.verdicts import excess
from ...training.events import MarginAbove
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import flow_to, keys_and_queries, nuclear, one_sided

SEEDS = range(4)
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


RULES: dict[str, tuple[Any, int]] = {
    "gradient descent": (gradient_descent(1.0), 20_000),
    "normalised descent": (normalised_descent(0.02), 20_000),
    "sign descent": (sign_descent(0.002), 40_000),  # both end before, where the slope of an entry underflows
    f"Adam, b2 = {SHORT}": (Adam(0.002, 0.0, 0.0, SHORT), 40_000),
    "Adam, b2 = 0.99": (Adam(0.002, 0.0, 0.0, 0.99), 40_000),
    "Adam, b2 = 0.999": (Adam(0.002, 0.0, 0.9, 0.999), 40_000),
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
def descent_follows_flow(lab: Lab, planted: bool) -> Verdict:
    """Gradient descent on (K, Q) has the nuclear excess of the flow at equal margin.
    At margin 6 gradient descent stands where the flow does. Planted: where the flow is at margin 12."""
    checks = []
    for seed in (1, 3):
        (setting, start), reference = keys_and_queries(seed), nuclear(lab, seed)
        run = train(setting, gradient_descent(0.05), start, until=MarginAbove(6.0), steps=100_000)
        flow = flow_to(setting, start, 12.0, (6.0,))
        found = [excess(setting.data, one.weight(k), reference) for one, k in ((run, -1), (flow, 2 if planted else 1))]
        checks.append(
            close(found[0], found[1], 2e-2, f"nuclear excess of descent and of flow at margin 6, data {seed}")
        )
    return all_of(*checks)


@conjectured("key-query/normalised-descent", slow=True)
def normalised_nuclear(lab: Lab, planted: bool) -> Verdict:
    """Normalised descent on (K, Q) minimises the nuclear norm.
    Normalised descent reaches the nuclear minimum. Planted: the norm of sign products."""
    checks = []
    for seed in SEEDS:
        run, reference = stepped(lab, "normalised descent", seed), (signs if planted else nuclear)(lab, seed)
        measured = excess(run.setting.data, run.weight(), reference)
        checks.append(at_most(measured, 1e-2, f"{reference.norm} excess, data {seed}"))
    return all_of(*checks)


def _in_signs(lab: Lab, kind: str, planted: bool) -> Verdict:
    checks = []
    for seed in SEEDS:
        run, reference = stepped(lab, kind, seed), signs(lab, seed)
        far = excess(run.setting.data, run.weight(), nuclear(lab, seed))
        checks.append(at_most(far if planted else factor_excess(run, reference), 0.1, f"{kind}: excess, data {seed}"))
        if not planted:
            checks.append(at_least(far, 0.15, f"{kind}: nuclear excess, data {seed}"))
            checks.append(
                at_most(
                    best_bound(run, SignProduct()) / reference.value, 1 + 1e-9, "largest lower bound over the optimum"
                )
            )
    return all_of(*checks)


@conjectured("key-query/sign-descent", slow=True)
def sign_norm(lab: Lab, planted: bool) -> Verdict:
    """Sign descent on (K, Q) minimises the norm of sign products, not the nuclear norm.
    Sign descent bounds the entries of K and Q as tightly as possible. Planted: it minimises the nuclear norm."""
    return _in_signs(lab, "sign descent", planted)


@conjectured("key-query/adam", slow=True)
def adam_norm(lab: Lab, planted: bool) -> Verdict:
    """Adam with a short memory on (K, Q) minimises the norm of sign products.
    So does Adam with a short memory. Planted: with b2 = 0.99."""
    if not planted:
        return _in_signs(lab, f"Adam, b2 = {SHORT}", False)
    return at_most(
        factor_excess(stepped(lab, "Adam, b2 = 0.99", 0), signs(lab, 0)), 0.1, "Adam, b2 = 0.99: excess, data 0"
    )


@conjectured("key-query/sign-descent-diagonal", slow=True)
def sign_diagonal(lab: Lab, planted: bool) -> Verdict:
    """Sign descent on diagonal K and Q minimises the linf norm.
    Sign descent on diagonal K and Q minimises the linf norm. Planted: from the same start, normalised descent does."""
    checks = []
    for seed in (5, 6, 7):
        data = DiagonalTokens(equal_score_tokens(4, 4, 12, seed))
        setting, reference = Setting(data, Hadamard(), Exponential()), polyhedral_margin(data, Linf())
        start = one_sided(data, 0.1)
        optimiser, steps = RULES["normalised descent" if planted else "sign descent"]
        run = train(setting, optimiser, start, steps=steps)
        checks.append(at_most(excess(data, run.weight(), reference), 1e-2, f"linf excess, data {seed}"))
    return all_of(*checks)
