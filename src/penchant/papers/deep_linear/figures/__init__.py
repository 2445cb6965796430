"""Words that the pages on deep linear networks explain."""

from ....exhibits import DEFINITIONS

WORDS = {
    "-log R": "minus the natural logarithm of the mean risk: the clock in which the laws are powers",
    "ratio": "spectral over Frobenius norm of a layer; 1 means rank one",
    "alignment": "|<v_{k+1}, u_k>|, top right singular vector of a layer with the top left one of the layer below",
    "offset": "the part of the network orthogonal to the maximum margin",
    "excess": "Frobenius norm squared minus spectral norm squared",
    "D": "largest squared Frobenius norm of a layer minus that of the last one, plus the spectral norms of the imbalances W_k W_k' - W_{k+1}' W_{k+1}, at the start",
    "R_0": "the risk of the start",
    "traces": "of a layer: the sum over the steps of the squared step size times the squared gradient norm",
    "violation": "log R after a step minus the log of what the descent inequality promises; negative means that it was kept",
}


def words(*names: str) -> dict[str, str]:
    """The common definitions, and those of these networks that a study needs."""
    return {**DEFINITIONS, **{name: WORDS[name] for name in names}}
