"""Maximum margins in rational arithmetic, and data near the edge of what float64 separates."""

from fractions import Fraction

import numpy as np


def fractions(array) -> np.ndarray:
    """The stored floats themselves."""
    return np.vectorize(lambda entry: Fraction(float(entry)), otypes=[object])(np.asarray(array, float))


def least_square(features: np.ndarray) -> Fraction | None:
    """min |w|^2 subject to <z_k, w> >= 1 by Goldfarb and Idnani's dual method, without rounding; None if there is no such w."""
    gram = features @ features.T
    support, dual = [], []
    while True:
        margins = gram[:, support] @ np.array(dual, object) if support else np.full(len(gram), Fraction(0))
        worst = min(range(len(gram)), key=lambda k: margins[k])
        if margins[worst] >= 1:
            return sum(dual, Fraction(0))
        added = Fraction(0)
        while worst not in support:
            along = _solve(gram[np.ix_(support, support)], gram[support, worst])
            steps = [(one / rate, place) for place, (one, rate) in enumerate(zip(dual, along, strict=True)) if rate > 0]
            short, place = min(steps, default=(None, 0))
            room = gram[worst, worst] - sum(gram[worst, support] * along)
            reached = sum(gram[worst, support] * np.array(dual, object)) + added * gram[worst, worst]
            full = (1 - reached) / room if room > 0 else None
            if short is None and full is None:
                return None
            step = min(one for one in (short, full) if one is not None)
            dual, added = [one - step * rate for one, rate in zip(dual, along, strict=True)], added + step
            if step == full:
                support, dual = [*support, worst], [*dual, added]
            else:
                del support[place], dual[place]


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Gauss-Jordan elimination of a regular system."""
    table = np.column_stack([matrix, right])
    for k in range(len(table)):
        pivot = next(row for row in range(k, len(table)) if table[row, k] != 0)
        table[[k, pivot]] = table[[pivot, k]]
        table[k] = table[k] / table[k, k]
        for row in range(len(table)):
            if row != k and table[row, k] != 0:
                table[row] = table[row] - table[row, k] * table[k]
    return table[:, -1]


def near_degenerate(seed: int) -> np.ndarray:
    """Separable inputs with margins of 1e-6 to 1e-12, most with rows (some with columns) scaled by 1e-8 to 1e8."""
    rng = np.random.default_rng(seed)
    d, n, kind = int(rng.integers(2, 7)), int(rng.integers(2, 15)), rng.integers(3)
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    inputs = rng.standard_normal((n, d))
    along, margin = inputs @ direction, 10.0 ** -rng.uniform(6, 12)
    if kind == 0:
        wanted = np.where(rng.random(n) < 0.5, margin * (1 + rng.random(n)), np.abs(along) + margin)
        inputs = inputs + np.outer(wanted - along, direction)
    else:
        wanted = np.abs(along) + margin if kind == 1 else margin * (1 + rng.random(n))
        inputs = (inputs + np.outer(wanted - along, direction)) * 10.0 ** rng.uniform(-8, 8, (n, 1))
    return inputs * 10.0 ** rng.uniform(-8, 8, (1, d)) if rng.random() < 0.3 else inputs
