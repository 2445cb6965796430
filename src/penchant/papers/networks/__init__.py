"""Homogeneous networks: normalised margins rise along the flow, and directions turn to points of Karush, Kuhn and Tucker, which need not be optimal."""

from ...lab import Paper

LYU = "Lyu, Li, Gradient descent maximizes the margin of homogeneous neural networks, ICLR 2020, arXiv 1906.05890"
PAPER = Paper("networks", LYU, __name__, (), ("claims",), ())
