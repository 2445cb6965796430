"""The maximum margin in any norm of `penchant.norms`, with its certificate."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError, kind, warn
from ..norms import L2, Entrywise, Hybrid, Norm, Nuclear, Schatten, WeightedL2, conjugate
from ..settings.base import Data, Setting
from ..settings.check import real_array
from ..settings.classification import Classification, Multiclass
from ..settings.tokens import TokenSelection
from .balls import Ball, Box, Columns, Operator, Smooth
from .base import CERTIFIED, Solution, feature_rows, placed, require_margins, require_tokens, watched
from .bracket import adjoint, bracket, margins
from .euclidean_margin import max_margin, provable
from .pair_program import Certificate, Found, Pairs, solve

_GAP = 1e-9  # certified relative width asked of every solution
_INSIDE = 1e-9  # relative, by which a weight may be outside its ball
_ROUGH = 1e-2  # of programs on the way to another one
_STRIDE = 1.5  # from one exponent to the next on that way
_RANK = 1e-12  # relative, below which a direction is rounding
_MANY = 2000  # pairs, above which the program in the Gram matrix is the slower one


@watched
def norm_margin(data: object, norm: Norm, gap: float = _GAP) -> Solution:
    """The maximum margin of a weight of norm 1, certified to a relative `gap` where float64 allows.

    Where the maximum is not unique the weight is in the middle of its face (`theory.uniqueness`): compare margins, not directions.
    Raises an error with the proof if no weight has a positive margin.

    >>> import penchant as pt
    >>> from penchant.norms import L1, Linf, Spectral
    >>> data = pt.settings.clusters(4, 8, 12)
    >>> [round(norm_margin(data, norm).margin, 6) for norm in (Linf(), L1(), Spectral())]
    [3.441959, 0.256032, 1.466455]
    """
    data = require_margins(data, "norm_margin")
    if misfit := _misfit(data.weight_shape, norm):
        raise ArgumentError("norm", "norm_margin", *misfit)
    if isinstance(norm, WeightedL2):
        return _weighted(data, norm)
    pairs, active = _pairs(data)
    rows, columns = (_basis(part) if isinstance(norm, Schatten) else None for part in (pairs.left, pairs.inputs))
    if rows is not None and columns is not None:  # nothing is gained outside of the spans
        pairs = Pairs(pairs.left @ rows, pairs.inputs @ columns, pairs.sample)
    if len(pairs.left) <= _MANY and getattr(norm, "p", 0) == 2:
        return max_margin(data)
    found = _without_idle(pairs, norm, _found(pairs, norm, gap, _shortest(data, norm, active, rows, columns)), gap)
    if not found.gap < np.inf:
        found = max_margin(data)  # raises where no margin is positive; else its answer bounds every norm, loosely
        return _certified(data, active, norm, found.weight, found.dual[active])
    weight = found.weight if rows is None or columns is None else rows @ found.weight @ columns.T
    weight = weight.reshape(data.weight_shape)
    return _certified(data, active, norm, weight / np.asarray(margins(data, weight))[active].min(), found.multipliers)


def _shortest(
    data: Data, norm: Norm, active: np.ndarray, rows: np.ndarray | None, columns: np.ndarray | None
) -> Found | None:
    """The weight of least l2 norm, from which the way to exponents below 2 begins: there pairs of any length have their margin."""
    if getattr(norm, "p", 2) >= 2 or active.sum() > _MANY:
        return None
    found = max_margin(data)
    weight = found.weight.reshape(-1, found.weight.shape[-1])
    weight = weight if rows is None or columns is None else rows.T @ weight @ columns
    return Found(weight, found.dual[active], np.inf)


def _without_idle(pairs: Pairs, norm: Norm, found: Found, gap: float) -> Found:
    """The same without the multipliers that an interior point keeps on idle margins, if need be solved once more for the others alone."""
    if not found.gap < np.inf:
        return found
    reached, share = pairs.margins(found.weight), found.multipliers / found.multipliers.sum()
    used = share >= reached / reached.min() - 1

    def beside(multipliers: np.ndarray) -> Found:
        fewer = placed(multipliers, used)
        return Found(found.weight, fewer, Certificate(pairs, norm).offer(found.weight, reached, fewer))

    fewer = beside(found.multipliers[used])
    if fewer.gap > gap and (again := solve(pairs.some(used), norm, *_program(norm), gap / 30)).gap < np.inf:
        fewer = beside(again.multipliers)
    return fewer if fewer.gap <= gap else found


def nuclear_margin(data: object, gap: float = _GAP) -> Solution:
    """The maximum-margin matrix of token data in the nuclear norm, certified to a relative `gap` where float64 allows.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[0.0, 3.0]])
    >>> round(nuclear_margin(data).value, 6)                       # one pair: 1 / (2 * 3)
    0.166667
    """
    return norm_margin(require_tokens(data, "nuclear_margin"), Nuclear(), gap)


def _found(pairs: Pairs, norm: Norm, gap: float, shortest: Found | None) -> Found:
    (*way, last), known = _between(norm), shortest
    if getattr(norm, "p", 2.0) == 1 and len(pairs.left) > _MANY:
        way = [L2()]  # few pairs are active there, and most of them again
    for near in way:
        step = solve(pairs, near, *_program(near), _ROUGH, known)
        known = step if step.gap < np.inf else known
    found = solve(pairs, last, *_program(norm), gap / 30, known)
    if found.gap <= gap or len(pairs.left) > _MANY:
        return found
    again = solve(pairs, norm, *_program(norm), gap / 30, known, len(pairs.left))  # with all pairs from the outset
    found = min(found, again, key=lambda one: one.gap)
    done = found.gap <= gap or getattr(norm, "p", 2) in (1, 2, np.inf)
    return found if done else _beside_limit(pairs, norm, gap, shortest, found)


def _beside_limit(pairs: Pairs, norm: Norm, gap: float, shortest: Found | None, found: Found) -> Found:
    """The best weight and the best multipliers of these, those of the exponent 1 or inf beyond, and those on the way back from there:
    norms next to it differ from it by little, and float64 loses their powers."""
    limit, best = type(norm)(1.0 if norm.p < 2 else np.inf), Certificate(pairs, norm)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    near = _found(pairs, limit, gap, shortest)
    back = solve(pairs, norm, *_program(norm), gap / 30, near) if near.gap < np.inf else near
    known = [one for one in (found, near, back) if one.gap < np.inf]
    widths = [best.offer(one.weight, pairs.margins(one.weight), one.multipliers) for one in known]
    return Found(best.weight, best.multipliers, min(widths, default=np.inf))


def _misfit(shape: tuple[int, ...], norm: object) -> tuple[str, str] | None:
    """What a norm of weights of this shape must be, and what this one is instead; None where it is one."""
    match norm:
        case WeightedL2() if norm.scales.shape != shape:
            return f"with scales of shape {shape}", f"shape {norm.scales.shape}"
        case Schatten() | Hybrid() if len(shape) != 2:
            return f"one of weights of shape {shape}", f"{norm.name}, a norm of matrices"
        case Hybrid() if norm.columns != shape[1]:
            return f"of blocks with {shape[1]} columns together", f"{norm.name} of {norm.columns} columns"
        case Hybrid() if odd := [one.name for one, count in norm.blocks if _block(one, count) is None]:
            return "made of blocks of Linf() and Spectral()", f"a block of {odd[0]}"
        case L2() | WeightedL2() | Entrywise() | Schatten() | Hybrid():
            return None
    return "a norm such as Linf(), Spectral() or Schatten(3)", kind(norm)


def _pairs(data: Data) -> tuple[Pairs, np.ndarray]:
    """The features of constrained margins as pairs of rank one: those of vectors have one row."""
    active = data.constrained()
    match data:
        case TokenSelection():
            left, inputs = data.differences(), np.asarray(data.queries)
        case Multiclass():
            left, inputs = data.pairs()[0], np.asarray(data.inputs)
        case _ if len(data.weight_shape) != 1:
            wanted = "Multiclass, TokenSelection or with a vector as weight"
            raise ArgumentError("data", "norm_margin", wanted, kind(data))
        case _:
            rows = feature_rows(data, active)
            return Pairs(np.ones((len(rows), 1)), rows, np.arange(len(rows))), active
    sample = np.repeat(np.arange(len(inputs)), len(active) // len(inputs))
    return Pairs(np.asarray(left).reshape(len(active), -1)[active], inputs, sample[active]), active


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the rows."""
    if len(rows) >= 4 * rows.shape[1]:
        rows = np.linalg.qr(rows, mode="r")  # pyright: ignore[reportAssignmentType]
    _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
    return basis[sizes > _RANK * sizes[0]].T


