"""How aligned the layers of a deep linear network are, without cancellation: small numbers are computed as small numbers."""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError
from ..settings.deep_linear import imbalance_constant, imbalances
from ..training.trajectory import Trajectory

_GAP = 1e-8  # relative gap of the top two singular values below which the top singular vectors are not defined


class Alignment(eqx.Module):
    """Layers k = 1..L and, between layers k and k+1, k = 1..L-1; a leading axis of records where it describes a run.

    `frobenius` and `spectral` norms; `deficit` = 1 - spectral/frobenius; `excess` = frobenius^2 - spectral^2; `misfit` =
    1 - |<v_{k+1}, u_k>| with its `sign`; `defined` says where the top singular vectors are unique; `product` =
    1 - |W_L...W_1| / (product of the Frobenius norms); `first` is v_1, the direction the first layer reads.
    """

    frobenius: np.ndarray
    spectral: np.ndarray
    deficit: np.ndarray
    excess: np.ndarray
    misfit: np.ndarray
    sign: np.ndarray
    defined: np.ndarray
    product: np.ndarray
    first: np.ndarray


def alignment(layers: Sequence[ArrayLike]) -> Alignment:
    """The alignment of one set of layers.

    >>> one = alignment([np.diag([1.0, 1e-10]), np.array([[2.0, 0.0]])])
    >>> one.deficit.tolist(), one.misfit.tolist()
    ([5...e-21, 0.0], [0.0])
    """
    matrices = [np.asarray(layer, float) for layer in layers]
    parts = [np.linalg.svd(matrix, full_matrices=False) for matrix in matrices]
    spectral = np.array([values[0] for _, values, _ in parts])
    excess = np.array([np.sum(values[1:] ** 2) for _, values, _ in parts])
    frobenius = np.sqrt(spectral**2 + excess)
    gaps = np.array([values[0] - (values[1] if len(values) > 1 else 0.0) for _, values, _ in parts])
    misfit, sign = [], []
    for (left, _, _), (_, _, right) in pairwise(parts):
        u, v = left[:, 0], right[0]
        sign.append(1.0 if u @ v >= 0 else -1.0)
        misfit.append(0.5 * np.sum((u - sign[-1] * v) ** 2))
    product = np.linalg.norm(np.linalg.multi_dot(matrices[::-1]) if len(matrices) > 1 else matrices[0])
    with np.errstate(invalid="ignore", divide="ignore"):
        deficit = excess / (frobenius * (frobenius + spectral))
        shortfall = 1 - product / np.prod(frobenius)
    pairs, defined, first = (np.array(misfit), np.array(sign)), gaps >= _GAP * spectral, parts[0][2][0]
    return Alignment(frobenius, spectral, deficit, excess, *pairs, defined, np.asarray(shortfall), first)


def _layers(run: Trajectory, record: int) -> list[np.ndarray]:
    """The layers of a record as they are kept, which no device need see."""
    return [leaf[record] for leaf in run.params]


def alignments(run: Trajectory) -> Alignment:
    """The alignment at every record of a run."""
    found = [alignment(_layers(run, k)) for k in range(len(run))]
    return Alignment(*(np.stack([getattr(one, name) for one in found]) for name in Alignment.__dataclass_fields__))


def conservation_drift(run: Trajectory) -> np.ndarray:
    """Largest spectral norm of the change of an imbalance since the first record, at every record; 0 for one layer."""
    start, at = imbalances(_layers(run, 0)), lambda k: imbalances(_layers(run, k))
    change = lambda k: [np.linalg.norm(now - then, 2) for now, then in zip(at(k), start, strict=True)]
    return np.array([max(change(k), default=0.0) for k in range(len(run))])


def clock_error(run: Trajectory) -> float:
    """What log R has lost at the end of a flow in the clock `RelativeDrop`, minus what the clock says: its global error, for free."""
    clock = run.header["optimiser"].get("clock", {})
    if clock.get("kind") != "RelativeDrop":
        raise ArgumentError("run", "clock_error", "a flow in the clock RelativeDrop()", clock.get("kind", "no flow"))
    lost = float(run.log_excess[0] - run.log_excess[-1])
    return lost - float(np.expm1(run.header["integrator"]["clock"]))


