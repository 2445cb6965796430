"""Margins and interpolants: the bracket, the proof or the doubt of a program against its exact optimum."""

from fractions import Fraction

import numpy as np

import penchant as pt
from penchant.errors import InterpolationError, NotSeparableError, PenchantError, UndecidedMargin
from penchant.norms import L1, Entrywise, Linf, Schatten
from penchant.references.base import Solution, placed
from penchant.references.linear_programs import polyhedral_margin

from . import cases, oracles
from .holding import ERROR, RIGHT, UNCHECKED, UNDECIDED, WRONG, held


def margin_program(solve, rows, norm, ends=None):
    """A maximum-margin program: the bracket it returns, or the proof or the doubt it raises; `ends` are those that the answer itself proves."""
    truth = oracles.least_margin_norm(rows, norm)
    try:
        found = solve()
    except NotSeparableError as error:
        return (ERROR, "infeasible") if truth is None else (WRONG, f"feasible data refused: {type(error).__name__}")
    except UndecidedMargin as error:
        false = truth is None and "are separable" in str(error)
        return (WRONG, "inseparable data called separable") if false else (UNDECIDED, str(error).splitlines()[0])
    except PenchantError as error:
        false = truth is not None and "infeasible" in str(error)
        return (WRONG, f"feasible data called infeasible: {error}") if false else (ERROR, str(error).splitlines()[0])
    if ends and truth is not None:
        low, high = ends(found)
        return held(found.bracket, high, low)  # around both, so around the optimum
    return held(found.bracket, truth, truth, 2 if norm == "l2" else 1)


def nearly(rng, values):
    """Exact numbers as floats, each a little off."""
    return np.array([float(v) for v in values]) * (1 + cases.decades(rng, -17, -1) * rng.standard_normal(len(values)))


def l2_margin(rng):
    inputs, labels = cases.linear(rng)
    data, rows, way = pt.Classification(inputs, labels), oracles.exact(labels[:, None] * inputs), rng.random()
    if way < 0.2:  # any primal and any dual point
        point, weights = oracles.shortest_in_hull(rows)
        truth = 1 / oracles.dot(point, point) if any(point) else None
        return held(pt.bracket(data, nearly(rng, point), nearly(rng, weights)), truth, truth, 2)
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    solve = (
        (lambda: pt.references.max_margin(data))
        if way < 0.7
        else lambda: pt.predict(setting, pt.GradientFlow()).reference
    )
    return margin_program(solve, rows, "l2")


def polyhedral(rng):
    inputs, labels = cases.linear(rng)
    norm, data = cases.pick(rng, (L1(), Linf())), pt.Classification(inputs, labels)
    return margin_program(
        lambda: polyhedral_margin(data, norm), oracles.exact(labels[:, None] * inputs), str(norm.name)
    )


def pair_rows(tokens, queries, scores, diagonal=False):
    """The features of token pairs as rational numbers: of the whole matrix, or of its diagonal."""
    rows = []
    for sequence, query, score in zip(oracles.exact(tokens), oracles.exact(queries), scores, strict=True):
        best = int(np.argmax(score))
        for k, token in enumerate(sequence):
            if k != best:
                left = [a - b for a, b in zip(sequence[best], token, strict=True)]
                whole = [a * q for a in left for q in query]
                rows.append([a * q for a, q in zip(left, query, strict=True)] if diagonal else whole)
    return rows


def token_margin(rng):
    arrays = tokens, queries, scores = cases.tokens(rng)
    data, way = pt.TokenSelection(tokens, queries=queries, scores=scores), rng.random()
    if way < 0.45:
        setting = pt.Setting(data, pt.Direct(), pt.Exponential())
        solve = (
            (lambda: pt.references.max_margin(data))
            if way < 0.25
            else lambda: pt.predict(setting, pt.GradientFlow()).reference
        )
        return margin_program(solve, pair_rows(*arrays), "l2")
    if way < 0.75:
        data = pt.settings.DiagonalTokens(data)
        return margin_program(lambda: pt.references.diagonal_margin(data), pair_rows(*arrays, diagonal=True), "l1")
    rows = pair_rows(*arrays)
    if oracles.least_margin_norm(rows, "l2") is None:
        return margin_program(lambda: pt.references.nuclear_margin(data), rows, "l2")
    bounds = oracles.nuclear_bounds(rows, data.weight_shape)
    try:
        found = pt.references.nuclear_margin(data).bracket
    except UndecidedMargin as error:
        return UNDECIDED, str(error).splitlines()[0]
    except NotSeparableError as error:
        return WRONG, f"feasible data refused: {type(error).__name__}"
    if bounds is None:
        return UNCHECKED, "the cone solver failed"
    low, high = (Fraction(float(b)) * (1 + Fraction(s, 10**10)) for b, s in zip(bounds, (-1, 1), strict=True))
    return held(found, low, high)