def _block(norm: object, columns: int) -> type[Operator] | type[Box] | None:
    """The ball of a block, where it has one: the length of one column is its operator norm."""
    match norm:
        case L2():
            return Operator if columns == 1 else None
        case Schatten(p=np.inf):
            return Operator
        case Entrywise(p=np.inf):
            return Box
    return None


def _program(norm: Norm) -> tuple[Callable[..., Ball], bool]:
    """The ball of a norm, and whether the weight is in it, or else the pull of the multipliers."""
    if isinstance(norm, Hybrid):
        balls: list[Any] = [_block(*block) for block in norm.blocks]
        parts = lambda u, v: zip(balls, norm.split(u), norm.split(v), strict=True)
        return lambda u, v, room: Columns([b.around(one, two, room) for b, (_, one), (_, two) in parts(u, v)]), True
    of_matrix, p = isinstance(norm, Schatten), getattr(norm, "p", 2.0)
    if p in (1, np.inf):
        return (Operator if of_matrix else Box).around, p == np.inf
    power = max(p, conjugate(p))
    return lambda u, v, room: Smooth(u, power, of_matrix and p != 2), p > 2


def _between(norm: Norm) -> Iterator[Norm]:
    """Norms of exponents between 2 and that of this one, each near the one before, and the norm itself."""
    p = getattr(norm, "p", 2.0)
    last, power = max(p, conjugate(p)), _STRIDE * 2.0
    while 2 < last < np.inf and power < last:
        yield type(norm)(power if p > 2 else conjugate(power))  # pyright: ignore[reportCallIssue]
        power *= _STRIDE
    yield norm


