"""Claims on l1 solutions that are not unique: which point of their face small starts select, for squares and in depth."""

import numpy as np

from ...lab import Lab, claim, recipe
from ...references.interpolation import minimum_norm, potential_path
from ...references.l1_uniqueness import entropic_sparse, sparse_face
from ...settings.potentials import Entropy, q_alpha
from ...settings.power_models import PowerEntropy
from ...settings.regression import Regression
from ...theory.interpolants import distance
from ...verdict import Verdict, all_of, at_least, at_most
from .evidence import DERIVED

_N, _FACE, _D = 4, 7, 14
_DEPTHS = {3: 1e-3, 4: 1e-2}  # with starts that float64 resolves


@recipe
def face_problem(lab: Lab, nonnegative: bool = False) -> Regression:
    """Four samples whose first row is a dual solution: seven columns touch its bound, so that the l1 solutions have three dimensions."""
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((_N, _D))
    signs = np.ones(_D) if nonnegative else rng.choice([-1.0, 1.0], _D)
    inputs[0] = np.where(np.arange(_D) < _FACE, signs, rng.uniform(-0.6, 0.6, _D))
    weight = np.where(np.arange(_D) < _FACE, signs * rng.uniform(0.05, 1.5, _D), 0.0)
    return Regression(inputs, inputs @ weight)


def _columns(data: Regression) -> tuple[np.ndarray, np.ndarray]:
    face = sparse_face(data)
    return np.asarray(data.inputs)[:, face != 0] * face[face != 0], face


@claim(
    "q-alpha/largest-entropy",
    "Where the least l1 norm is attained on a face, vanishing starts of squares and signed squares select its point of largest entropy.",
    DERIVED,
    kind="ours",
)
def largest_entropy(lab: Lab, planted: bool) -> Verdict:
    """Q_alpha and KL at alpha = 1e-6 against the point of largest entropy; planted: the point of least l2 norm on the face."""
    checks = []
    for name, nonnegative in (("Q_alpha", False), ("KL", True)):
        data = face_problem(lab, nonnegative)
        potential = Entropy(np.zeros(_D)) if nonnegative else q_alpha(1.0, _D)
        found = potential_path(data, potential, (np.log(1e-6),))[0].weight
        predicted = entropic_sparse(data, nonnegative=nonnegative)
        columns, face = _columns(data)
        short = np.zeros(_D)
        short[face != 0] = minimum_norm(Regression(columns, data.targets)).weight
        target = short * face if planted else predicted.weight
        checks += [
            at_most(abs(predicted.bracket.gap), 1e-12, f"{name}: certified gap of that point as an l1 solution"),
            at_least(distance(short * face, predicted.weight), 0.01, f"{name}: distance of the point of least l2 norm"),
            at_most(distance(found, target), 1e-4, f"{name}: relative distance to the predicted point at alpha = 1e-6"),
        ]
    return all_of(*checks)


@claim(
    "depth/face",
    "At depth D >= 3 vanishing starts select the point of that face with the largest sum of |theta|^(2/D).",
    DERIVED,
    kind="ours",
)
def deeper_face(lab: Lab, planted: bool) -> Verdict:
    """Stationarity of sum |theta|^(2/D) on the face: its gradient lies in the span of the samples; planted: that of the entropy."""
    data = face_problem(lab)
    columns, face = _columns(data)
    span = np.linalg.pinv(columns) @ columns
    checks = []
    for depth, alpha in _DEPTHS.items():
        found = potential_path(data, PowerEntropy(np.zeros(_D), depth), (np.log(alpha),))[0].weight
        sizes = np.abs(found[face != 0])
        slope = np.log(sizes) if planted else sizes ** (2 / depth - 1)
        text = f"depth {depth}, alpha = {alpha:g}: part of the gradient outside the span of the samples"
        checks.append(at_most(distance(span @ slope, slope), 1e-6, text))
        checks.append(at_most(float(np.abs(found[face == 0]).max()), 1e-5, "largest coefficient off the face"))
    return all_of(*checks)
