"""Claims that are exact identities of the attention-regression flow: closed form, conservation, symmetries."""

import jax.numpy as jnp
import numpy as np

from ...lab import Lab, claim
from ...training.recorders import Every
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import (
    BY_US,
    flow_of,
    layer_of,
    plain_slope,
    plane_problem,
    random_point,
    regularised_field,
    small_problem,
    start_near,
    tilted,
)
from .setting.problem import AttentionLayer, AttentionRegression, Unregularised
from .setting.sample import prescribed_spectrum
from .theorems import GOEL
from .training.population import train_population
from .training.riccati import RiccatiFlow, aligned_modes
from .training.rules import FixedStep, PreconditionedDescent


@claim("attention-regression/riccati", BY_US, "ours")
def closed_form(lab: Lab, planted: bool) -> Verdict:
    """The two-sided regularised flow has a closed form from any start.
    W W' and log excess against an integrator of order 8, for m > d and m = d; planted: at a time 1 % later."""
    checks = []
    for outputs in (3, 5):
        problem = prescribed_spectrum(outputs, (0.05, 0.03, 0.01), 5.0, 11)
        start, time = random_point(problem, 7), 60.0
        whitened, flow = flow_of(regularised_field(problem), start, time), RiccatiFlow(problem, start)
        late = time * (1.01 if planted else 1.0)
        product = whitened @ whitened.T
        error = float(np.abs(flow.product(late) - product).max() / np.abs(product).max())
        excess = float(np.log(problem.whitened_excess(jnp.asarray(whitened))))
        checks.append(at_most(error, 1e-11, f"relative error of W W' at t = 60, m = {outputs}"))
        checks.append(at_most(abs(float(flow.log_excess(late)[0]) - excess), 1e-9, "error of log excess"))
    return all_of(*checks)


@claim("attention-regression/imbalance", BY_US, "ours")
def imbalance(lab: Lab, planted: bool) -> Verdict:
    """The imbalance obeys D(t) = Phi D(0) Phi' whatever the data error, so its inertia is preserved.
    D(t) = Phi D(0) Phi' with Phi' = -W'W Phi: solved together with the flow; planted: half the speed."""
    problem = small_problem(lab)
    start, field = random_point(problem, 7), regularised_field(problem)
    rows, m = start.shape[0], problem.outputs

    def both(stack: np.ndarray) -> np.ndarray:
        whitened, turn = stack[:rows], stack[rows:]
        speed = 0.5 if planted else 1.0
        return np.concatenate([field(whitened), -speed * whitened.T @ whitened @ turn])

    end = flow_of(both, np.concatenate([start, np.eye(3)]), 20.0)
    gap = lambda w: w[:m].T @ w[:m] - w[m:].T @ w[m:]
    carried = end[rows:] @ gap(start) @ end[rows:].T
    error = float(np.abs(gap(end[:rows]) - carried).max() / np.abs(gap(start)).max())
    signs = [np.sign(np.linalg.eigvalsh(gap(w))).tolist() for w in (start, end[:rows])]
    same = 0.0 if signs[0] == signs[1] else 1.0
    return all_of(
        at_most(error, 1e-12, "relative error of D = Phi D(0) Phi'"), at_most(same, 0.0, "change of inertia of D")
    )


def _conserved(problem: AttentionRegression, name: str, whitened: np.ndarray) -> np.ndarray:
    """U'U - V Sigma V' (euclidean: U'U - V V') in the eigenbasis of the covariance."""
    layer = layer_of(problem, whitened)
    value, key = np.asarray(layer.value), np.asarray(layer.key_query)
    covariance = np.asarray(problem.covariance)
    axes = np.linalg.eigh(covariance)[1]
    other = key @ key.T if name == "euclidean" else key @ covariance @ key.T
    return axes.T @ (value.T @ value - other) @ axes


