"""Deep linear networks: the theorem for the user's own data."""

import equinox as eqx

from ...optimisers.layerwise import LayerDescent
from ...optimisers.step_rules import Constant
from ...references.base import Solution
from ...references.support_geometry import support_geometry
from ...theory.base import Hypothesis, Prediction, Theorem
from ...theory.families import layers
from ...theory.families.linear import descends, is_flow, loss_shape, separable

JI = "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019"


def _covers(optimiser: eqx.Module) -> bool:
    return is_flow(optimiser) or isinstance(optimiser, LayerDescent) or descends(optimiser, Constant)


def _hypotheses(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    setting, geometry = asked.setting, support_geometry(asked.setting.data, asked.reference)
    found = (separable(asked.reference), layers.data_norm(setting.data), loss_shape(setting.loss))
    found = (*found, *layers.span(geometry), layers.generic(geometry))
    if is_flow(asked.optimiser):
        return found
    return (*found, layers.smooth_loss(setting), layers.proved_steps(setting, asked.optimiser))


MAX_MARGIN = Theorem(
    "deep-linear-max-margin",
    "On separable data flow and descent on a deep linear network align adjacent layers, and the network converges in direction to the l2 maximum margin.",
    f"{JI}, Theorems 1 to 4",
    layers.DEEP_LINEAR,
    _covers,
    _hypotheses,
)
THEOREMS = (MAX_MARGIN,)
