"""A training loop that records steps, losses and norms."""

import math
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from .torch_networks import GROUPS, Split

_PIECE = 1000  # samples that are looked at together
_STEP = ("batch_loss", "gradient_norm", "step_size", "capped", "displacement")


def group_norms(module: nn.Module) -> dict[str, float]:
    """Frobenius norms of the groups of parameters that `GROUPS` names; what matches none is `other`."""
    squares: dict[str, float] = {}
    for name, parameter in module.named_parameters():
        group = next((g for g, patterns in GROUPS.items() if any(one in name for one in patterns)), "other")
        squares[group] = squares.get(group, 0.0) + float(parameter.detach().double().square().sum())
    return {group: math.sqrt(value) for group, value in squares.items()}


def ready(inputs: torch.Tensor) -> torch.Tensor:
    """What a network reads: bytes are pixels and become numbers in [-1, 1], other integers are words."""
    if inputs.dtype == torch.uint8:
        return inputs.float() / 127.5 - 1
    return inputs if inputs.is_floating_point() else inputs.long()


def train_network(
    module: nn.Module,
    train: Split,
    test: Split,
    optimiser: torch.optim.Optimizer,
    *,
    epochs: int,
    batch: int,
    seed: int = 0,
    measure: Callable[[nn.Module], dict[str, float]] = group_norms,
    look: int | None = None,
) -> dict[str, Any]:
    """Minimise the cross-entropy in shuffled batches; `optimiser` may be any of PyTorch's or of `torch_optimisers`.

    Of every step there are `batch_loss`, `gradient_norm`, `step_size` (multiplier of the gradient; nan where the optimiser does not report it), `capped` and
    `displacement` (norm of the change of all parameters); of every epoch, the first before any step, `train_loss`, `train_accuracy`, `test_accuracy`, and
    `norms` of every group of parameters (`GROUPS`), of at most `look` samples, evenly spread over each set. A run that is not finite ends.
    """
    generator, shown = torch.Generator().manual_seed(seed), (_spread(train, look), _spread(test, look))
    steps, seen = [], [_looked(module, *shown, measure)]
    for _ in range(epochs):
        order = torch.randperm(len(train[1]), generator=generator).to(train[1].device)
        steps += [_step(module, train[0][chosen], train[1][chosen], optimiser) for chosen in order.split(batch)]
        seen.append(_looked(module, *shown, measure))
        if not math.isfinite(seen[-1]["train_loss"]):
            break
    found = dict(zip(_STEP, torch.stack(steps).T.tolist(), strict=True))
    found |= {name: [one[name] for one in seen] for name in seen[0]}
    return found | {"norms": {name: [one[name] for one in found["norms"]] for name in found["norms"][0]}}


def _step(
    module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, optimiser: torch.optim.Optimizer
) -> torch.Tensor:
    """A step, and what is recorded of it; numbers stay on their device."""
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(module(ready(inputs)), labels)
    loss.backward()
    parameters = [one for one in module.parameters() if one.grad is not None]
    size = lambda tensors: torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    before, gradient = [one.detach().clone() for one in parameters], size([one.grad for one in parameters])
    report: dict = optimiser.param_groups[0]
    rest: dict[str, Any] = {"loss": loss.detach()} if "last_step" in report else {}
    optimiser.step(**rest)
    moved = size(torch._foreach_sub([one.detach() for one in parameters], before))
    told = torch.tensor([report.get("last_step", math.nan), report.get("capped", False)])
    return torch.stack([loss.detach(), gradient, *told.to(gradient), moved])


def _spread(split: Split, look: int | None) -> Split:
    every = max(1, math.ceil(len(split[1]) / look)) if look else 1
    return split[0][::every], split[1][::every]


@torch.no_grad()
def _looked(module: nn.Module, train: Split, test: Split, measure: Callable) -> dict[str, Any]:
    outputs = lambda inputs: torch.cat([module(ready(one)) for one in inputs.split(_PIECE)])
    right = lambda scores, labels: float((scores.argmax(1) == labels).double().mean())
    scores = outputs(train[0])
    accuracy = {"train_accuracy": right(scores, train[1]), "test_accuracy": right(outputs(test[0]), test[1])}
    return {"train_loss": float(nn.functional.cross_entropy(scores, train[1])), **accuracy, "norms": measure(module)}