@claim("attention-regression/conservation", BY_US, "ours")
def conservation(lab: Lab, planted: bool) -> Verdict:
    """Without the regulariser U'U - V Sigma V' is conserved: all of it (two_sided), its diagonal in the eigenbasis of Sigma (left), and of U'U - VV' (euclidean).
    Without the regulariser: all entries for `two_sided`, the diagonal in the eigenbasis of Sigma otherwise; planted: all entries for `left`."""
    problem, checks = small_problem(lab), []
    start = random_point(problem, 7)
    covariance, slope, m = np.asarray(problem.covariance), plain_slope(problem, balanced=False), problem.outputs
    extended = np.eye(m + problem.inputs)
    extended[m:, m:] = covariance
    directions = {
        "two_sided": lambda w: -slope(w),
        "left": lambda w: -slope(w) @ covariance,
        "euclidean": lambda w: -extended @ slope(w) @ covariance,
    }
    for name, field in directions.items():
        drift = _conserved(problem, name, flow_of(field, start, 10.0)) - _conserved(problem, name, start)
        whole = name == "two_sided" or (planted and name == "left")
        moved = float(np.abs(drift if whole else np.diag(drift)).max())
        checks.append(at_most(moved, 1e-11, f"drift of the conserved quantities of {name} at t = 10"))
    return all_of(*checks)


@claim("attention-regression/step-drift", BY_US, "ours")
def step_drift(lab: Lab, planted: bool) -> Verdict:
    """Finite steps break the conservation in proportion to the step.
    Descent with steps eta to a fixed time changes them in proportion to eta; planted: to its square."""
    problem = small_problem(lab)
    start = layer_of(problem, random_point(problem, 7))
    first = _conserved(problem, "two_sided", np.asarray(problem.whiten(start)))
    drifts = []
    for step in (0.02, 0.01):
        rule = PreconditionedDescent("two_sided", FixedStep(step), Unregularised())
        run = train_population(problem, rule, start, steps=round(20 / step))
        drifts.append(float(np.abs(_conserved(problem, "two_sided", run.whitened[-1]) - first).max()))
    return close(drifts[0] / drifts[1], 4.0 if planted else 2.0, 3e-2, "drift at step 0.02 over that at 0.01")


@claim("attention-regression/modes", BY_US, "ours")
def modes(lab: Lab, planted: bool) -> Verdict:
    """Aligned starts stay aligned and every mode has a scalar closed form.
    Aligned modes against the integrator and the matrix closed form; planted: u and v of different sign conventions."""
    problem = small_problem(lab)
    u, v, sizes = np.array([0.1, 0.2, 0.3]), np.array([0.15, 0.1, 0.2]), np.asarray(problem.sizes)
    start = np.concatenate([np.asarray(problem.left) * u, np.asarray(problem.right) * v])
    end = flow_of(regularised_field(problem), start, 40.0)
    found = aligned_modes(sizes, u, v[::-1] if planted else v, 40.0)
    expected = np.concatenate([np.asarray(problem.left) * found.u, np.asarray(problem.right) * found.v])
    total = float(np.log(np.sum(np.exp(2 * found.log_residual))))
    return all_of(
        at_most(float(np.abs(end - expected).max()), 1e-12, "largest error of an entry of W at t = 40"),
        at_most(abs(float(RiccatiFlow(problem, start).log_excess(40.0)[0]) - total), 1e-10, "error of log excess"),
    )