def _certified(data: Data, active: np.ndarray, norm: Norm, weight: np.ndarray, multipliers: np.ndarray) -> Solution:
    dual = placed(multipliers, active)
    found = provable(data, active, Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm))
    if not found.certified:
        warn(
            f"`norm_margin` could not certify its solution in the norm {norm.name}: the optimum lies between {found.bracket.lower:.9g} and "
            f"{found.bracket.upper:.9g}, a relative gap of {found.bracket.gap:.1e} (wanted: {CERTIFIED:.0e}). Verdicts on it are undecided.\n"
            "  Usual causes: inputs that are parallel up to rounding; an exponent p next to 1 or beyond 10.\n"
            "  Fix: remove near-duplicate samples, or take the norm of p = 1 or inf."
        )
    return found


def _weighted(data: Data, norm: WeightedL2) -> Solution:
    """The plain l2 program in features divided by the roots of the scales."""
    active, roots = data.constrained(), np.sqrt(norm.scales)
    rows = feature_rows(data, active) / roots.ravel()
    found = max_margin(Classification(rows, np.ones(len(rows))))
    return _certified(data, active, norm, found.weight.reshape(roots.shape) / roots, found.dual)


def constrained_gap(setting: Setting, weight: object, norm: Norm, decay: float) -> float:
    """How far the loss of a weight of norm at most 1/decay is above the least of such weights, at most, relative to the loss itself.

    Decoupled weight decay minimises the loss under that constraint. The gap of Frank and Wolfe, <grad L, W> + |grad L|_dual / decay, bounds the excess
    of a convex loss; both sides carry the factor L, which is left out, so nothing underflows.

    >>> import penchant as pt
    >>> from penchant.norms import Linf
    >>> setting = pt.Setting(pt.Classification([[2.0, 1.0]], [1]), pt.Direct(), pt.Exponential())
    >>> [round(constrained_gap(setting, [a, a], Linf(), 0.1), 9) for a in (10.0, 9.0)]            # the corner is optimal
    [0.0, 3.0]
    """
    shape = setting.data.weight_shape
    weight = real_array(weight, "weight", "constrained_gap", str(shape), len(shape))
    if weight.shape != shape:
        raise ArgumentError("weight", "constrained_gap", f"of shape {shape}", f"shape {weight.shape}")
    if not 0 < decay < np.inf:
        raise ArgumentError("decay", "constrained_gap", "positive and finite", decay)
    if not decay * (size := norm.value(weight)) <= 1 + _INSIDE:
        raise ArgumentError("weight", "constrained_gap", f"of norm at most {1 / decay:g}", f"norm {size:g}")
    weighing = setting.weigh(margins(setting.data, jnp.asarray(weight)))
    relative = float(jnp.exp(weighing.log_scale - weighing.log_excess))
    pull = np.asarray(adjoint(setting.data, weighing.weights)) * relative
    return norm.dual(pull) / decay - float(np.vdot(pull, weight))
