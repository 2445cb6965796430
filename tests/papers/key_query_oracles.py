"""The key-query flows by other means: plain numpy right-hand sides, SciPy's LSODA, quadrature. Nothing here calls the flow."""

import numpy as np
from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq
from scipy.special import logsumexp


def normalised_weights(margins, gap, best):
    """-d log(L - L*)/dm for the mean exponential loss with equal non-optimal scores; margins (n, L-1), scores best - gap."""
    log_odds = logsumexp(-margins, axis=1)
    log_share = -margins - np.logaddexp(0, log_odds)[:, None]
    log_deficit = np.log(gap) + log_odds - np.logaddexp(0, log_odds)
    deficit = np.exp(log_deficit)
    small = deficit < 1e-5
    safe = np.where(small, 1.0, deficit)
    log_expm1 = np.where(small, log_deficit + deficit / 2, safe + np.log(-np.expm1(-safe)))
    log_excess = logsumexp(-best + log_expm1)
    return (gap - deficit)[:, None] * np.exp((-best + deficit - log_excess)[:, None] + log_share)


def _levels(smallest, levels):
    """Events of `solve_ivp` at the given smallest margins; the last one ends the run."""

    def event(level):
        found = lambda _, state: smallest(state) / level - 1
        found.terminal = level == levels[-1]
        return found

    return [event(level) for level in levels]


def diagonal_flow(features, shape, gap, best, scale, levels):
    """(weight, accumulated, instantaneous multipliers) where the diagonal flow from equation (5) passes each margin.

    The state is the accumulated multipliers: w = scale^2 sinh(B phi), d phi = 2 weights, in the clock (L - L*) dt.
    """
    weight = lambda phi: scale**2 * np.sinh(phi @ features)
    weights = lambda phi: normalised_weights((features @ weight(phi)).reshape(shape), gap, best).ravel()
    found = solve_ivp(
        lambda _, phi: 2 * weights(phi),
        (0, 200),
        np.zeros(len(features)),
        method="LSODA",
        rtol=1e-9,
        atol=1e-10,
        events=_levels(lambda phi: (features @ weight(phi)).min(), levels),
    )
    states = [state[0] for state in found.y_events]
    return [(weight(phi), phi, weights(phi)) for phi in states]


def matrix_flow(differences, queries, gap, best, key, query, levels):
    """(W, accumulated multipliers) where the flow on (K, Q) passes each margin."""
    (n, others, _), split = differences.shape, key.size

    def parts(state):
        return state[:split].reshape(key.shape), state[split : 2 * split].reshape(query.shape), state[2 * split :]

    def margins(k, q):
        return np.einsum("ntd,nd->nt", differences, queries @ (k @ q.T).T)

    def field(_, state):
        k, q, _ = parts(state)
        weights = normalised_weights(margins(k, q), gap, best)
        pull = np.einsum("ntd,nt,ne->de", differences, weights, queries)
        return np.concatenate([(pull @ q).ravel(), (pull.T @ k).ravel(), 2 * weights.ravel()])

    start = np.concatenate([key.ravel(), query.ravel(), np.zeros(n * others)])
    events = _levels(lambda state: margins(*parts(state)[:2]).min(), levels)
    found = solve_ivp(field, (0, 200), start, method="LSODA", rtol=1e-8, atol=1e-9, events=events)
    states = [parts(state[0]) for state in found.y_events]
    return [(k @ q.T, phi) for k, q, phi in states]


def aligned_margins(strengths, scales, gaps, best, others, least):
    """Margins of the decoupled samples of aligned data when the smallest is `least`: each reaches its own at the same time.

    t(u) is the integral of n e^(best - gap q) / (2 b gap q (1 - q)), m = b scale^2 sinh u, q = others e^-m / (1 + others e^-m).
    """

    def log_time(margin, b, scale, gap, top):
        end = np.arcsinh(margin / (b * scale**2))
        width = 1 / (b * scale**2 * np.cosh(end))
        m = lambda v: b * scale**2 * np.sinh(end - v * width)

        def log_integrand(v):
            odds = np.log(others) - m(v)
            return top - gap * np.exp(odds - np.logaddexp(0, odds)) - odds + 2 * np.logaddexp(0, odds)

        ref = log_integrand(0.0)
        total = quad(lambda v: np.exp(log_integrand(v) - ref), 0, 60, epsabs=0, epsrel=1e-11, limit=200)[0]
        return ref + np.log(total * width / (2 * b * gap))

    rows = list(zip(strengths, scales, gaps, best, strict=True))
    # The sample that is last at a given time has the smallest margin: the one that needs the longest time to reach `least`.
    clock = max(log_time(least, *row) for row in rows)
    return np.array(
        [brentq(lambda m, row=row: log_time(m, *row) - clock, least - 1, least + 50, xtol=1e-9) for row in rows]
    )
