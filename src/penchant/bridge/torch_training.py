"""A training loop that records steps, losses and norms, and on a CUDA device repeats a recorded step instead of launching it anew."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from .torch_networks import GROUPS, Split
from .torch_optimisers import SPSmax

_PIECE = 1000  # samples that are looked at together
_TOLD = ("batch_loss", "gradient_norm", "step_size", "capped", "displacement")
_WARM = 3  # steps before a graph is recorded, which are taken back


@dataclass
class NetworkRun:
    """Records of a training run.

    Per step: `batch_loss`, `gradient_norm`, `step_size` (multiplier of the gradient; NaN where the optimiser does not report it),
    `capped`, `displacement` (norm of the change of all parameters). Per epoch, the first before any step: `train_loss`,
    `train_accuracy`, `test_accuracy`, and `norms` of every group of parameters (`GROUPS`).
    """

    batch_loss: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    step_size: list[float] = field(default_factory=list)
    capped: list[float] = field(default_factory=list)
    displacement: list[float] = field(default_factory=list)
    train_loss: list[float] = field(default_factory=list)
    train_accuracy: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    norms: dict[str, list[float]] = field(default_factory=dict)


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
    graph: bool = False,
) -> NetworkRun:
    """Minimise the cross-entropy in shuffled batches; `optimiser` may be any of PyTorch's or of `torch_optimisers`.

    Losses and accuracies are those of at most `look` samples, evenly spread over each set; a run that is not finite ends. With `graph` (a CUDA device, an optimiser that
    is `capturable`) the step is recorded once and repeated, and a last, smaller batch is left out.
    """
    run, generator, loop = NetworkRun(), torch.Generator().manual_seed(seed), _Loop(module, train, optimiser)
    shown = _spread(train, look), _spread(test, look)
    if graph:
        loop.capture(batch)
    _record_epoch(run, module, *shown, measure)
    for _ in range(epochs):
        order = torch.randperm(len(train[1]), generator=generator).to(train[1].device)
        told = [loop.step(one) for one in order.split(batch) if len(one) == batch or not graph]
        for name, column in zip(_TOLD, torch.stack(told).T.tolist(), strict=True):
            getattr(run, name).extend(column)
        _record_epoch(run, module, *shown, measure)
        if not math.isfinite(run.train_loss[-1]):
            break
    return run


class _Loop:
    """One step of training, and the same step recorded as a graph."""

    def __init__(self, module: nn.Module, train: Split, optimiser: torch.optim.Optimizer):
        self.module, (self.inputs, self.labels), self.optimiser = module, train, optimiser
        self.parameters = [one for one in module.parameters() if one.requires_grad]
        self.graph: Any = None
        self.chosen: Any = None
        self.told: Any = None

    def step(self, chosen: torch.Tensor) -> torch.Tensor:
        """What a run records of a step, in the order of `_TOLD`."""
        if self.graph is None:
            return self._once(chosen)
        self.chosen.copy_(chosen)
        self.graph.replay()
        return self.told.clone()

    def _once(self, chosen: torch.Tensor) -> torch.Tensor:
        self.optimiser.zero_grad()
        loss = nn.functional.cross_entropy(self.module(ready(self.inputs[chosen])), self.labels[chosen])
        loss.backward()
        before = torch._foreach_add([one.detach() for one in self.parameters], 0.0)
        slopes = [one.grad for one in self.parameters if one.grad is not None]
        gradient = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(slopes)))
        self.optimiser.step(loss=loss.detach()) if isinstance(self.optimiser, SPSmax) else self.optimiser.step()
        moves = torch._foreach_sub([one.detach() for one in self.parameters], before)
        moved = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(moves)))
        report: dict = self.optimiser.param_groups[0]
        rest = [report.get("last_step", math.nan), report.get("capped", False)]
        number = lambda x: x.float() if isinstance(x, torch.Tensor) else torch.full_like(gradient, float(x))
        return torch.stack([number(one) for one in (loss.detach(), gradient, *rest, moved)])

    def capture(self, batch: int) -> None:
        """Record the step, after a few that are taken back: they make the optimiser's memory, which the graph then keeps using."""
        kept = [one.detach().clone() for one in self.parameters]
        self.chosen = torch.zeros(batch, dtype=torch.long, device=self.labels.device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM):
                self._once(self.chosen)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        self.optimiser.zero_grad()
        with torch.cuda.graph(self.graph):
            self.told = self._once(self.chosen)
        with torch.no_grad():
            torch._foreach_copy_([*self.parameters], kept)
            memories = [one for state in self.optimiser.state.values() for one in state.values()]
            for memory in memories:
                if isinstance(memory, torch.Tensor):
                    memory.zero_()


def _spread(split: Split, look: int | None) -> Split:
    every = max(1, math.ceil(len(split[1]) / look)) if look else 1
    return split[0][::every], split[1][::every]


@torch.no_grad()
def _record_epoch(run: NetworkRun, module: nn.Module, train: Split, test: Split, measure: Callable) -> None:
    outputs = lambda inputs: torch.cat([module(ready(one)) for one in inputs.split(_PIECE)])
    scores, labels = outputs(train[0]), train[1]
    right = lambda found, wanted: float((found.argmax(1) == wanted).double().mean())
    run.train_loss.append(float(nn.functional.cross_entropy(scores, labels)))
    run.train_accuracy.append(right(scores, labels))
    run.test_accuracy.append(right(outputs(test[0]), test[1]))
    for name, norm in measure(module).items():
        run.norms.setdefault(name, []).append(norm)