@claim("attention-regression/gauge", f"{GOEL}, Theorem 1.2", "proved")
def gauge(lab: Lab, planted: bool) -> Verdict:
    """The loss is invariant under GL(d), the regularised loss under an orthogonal group.
    The loss under all of GL(d), the regularised loss under the orthogonal group; planted: the regularised loss under GL(d)."""
    problem, rng = small_problem(lab), np.random.default_rng(3)
    covariance, root, back = (np.asarray(part) for part in (problem.covariance, problem.root, problem.inverse_root))
    layer = layer_of(problem, random_point(problem, 7))

    def change(matrix: np.ndarray) -> AttentionLayer:
        moved = np.linalg.solve(covariance, np.linalg.solve(matrix, covariance @ np.asarray(layer.key_query)))
        return AttentionLayer(np.asarray(layer.value) @ matrix, moved)

    general = np.eye(3) + 0.3 * rng.standard_normal((3, 3))
    turn = root @ np.linalg.qr(rng.standard_normal((3, 3)))[0] @ back
    total = lambda one: float(problem.excess(one) + problem.regulariser(one))
    moved = total(change(general if planted else turn))
    return all_of(
        close(float(problem.excess(change(general))), float(problem.excess(layer)), 1e-12, "excess under GL(d)"),
        close(moved, total(layer), 1e-12, "regularised loss under the gauge group"),
    )


def _affine_gap(lab: Lab, name: str) -> float:
    """Largest relative difference of the excess over 30 steps between a problem and its image under x -> T x."""
    problem, rng = small_problem(lab), np.random.default_rng(4)
    turn = rng.standard_normal((3, 3))
    inverse = np.linalg.inv(turn)
    layer = layer_of(problem, start_near(problem, 0.2, 1))
    moved = AttentionRegression(turn @ np.asarray(problem.covariance) @ turn.T, np.asarray(problem.planted) @ inverse)
    there = AttentionLayer(np.asarray(layer.value) @ inverse, inverse.T @ np.asarray(layer.key_query) @ inverse)
    rule = PreconditionedDescent(name, FixedStep(0.5))
    pairs = ((problem, layer), (moved, there))
    runs = [train_population(one, rule, start, steps=30, recorder=Every(1)) for one, start in pairs]
    return float(np.abs(runs[1].excess / runs[0].excess - 1).max())


@claim("attention-regression/affine", BY_US, "ours")
def affine(lab: Lab, planted: bool) -> Verdict:
    """Two-sided training does not depend on the coordinates of the covariates; one-sided training, which the paper describes, does.
    The twin is one-sided."""
    gap = _affine_gap(lab, "left" if planted else "two_sided")
    return at_most(gap, 1e-10, "largest relative change of the excess, 30 steps")


@claim("attention-regression/tilt", f"{GOEL}, proof of Theorem 1.1", "proved")
def tilt(lab: Lab, planted: bool) -> Verdict:
    """Under the weights of a query x the covariates are N(Sigma V x, Sigma).
    Mean Sigma V x and covariance Sigma under the weights of a query, by quadrature; planted: covariance Sigma + Sigma V Sigma."""
    problem, layer = plane_problem(lab)
    covariance, key = np.asarray(problem.covariance), np.asarray(layer.key_query)
    errors = []
    for query in np.array([[0.5, -1.0], [1.5, 0.3], [-0.7, -0.9]]):
        mean, spread = tilted(lab, problem, layer, query)
        expected = covariance + (covariance @ key @ covariance if planted else 0.0)
        errors.append(max(np.abs(mean - covariance @ key @ query).max(), np.abs(spread - expected).max()))
    return at_most(float(max(errors)), 1e-14, "largest error of mean and covariance at 3 queries, 60^2 nodes")


@claim("attention-regression/riccati-far", BY_US, "ours")
def far_times(lab: Lab, planted: bool) -> Verdict:
    """The closed form gives log excess at any time.
    log excess where the excess has 300 000 zeros: increments are those of the tail; planted: twice as fast."""
    problem = small_problem(lab)
    flow = RiccatiFlow(problem, random_point(problem, 7))
    values = flow.log_excess(np.array([1e6, 2e6, 1e7]))
    slope = -(values[2] - values[1]) / 8e6
    return all_of(
        at_most(float(values[0]), -1e4, "log excess at t = 1e6"),
        close(float(slope), flow.exponent * (2 if planted else 1), 1e-9, "decay per time between 2e6 and 1e7"),
        at_least(float(values[2]), -1e7, "log excess at t = 1e7"),
    )
