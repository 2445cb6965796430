"""Claims on the flow as mirror descent, for plain weights, squares, signed squares and in depth: optimal at all times, equal decrease."""

from collections.abc import Callable

import numpy as np

from ...flow.mirror import DualPath, follow_dual
from ...lab import Lab, claim, recipe
from ...references.interpolation import minimum_norm, minimum_potential
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.parametrisations import Direct
from ...settings.potentials import AbstractPotential, Entropy
from ...settings.power_models import SignedPowers
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares, Squares
from ...theory.interpolants import distance
from ...verdict import Verdict, all_of, at_most
from .evidence import DERIVED

_D, _SCALE = 25, 0.7  # a loss scale kappa that is not 1, so that it is seen
MODELS: dict[str, tuple[Callable[[], object], bool]] = {  # and whether the start is a random one
    "plain weights": (Direct, True),
    "squares": (lambda: Squares(0.3), True),
    "signed squares": (lambda: SignedSquares(0.3), True),
    "depth 3": (lambda: SignedPowers(0.4, 3), False),
}


@recipe
def _data(lab: Lab) -> tuple[Regression, np.ndarray]:
    """Nonnegative signals, so that squares can interpolate too."""
    return sparse_regression(10, _D, 2, 3, signed=False)


def _start(setting: Setting, random: bool) -> np.ndarray:
    """The start of the setting, or one with a shape of its own."""
    usual = np.asarray(setting.start())
    rng = np.random.default_rng(7)
    return usual + rng.uniform(0.05, 0.5, usual.shape) if random else usual


@recipe
def _flow(lab: Lab, name: str) -> tuple[AbstractPotential, DualPath]:
    make, random = MODELS[name]
    setting = Setting(_data(lab)[0], make(), Squared(_SCALE), "sum")
    start = _start(setting, random)
    return setting.parametrisation.potential(start), follow_dual(setting, start, tolerance=1e-8)


@claim(
    "mirror/equal-decrease",
    "Along the flow the divergence to every interpolant falls at the same rate, c kappa |r|^2: c = 1 for plain weights, 4 for squares and signed squares, D^2 alpha^(D-2) at depth D.",
    DERIVED,
    kind="ours",
    slow=True,
)
def equal_decrease(lab: Lab, planted: bool) -> Verdict:
    """The divergence to two interpolants falls by c kappa times the integral of |r|^2; planted: the second does not interpolate."""
    data, sparse = _data(lab)
    other = minimum_potential(data, Entropy(np.zeros(_D))).weight * (1.1 if planted else 1.0)
    return all_of(*(_decrease(lab, name, {"the sparse one": sparse, "a dense one": other}) for name in MODELS))


def _decrease(lab: Lab, name: str, targets: dict[str, np.ndarray]) -> Verdict:
    potential, path = _flow(lab, name)
    data, inputs = _data(lab)[0], np.asarray(_data(lab)[0].inputs)

    def divergence(target: np.ndarray, dual: np.ndarray) -> float:
        """D(target, theta) by Fenchel: psi(target) + psi*(s) - <s, target>."""
        pull = dual @ inputs
        return potential.value(target) + potential.conjugate(pull) - float(pull @ target)

    time = np.exp(path.log_time[1:])
    residuals = [inputs @ potential.link(dual @ inputs) - np.asarray(data.targets) for dual in path.dual[1:]]
    square = potential.rate * _SCALE * np.array([(residual**2).sum() for residual in residuals])
    fallen = np.concatenate([[0.0], np.cumsum(np.diff(time) * (square[1:] + square[:-1]) / 2)])  # trapezoidal rule
    worst = 0.0
    for target in targets.values():
        series = np.array([divergence(target, dual) for dual in path.dual[1:]])
        worst = max(worst, float(np.abs(series[0] - series - fallen).max() / series[0]))
    words = " and ".join(targets)
    return at_most(worst, 1e-3, f"{name}: relative error of the predicted fall of the divergence to {words}")


@claim(
    "mirror/optimal-at-all-times",
    "At every time theta(t) minimises the potential among the weights with the same predictions: for plain weights, squares, signed squares and at depth 3.",
    DERIVED,
    kind="ours",
    slow=True,
)
def optimal_at_all_times(lab: Lab, planted: bool) -> Verdict:
    """theta(t) = arg min of the potential subject to X theta = X theta(t), at five times; planted: arg min of the l2 norm."""
    inputs, checks = np.asarray(_data(lab)[0].inputs), []
    for name in MODELS:
        potential, path = _flow(lab, name)
        records = np.linspace(1, len(path.dual) - 1, 7).astype(int)[1:-1]
        worst = 0.0
        for dual in path.dual[records]:
            weight = potential.link(dual @ inputs)
            partial = Regression(inputs, inputs @ weight)
            found = minimum_norm(partial) if planted else minimum_potential(partial, potential)
            worst = max(worst, distance(found.weight, weight))
        checks.append(
            at_most(worst, 1e-9, f"{name}: largest relative distance between theta(t) and the minimiser on its fibre")
        )
    return all_of(*checks)