class AlignmentLimits(eqx.Module):
    """What the conserved matrices predict: limits of the excess (layers 1..L-1) and of spectral^4 (1 - <v_{k+1}, u_k>^2)."""

    excess: np.ndarray
    misfit: np.ndarray


def alignment_limits(start: Sequence[ArrayLike], end: Sequence[ArrayLike]) -> AlignmentLimits:
    """The limits, from the imbalances of the start and the top left singular vectors u_k of a late point."""
    lost, scaled = [], []
    for matrix, layer in zip(imbalances(start), end[:-1], strict=True):
        u = np.linalg.svd(np.asarray(layer))[0][:, 0]
        image = matrix @ u
        lost.append(np.trace(matrix) - u @ image)
        scaled.append(np.sum((image - (u @ image) * u) ** 2))
    return AlignmentLimits(np.cumsum(lost[::-1])[::-1], np.array(scaled))


def alignment_floor(
    layers: Sequence[ArrayLike], start: Sequence[ArrayLike], traces: np.ndarray | None = None
) -> np.ndarray:
    """Lemmas 2 and 8: lower bounds on <v_{k+1}, u_k>^2 at `layers`; `traces` are those of descent, none for the flow."""
    top = [float(np.linalg.norm(np.asarray(layer), 2)) ** 2 for layer in start]
    now = [float(np.linalg.norm(np.asarray(layer), 2)) ** 2 for layer in layers]
    if traces is not None and len(traces) < len(now) - 1:
        raise ArgumentError("traces", "alignment_floor", f"one per pair of layers ({len(now) - 1})", len(traces))
    extra = np.zeros(len(now)) if traces is None else np.cumsum(np.asarray(traces)[::-1])[::-1]
    constant = imbalance_constant(start)
    return np.array([1 - (constant + extra[k] + top[k + 1] + top[k]) / now[k + 1] for k in range(len(now) - 1)])


class BoundSlack(eqx.Module):
    """What Lemma 2 (flow) or Lemma 8 (descent) leaves at every record; negative where the bound is broken.

    `excess` is D, plus the traces of descent of layers k to L - 1, minus the excess, the least over the layers; `alignment` is <v_{k+1}, u_k>^2 minus its
    lower bound, the least over the pairs of layers (nan for one layer, which has no pair).
    """

    excess: np.ndarray
    alignment: np.ndarray


def bound_slack(run: Trajectory, found: Alignment | None = None) -> BoundSlack:
    """The slack of the bounds on excess and alignment along a run; the traces of descent are read from its account."""
    found, start = alignments(run) if found is None else found, run.at(0)
    traces = (run.account or {}).get("traces", np.zeros_like(found.excess))
    gained = np.cumsum(traces[:, ::-1], axis=1)[:, ::-1] - traces[:, -1:]
    if not found.misfit.shape[1]:
        aligned = np.full(len(run), np.nan)
    else:
        floors = np.stack([alignment_floor(_layers(run, k), start, traces[k]) for k in range(len(run))])
        aligned = np.min((1 - found.misfit) ** 2 - floors, axis=1)
    return BoundSlack(np.min(imbalance_constant(start) + gained - found.excess, axis=1), aligned)


def sandwich(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """Bounds min_i <w, z_i>/|w| <= best margin <= |sum q_i z_i| at every record, with q the normalised weights of the run."""
    signed = np.asarray(run.setting.data.signed)
    sizes = np.array([np.linalg.norm(run.weight(k)) for k in range(len(run))])
    shares = run.weights / run.weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = run.smallest_margin() / sizes
    return lower, np.linalg.norm(shares @ signed, axis=1)


def sine(vector: object, unit: object) -> float:
    """Sine of the angle to a unit vector, up to sign, from the part orthogonal to it."""
    whole, axis = np.asarray(vector, float), np.asarray(unit, float)
    return float(np.linalg.norm(whole - (whole @ axis) * axis) / np.linalg.norm(whole))
