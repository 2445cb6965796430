"""Exact and independent answers: rational arithmetic for norms and margins, many digits for potentials. Nothing here calls the code under test.

Floats are rational numbers, so the programs behind the references have exact optima: the shortest vector of a convex hull by Wolfe's
method, linear programs by the simplex method, both in integers. Potentials are minimised by Newton's method on their dual with as many
digits as their coefficients span decades.
"""

from fractions import Fraction

import mpmath
import numpy as np


def exact(array):
    """Nested lists of rational numbers, those that the floats are."""
    return [exact(row) for row in array] if np.ndim(array) else Fraction(float(array))


def dot(a, b):
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def transpose(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def cleared(row):
    """A row times the least positive number that makes it whole."""
    denominator = int(np.lcm.reduce([Fraction(x).denominator for x in row], dtype=object)) if len(row) else 1
    return [int(x * denominator) for x in row]


def eliminate(rows):
    """Fraction-free elimination: the reduced rows, and for every pivot its column and the row that it came from."""
    rows, live, pivots, last = [cleared(row) for row in rows], list(range(len(rows))), [], 1
    for column in range(len(rows[0])):
        k = next((i for i in range(len(pivots), len(rows)) if rows[i][column]), None)
        if k is None:
            continue
        at = len(pivots)
        rows[at], rows[k], live[at], live[k] = rows[k], rows[at], live[k], live[at]
        pivot = rows[at][column]
        for i in range(len(rows)):
            if i != at:
                factor = rows[i][column]
                rows[i] = [(pivot * x - factor * y) // last for x, y in zip(rows[i], rows[at], strict=True)]
        pivots.append((column, live[at]))
        last = pivot
    return rows, pivots, last


def solve(matrix, right):
    """The solution of a regular system."""
    rows, _, last = eliminate([[*row, value] for row, value in zip(matrix, right, strict=True)])
    return [Fraction(row[-1], last) for row in rows]


def shortest_in_hull(points):
    """The point of the convex hull nearest to 0, and its weights (Wolfe, 1976): in exact arithmetic it always ends."""
    gram = [[dot(a, b) for b in points] for a in points]
    corral = {min(range(len(points)), key=lambda i: gram[i][i]): Fraction(1)}
    while True:
        products = [sum(w * gram[i][j] for i, w in corral.items()) for j in range(len(points))]
        worst = min(range(len(points)), key=products.__getitem__)
        if products[worst] >= sum(w * products[i] for i, w in corral.items()):
            weights = [corral.get(i, Fraction(0)) for i in range(len(points))]
            return [dot(weights, column) for column in transpose(points)], weights
        corral[worst] = Fraction(0)
        while True:
            names = list(corral)
            bordered = [[0] + [1] * len(names)] + [[1] + [gram[i][j] for j in names] for i in names]
            ideal = dict(zip(names, solve(bordered, [1] + [0] * len(names))[1:], strict=True))
            if min(ideal.values()) > 0:
                corral = ideal
                break
            share = min(corral[i] / (corral[i] - ideal[i]) for i in names if ideal[i] <= 0 and corral[i] > ideal[i])
            moved = {i: corral[i] + share * (ideal[i] - corral[i]) for i in names}
            corral = {i: w for i, w in moved.items() if w > 0}


def maximise(rows, limits, costs):
    """max <costs, x> with rows x <= limits, x >= 0, for limits >= 0, in integers with Bland's rule; None if there is no bound."""
    m, n = len(rows), len(costs)
    table = [cleared([*row, limit]) for row, limit in zip(rows, limits, strict=True)]
    table = [[*row[:-1], *(int(i == j) for j in range(m)), row[-1]] for i, row in enumerate(table)]
    whole = cleared(costs)
    unit = next((Fraction(c) / w for c, w in zip(costs, whole, strict=True) if w), Fraction(1))
    table.append([-c for c in whole] + [0] * (m + 1))
    basis, last = list(range(n, n + m)), 1
    while True:
        enter = next((j for j, value in enumerate(table[-1][:-1]) if value < 0), None)
        if enter is None:
            return unit * Fraction(table[-1][-1], last)
        open_rows = [i for i in range(m) if table[i][enter] > 0]
        if not open_rows:
            return None
        leave = min(open_rows, key=lambda i: (Fraction(table[i][-1], table[i][enter]), basis[i]))
        pivot, chosen = table[leave][enter], table[leave]
        for i in range(m + 1):
            if i != leave:
                factor = table[i][enter]
                table[i] = [(pivot * x - factor * y) // last for x, y in zip(table[i], chosen, strict=True)]
        basis[leave], last = enter, pivot


def least_margin_norm(rows, norm):
    """min ||w|| with <row, w> >= 1: the square for l2, the norm itself for l1 and linf; None if no weight has positive margins."""
    if norm == "l2":
        point, _ = shortest_in_hull(rows)
        return 1 / dot(point, point) if any(point) else None
    columns = transpose(rows)
    both = columns + [[-x for x in column] for column in columns]
    if norm == "l1":
        return maximise(both, [1] * len(both), [1] * len(rows))
    d, n = len(columns), len(rows)  # |Z'a|_1 <= 1 by way of |Z'a|_j <= t_j, sum of t <= 1
    bounded = [row + [-int(j == i % d) for j in range(d)] for i, row in enumerate(both)]
    return maximise([*bounded, [0] * n + [1] * d], [0] * (2 * d) + [1], [1] * n + [0] * d)


def solutions(inputs, targets):
    """Independent equations of the least-squares solutions, and whether these interpolate."""
    columns = transpose(inputs)
    square = [[dot(a, b) for b in columns] + [dot(a, targets)] for a in columns]
    given = [[*row, y] for row, y in zip(inputs, targets, strict=True)]
    pivots = eliminate(given)[1]
    consistent = all(column < len(columns) for column, _ in pivots)
    rows = given if consistent else square
    kept = [rows[k] for _, k in (pivots if consistent else eliminate(square)[1])]
    return [row[:-1] for row in kept], [row[-1] for row in kept], consistent


def least_l2(rows, right):
    """The shortest solution of independent equations."""
    multipliers = solve([[dot(a, b) for b in rows] for a in rows], right) if rows else []
    return [dot(multipliers, column) for column in transpose(rows)]


def least_l1(rows, right, nonnegative=False):
    """min |x|_1 with rows x = right (and x >= 0); None if there is no such x."""
    both = [[*column, *(-x for x in column)] for column in transpose(rows)]
    limits = both if nonnegative else both + [[-x for x in row] for row in both]
    return maximise(limits, [1] * len(limits), [*right, *(-x for x in right)])


def least_allowed(rows, right, allowance):
    """The same of x >= 0 with every equation met up to a share of the sizes of its terms: |rows x - right| <= share (|rows| x + |right|)."""
    share = exact(allowance)
    sides = [(sign, row, y) for row, y in zip(rows, right, strict=True) for sign in (1, -1)]
    columns = transpose([[share * abs(x) - sign * x for x in row] for sign, row, _ in sides])
    return maximise(columns, [1] * len(columns), [-sign * y - share * abs(y) for sign, _, y in sides])


def vanishing(rows, right):
    """The coordinates that are 0 in every nonnegative solution: those with multipliers X' mu >= 0, <mu, y> <= 0 that are positive there."""
    columns = transpose(rows)
    signed = [[-x for x in column] + list(column) for column in columns]
    limits = [*signed, [*right, *(-x for x in right)]]
    gain = lambda j: [*columns[j], *(-x for x in columns[j])]
    return [maximise([*limits, gain(j)], [0] * len(limits) + [1], gain(j)) > 0 for j in range(len(columns))]


def potential(kind, alpha, depth):
    """The conjugate of a potential with its first two derivatives, and the length of the step that is safe in their third one."""
    scale = mpmath.mpf(float(alpha)) ** depth
    exponential = lambda s, step: max(abs(v) for v in step)
    if kind == "KL":
        return (
            lambda s: scale * mpmath.expm1(s),
            lambda s: scale * mpmath.exp(s),
            lambda s: scale * mpmath.exp(s),
            exponential,
        )
    if kind == "Q":
        value = lambda s: 4 * scale * mpmath.sinh(s / 2) ** 2
        return value, lambda s: 2 * scale * mpmath.sinh(s), lambda s: 2 * scale * mpmath.cosh(s), exponential
    p = mpmath.mpf(depth) / (depth - 2)
    pair = lambda s, power, sign: (1 - s / p) ** -power + sign * (1 + s / p) ** -power
    value = lambda s: scale * p / (p - 1) * (pair(s, p - 1, 1) - 2)
    room = lambda s, step: max(abs(v) / (p - mpmath.sign(v) * u) for u, v in zip(s, step, strict=True))
    return value, lambda s: scale * pair(s, p, -1), lambda s: scale * pair(s, p + 1, 1), room


def least_potential(rows, right, kind, alpha, depth=2, rounds=400):
    """Bounds on the least potential subject to rows x = right, by damped Newton steps on the dual; None if they do not converge."""
    d, idle = len(rows[0]), 0
    if kind == "KL":  # what must vanish only adds its start
        zero = vanishing(rows, right)
        idle, rows = sum(zero), [[x for x, gone in zip(row, zero, strict=True) if not gone] for row in rows]
        rows, right, _ = ([], [], None) if idle == d else solutions(rows, right)
        if not rows:  # nothing is asked of the others, which stay at their start
            return (_mpf(Fraction(float(alpha)) ** 2 * idle, 60),) * 2
    largest = max((abs(x) for x in least_l2(rows, right)), default=Fraction(0))
    decades = abs(mpmath.log10(mpmath.mpf(float(alpha))) * depth - (mpmath.log10(_mpf(largest)) if largest else 0))
    with mpmath.workdps(int(60 + 2.5 * min(decades, 800))):
        matrix, goal = mpmath.matrix([[_mpf(x) for x in row] for row in rows]), mpmath.matrix([_mpf(x) for x in right])
        value, link, curvature, length = potential(kind, alpha, depth)
        power = mpmath.mpf(depth) / (depth - 2) if kind == "power" else None
        nu = mpmath.matrix(len(right), 1)
        for _ in range(rounds):
            s = list(matrix.T * nu)
            if power is not None and max(abs(v) for v in s) >= power:  # rounding has carried it out of its domain
                return None
            rest = goal - matrix * mpmath.matrix([link(v) for v in s])
            heavy = matrix * mpmath.diag([curvature(v) for v in s]) * matrix.T
            try:
                step = mpmath.lu_solve(heavy, rest)
            except ZeroDivisionError:
                return None
            size = length(s, list(matrix.T * step))
            if max(size, mpmath.norm(rest, mpmath.inf) / (mpmath.norm(goal, mpmath.inf) or 1)) < mpmath.mpf(10) ** -25:
                dual = (nu.T * goal)[0] - sum(value(v) for v in s)
                dual, error = dual + idle * mpmath.mpf(float(alpha)) ** 2, 2 * abs((rest.T * step)[0])
                return dual - error, dual + error
            short = mpmath.log1p(size) if power is None else 1 - (1 + power * size) ** (-1 / power)
            nu = nu + step * (short / size if size else 1)
    return None


def _mpf(number, digits=0):
    with mpmath.workdps(digits or mpmath.mp.dps):
        return mpmath.mpf(number.numerator) / number.denominator


def nuclear_bounds(rows, shape):
    """Bounds on the least nuclear norm with margins of at least 1, by weak duality from what a cone solver returns; None without any."""
    import cvxpy

    floats = np.array([[float(x) for x in row] for row in rows])
    weight, unit = cvxpy.Variable(shape), np.abs(floats).max()
    margins = (floats / unit) @ cvxpy.vec(weight, order="C") >= 1
    try:
        cvxpy.Problem(cvxpy.Minimize(cvxpy.normNuc(weight)), [margins]).solve(solver="CLARABEL")
    except cvxpy.error.SolverError:
        return None
    if weight.value is None or margins.dual_value is None:
        return None
    reached = min(dot(row, exact(weight.value.ravel())) for row in rows)
    dual = np.maximum(margins.dual_value, 0.0)
    pull = np.linalg.norm((dual @ floats).reshape(shape), 2)
    if reached <= 0 or not pull > 0:
        return None
    return dual.sum() / pull, np.linalg.norm(weight.value, "nuc") / float(reached)


def p_norm(weight, p, shape):
    """The p-norm of the entries, or with a shape that of the singular values of the matrix."""
    top = max(abs(x) for x in weight)
    sizes = [abs(x) / top for x in weight]
    if shape:
        sizes = mpmath.svd_r(mpmath.matrix(np.reshape([x / top for x in weight], shape).tolist()), compute_uv=False)
    return top * mpmath.fsum(x**p for x in sizes if x > 0) ** (1 / p)


def exponent_bounds(rows, weight, dual, p, shape=None):
    """Bounds on the least p-norm with margins of at least 1, by weak duality from any weight and any multipliers, in 60 digits."""
    with mpmath.workdps(60):
        p, shares = mpmath.mpf(float(p)), [max(x, Fraction(0)) for x in exact(dual)]
        listed = lambda values: [_mpf(x) for x in values]
        pull, reached = (
            [dot(shares, column) for column in transpose(rows)],
            min(dot(row, exact(weight)) for row in rows),
        )
        low = _mpf(sum(shares)) / p_norm(listed(pull), p / (p - 1), shape) if any(pull) else mpmath.mpf(0)
        return low, p_norm(listed(exact(weight)), p, shape) / _mpf(reached) if reached > 0 else mpmath.inf
