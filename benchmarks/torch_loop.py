"""The peer of the training loops: softmax attention in eager PyTorch, float64, gradients by autograd.

Written leanly (no module, no optimiser object, nothing recorded), which is kinder to PyTorch than the published loops are.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Attention:
    """Tokens, queries and scores as tensors, and the mean logistic loss of a weight."""

    def __init__(self, data: Any):
        self.tokens, self.queries, self.scores = (
            torch.tensor(np.asarray(array)) for array in (data.tokens, data.queries, data.scores)
        )
        self.infimum = torch.nn.functional.softplus(-self.scores.max(dim=1).values).mean()

    def loss(self, weight: torch.Tensor) -> torch.Tensor:
        logits = (self.tokens @ (self.queries @ weight.T).unsqueeze(-1)).squeeze(-1)
        margins = (torch.softmax(logits, dim=1) * self.scores).sum(dim=1)
        return torch.nn.functional.softplus(-margins).mean()


def gradient_descent(step: float) -> Update:
    return lambda gradient, excess, velocity: step * gradient


def normalised_descent(length: float) -> Update:
    return lambda gradient, excess, velocity: gradient * (length / gradient.norm())


def momentum(length: float, beta: float = 0.9) -> Update:
    return lambda gradient, excess, velocity: velocity.mul_(beta).add_(gradient * (length / gradient.norm()))


def polyak() -> Update:
    return lambda gradient, excess, velocity: gradient * (excess / gradient.square().sum())


def descend(problem: Attention, update: Update, steps: int, start: np.ndarray) -> np.ndarray:
    """The weight after `steps` steps from `start`."""
    weight = torch.tensor(start, requires_grad=True)
    velocity = torch.zeros_like(weight)
    for _ in range(steps):
        loss = problem.loss(weight)
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= update(gradient, loss - problem.infimum, velocity)
    return weight.detach().numpy()