def exponent_margin(rng):
    """Norms of any exponent, of entries and of singular values: what a weight and multipliers are said to bound against what they do."""
    p, of_matrix, arrays = cases.pick(rng, cases.EXPONENTS), rng.random() < 0.5, cases.tokens(rng)
    data, rows = pt.TokenSelection(arrays[0], queries=arrays[1], scores=arrays[2]), pair_rows(*arrays)
    if not of_matrix and rng.random() < 0.8:
        inputs, labels = cases.linear(rng)
        data, rows = pt.Classification(inputs, labels), oracles.exact(labels[:, None] * inputs)
    norm, shape, active = (Schatten if of_matrix else Entrywise)(p), data.weight_shape, data.constrained()

    solved = rng.random() < 0.7

    def solve():
        if solved:
            return pt.references.norm_margin(data, norm)
        weight, dual = (nearly(rng, values) for values in oracles.shortest_in_hull(rows))
        weight, dual = weight.reshape(shape), placed(dual, active)
        return Solution(norm.name, weight, dual, pt.bracket(data, weight, dual, norm), norm)

    bounds = lambda found: oracles.exponent_bounds(
        rows, found.weight.ravel(), found.dual[active], p, shape if of_matrix else None
    )
    verdict, note = margin_program(solve, rows, "l2", bounds)
    return verdict, f"{norm.name}{', any points' * (not solved)}, {len(rows)} margins: {note}"


def residual_of(weight, rows, right):
    """Relative residual of a weight in exact arithmetic, and what rounding of its own digits could leave."""
    exact_weight = oracles.exact(weight)
    rest = [oracles.dot(row, exact_weight) - y for row, y in zip(rows, right, strict=True)]
    sizes = [oracles.dot([abs(x) for x in row], [abs(x) for x in exact_weight]) for row in rows]
    scale = max((abs(y) for y in right), default=Fraction(0)) or Fraction(1)
    ratio = lambda values: float(max((abs(v) for v in values), default=Fraction(0)) / scale)
    return ratio(rest), 64 * np.finfo(float).eps * ratio(sizes)


def interpolation(rng):
    inputs, targets = cases.regression(rng)
    data, size, depth = pt.Regression(inputs, targets), cases.alpha(rng), cases.pick(rng, (3, 3, 3, 4, 6, 10, 20))
    kind, predicted = cases.pick(rng, ("l2", "l1", "nonnegative l1", "Q", "Q", "KL", "KL", "power", "power")), False
    forms = {"l2": pt.Direct, "Q": lambda: pt.SignedSquares(size), "KL": lambda: pt.Squares(size)}
    forms["power"] = lambda: pt.settings.SignedPowers(size, depth)
    rows, right, consistent = oracles.solutions(oracles.exact(inputs), oracles.exact(targets))
    nonnegative = kind in ("nonnegative l1", "KL")
    low = high = oracles.least_l1(rows, right, True) if nonnegative else Fraction(0)
    if not (nonnegative and low is None):
        low, high = _least(kind, rows, right, size, depth)
    try:
        if kind in forms and rng.random() < 0.5:
            predicted = True
            prediction = pt.predict(pt.Setting(data, forms[kind](), pt.Squared()), pt.GradientFlow())
            found = prediction.reference
        elif kind in ("l1", "nonnegative l1"):
            found = pt.references.basis_pursuit(data, nonnegative=nonnegative)
        elif kind == "l2":
            found = pt.references.minimum_norm(data)
        else:
            start = np.full(inputs.shape[1] if kind == "KL" else (2, inputs.shape[1]), size)
            found = pt.references.minimum_potential(data, forms[kind]().potential(start))
    except InterpolationError as error:
        false = low is not None if "nonnegative" in str(error).splitlines()[0] else consistent
        return (WRONG, f"{kind}: solvable targets refused") if false and consistent else (ERROR, str(error)[:60])
    if not found.resolved and not np.isfinite([found.bracket.lower, found.bracket.upper]).all():
        return UNDECIDED, f"{kind}: not resolved"
    if low is None:  # targets within rounding of those that a nonnegative weight reaches
        rest, rounding = residual_of(found.weight, rows, right)
        return (UNDECIDED if rest <= 1e-9 + rounding else WRONG), f"{kind}: infeasible, but solved to {rest:.1e}"
    if low is UNCHECKED:
        return UNCHECKED, f"{kind} at {size:g}, depth {depth}"
    if not consistent:  # the optimum is that of targets which were projected in float64
        low, high = low * (1 - Fraction(1, 10**6)), high * (1 + Fraction(1, 10**6))
    if (
        kind == "nonnegative l1" and consistent and found.allowance
    ):  # the bracket is about targets near these, and says so
        low = oracles.least_allowed(rows, right, found.allowance)
    verdict, note = held(found.bracket, low, high, 2 if kind == "l2" else 1)
    rest, rounding = residual_of(found.weight, rows, right)
    verdict = UNDECIDED if verdict == RIGHT and not found.resolved else verdict
    if verdict == RIGHT and not rest <= 1e-9 + rounding:
        verdict, note = WRONG, f"{note}, resolved, at relative residual {rest:.1e}"
    if predicted and verdict != WRONG and (false := _false_rival(prediction, rows, right, consistent)):
        verdict, note = WRONG, false
    return verdict, f"{kind}{f' {depth}' * (kind == 'power')} at {size:g}: {note}"


def _least(kind, rows, right, size, depth):
    if kind == "l2":
        weight = oracles.least_l2(rows, right)
        return (oracles.dot(weight, weight),) * 2
    if "l1" in kind:
        return (oracles.least_l1(rows, right, kind != "l1"),) * 2
    return oracles.least_potential(rows, right, kind, size, depth if kind == "power" else 2) or (UNCHECKED, UNCHECKED)


def _false_rival(prediction, rows, right, consistent):
    """The l1 norm of the sparse rival against the exact one."""
    weights = [rival.weight for rival in prediction.rivals if rival.name == "l1"]
    if not (weights and consistent):
        return ""
    best, found = float(oracles.least_l1(rows, right)), float(np.abs(weights[0]).sum())
    return "" if abs(found - best) <= 1e-6 * best else f"the l1 rival has norm {found!r}, the least is {best!r}"
