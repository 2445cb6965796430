"""Random regressions, badly scaled and ill-conditioned ones among them, against a Newton's method in 300 digits: every bracket that is offered holds."""

import mpmath as mp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import PenchantError

FAMILIES = ("squares", "signed squares", "signed powers")


def problem(rng):
    n = int(rng.integers(1, 9))
    d = int(rng.integers(n + 1, 13))
    left, right = np.linalg.qr(rng.standard_normal((n, n)))[0], np.linalg.qr(rng.standard_normal((d, n)))[0]
    inputs = left @ np.diag(np.geomspace(1, 10 ** -rng.uniform(0, rng.choice([1, 8])), n)) @ right.T
    inputs = inputs * 10 ** (rng.uniform(-6, 6, n)[:, None] * (rng.random() < 0.3))
    inputs = inputs * 10 ** (rng.uniform(-4, 4, d) * (rng.random() < 0.3))
    weight = rng.standard_normal(d) * (rng.random(d) < rng.choice([0.4, 1.0]))
    weight = np.abs(weight) if rng.random() < 0.5 else weight
    targets = inputs @ weight if rng.random() < 0.7 else rng.standard_normal(n)
    return inputs, targets * 10 ** (rng.uniform(-8, 8) * (rng.random() < 0.3))


def potential(family, rng, d):
    alpha = 10 ** rng.uniform(-30, 30) if rng.random() < 0.6 else 10 ** rng.uniform(-3, 1)
    if family == "squares":
        return pt.Squares(alpha).potential(np.full(d, alpha))
    if family == "signed squares":
        return pt.SignedSquares(alpha).potential(np.full((2, d), alpha))
    depth, alpha = int(rng.integers(3, 21)), min(alpha, 1e3)
    return pt.settings.SignedPowers(alpha, depth).potential(np.full((2, d), alpha))


def conjugate(family, one, s):
    """The conjugate of one coordinate with its two derivatives, from the formulas of the models."""
    b = mp.exp(mp.mpf(one.levels[0]))
    if family == "squares":
        return b * mp.expm1(s), b * mp.exp(s), b * mp.exp(s)
    if family == "signed squares":
        return 4 * b * mp.sinh(s / 2) ** 2, 2 * b * mp.sinh(s), 2 * b * mp.cosh(s)
    p = mp.mpf(one.depth) / (one.depth - 2)
    up, down = 1 - s / p, 1 + s / p
    if min(up, down) <= 0:
        return mp.inf, mp.inf, mp.inf
    power = lambda k: (up**k, down**k)
    total = sum(power(1 - p)) - 2
    return b * p / (p - 1) * total, b * (power(-p)[0] - power(-p)[1]), b * sum(power(-p - 1))


def optimum(family, one, inputs, targets, dual):
    """max <nu, y> - sum of conjugates, by a damped Newton's method; None where 300 digits and 300 steps do not get there."""
    mp.mp.dps = 300
    rows, goal, nu = mp.matrix(inputs.tolist()), mp.matrix(targets.tolist()), mp.matrix(dual.tolist())

    def at(nu):
        parts = [conjugate(family, one, s) for s in rows.T * nu]
        return (goal.T * nu)[0] - sum(part[0] for part in parts), parts

    value, parts = at(nu)
    if not mp.isfinite(value):
        nu = 0 * nu
        value, parts = at(nu)
    for _ in range(300):
        slope = goal - rows * mp.matrix([part[1] for part in parts])
        curved = mp.matrix([[rows[i, j] * parts[j][2] for j in range(rows.cols)] for i in range(rows.rows)])
        try:
            step = mp.lu_solve(curved * rows.T, slope)
        except ZeroDivisionError:
            return None
        gain = (slope.T * step)[0]
        if gain <= mp.mpf(10) ** -40 * abs(value):
            return value
        size = mp.mpf(1)
        while size > 1e-18:
            moved, there = at(nu + size * step)
            if mp.isfinite(moved) and moved >= value + size * gain / 10**4:
                break
            size /= 2
        if not mp.isfinite(moved):
            return None
        nu, value, parts = nu + size * step, moved, there
    return None


def trial(family, seeds, every):
    """(number of brackets offered, number checked); raises at the first that is wrong, and at anything but an error of penchant."""
    offered = checked = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        inputs, targets = problem(rng)
        data = pt.Regression(inputs, targets)
        try:
            one = potential(family, rng, inputs.shape[1])
            found = pt.references.minimum_potential(data, one)
        except PenchantError:
            continue
        assert 0 <= found.bracket.lower <= found.bracket.upper
        assert found.certified or not found.resolved
        offered += found.certified
        if found.certified and seed % every == 0 and data.rank == len(targets):
            exact = optimum(family, one, inputs, targets, found.dual)
            checked += exact is not None
            assert exact is None or found.bracket.lower <= exact, seed
            # Floats with fewer positive coefficients than samples have no solution: the upper bound is for targets next to them.
            assert exact is None or exact <= found.bracket.upper or found.allowance, seed
    return offered, checked


@pytest.mark.parametrize("family", FAMILIES)
def test_brackets_of_potentials_contain_the_optimum(family):
    offered, checked = trial(family, range(16), 3)
    assert offered >= 4
    assert checked >= 1


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_brackets_of_potentials_contain_the_optimum_on_many_data(family):
    offered, checked = trial(family, range(800), 4)
    assert offered >= 300
    assert checked >= 60


def least_l1(rows, goal, data):
    """(lower, exact, upper): the optimum in 300 digits at a vertex with n coefficients whose dual is feasible; None elsewhere."""
    try:
        found = pt.references.basis_pursuit(data)
    except PenchantError:
        return None
    support = [int(j) for j in np.flatnonzero(found.weight)]
    if len(support) != rows.rows:
        return None
    columns = mp.matrix([[rows[i, j] for j in support] for i in range(rows.rows)])
    weight = mp.lu_solve(columns, goal)
    dual = mp.lu_solve(columns.T, mp.matrix([mp.sign(one) for one in weight]))
    if max(abs(one) for one in rows.T * dual) > 1 + mp.mpf(10) ** -200:
        return None
    return found.bracket.lower, sum(abs(one) for one in weight), found.bracket.upper


def test_brackets_of_norms_contain_the_optimum():
    """The least l2 norm from the Gram matrix in 300 digits, the least l1 norm from the support and signs of the solution, where these prove themselves."""
    mp.mp.dps, solved, proved = 300, 0, 0
    for seed in range(30):
        inputs, targets = problem(np.random.default_rng(seed))
        data, rows, goal = pt.Regression(inputs, targets), mp.matrix(inputs.tolist()), mp.matrix(targets.tolist())
        exact = mp.sqrt((goal.T * mp.lu_solve(rows * rows.T, goal))[0])
        found = pt.references.minimum_norm(data)
        assert found.bracket.lower <= exact <= found.bracket.upper, seed
        solved += found.certified
        exact = least_l1(rows, goal, data)
        assert exact is None or exact[0] <= exact[1] <= exact[2], seed
        proved += exact is not None
    assert solved >= 25
    assert proved >= 10
