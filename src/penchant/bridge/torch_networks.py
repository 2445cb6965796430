"""Real networks under the step rules of the theory: a small vision transformer, and a training loop that records steps and norms."""

import math
from collections.abc import Callable

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError, MissingExtra
from .torch_optimisers import SPSmax

Split = tuple[torch.Tensor, torch.Tensor]
# Groups of a transformer by the names of its parameters, the first that matches.
GROUPS = {
    "normalisation": ("norm",),
    "query and key": ("query", "key"),
    "value and output": ("value", "output"),
    "perceptron": ("perceptron",),
    "embedding": ("embedding", "position"),
    "head": ("head",),
}


class Attention(nn.Module):
    """Softmax attention with several heads; query, key, value and output are layers of their own, so that their norms can be told apart."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        split = lambda x: x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        query, key, value = (split(layer(tokens)) for layer in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then a perceptron, each on normalised tokens and added to them."""

    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.perceptron = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.attention(self.first_norm(tokens))
        return tokens + self.perceptron(self.second_norm(tokens))


class VisionTransformer(nn.Module):
    """Transformer on square patches of square images, read out from the mean over patches.

    >>> network = VisionTransformer(side=8, patch=2, width=32, depth=2, heads=2)
    >>> network(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        side: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        *,
        hidden: int | None = None,
        channels: int = 1,
        classes: int = 10,
        seed: int = 0,
    ):
        super().__init__()
        if side % patch:
            raise ArgumentError("patch", "VisionTransformer", f"a divisor of the side {side}", patch)
        if width % heads:
            raise ArgumentError("heads", "VisionTransformer", f"a divisor of the width {width}", heads)
        torch.manual_seed(seed)
        self.embedding = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(0.02 * torch.randn((side // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden or 2 * width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.embedding(images).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(1))


def digits(train: int = 1400, *, seed: int = 0) -> tuple[Split, Split]:
    """The 1797 handwritten digits of scikit-learn as 8 x 8 images of entries in [-1, 1], split at random into two sets."""
    try:
        from .sklearn import digit_images
    except ImportError:
        raise MissingExtra("test", "The images of `digits`") from None
    pixels, targets = digit_images()
    images, labels = torch.tensor(pixels[:, None] / 8.0 - 1, dtype=torch.float32), torch.tensor(targets)
    if not 1 <= train < len(labels):
        raise ArgumentError("train", "digits", f"between 1 and {len(labels) - 1}", train)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    first, second = order[:train], order[train:]
    return (images[first], labels[first]), (images[second], labels[second])


class NetworkRun:
    """Records of a training run.

    Per step: `batch_loss`, `gradient_norm`, `step_size` (multiplier of the gradient; NaN where the optimiser does not report it),
    `capped`, `displacement` (norm of the change of all parameters). Per epoch, the first before any step: `train_loss`,
    `train_accuracy`, `test_accuracy`, and `norms` of every group of parameters (`GROUPS`).
    """

    def __init__(self) -> None:
        self.batch_loss: list[float] = []
        self.gradient_norm: list[float] = []
        self.step_size: list[float] = []
        self.capped: list[bool] = []
        self.displacement: list[float] = []
        self.train_loss: list[float] = []
        self.train_accuracy: list[float] = []
        self.test_accuracy: list[float] = []
        self.norms: dict[str, list[float]] = {}

    def ratios(self) -> dict[str, np.ndarray]:
        """Norm of every group over its norm before training."""
        return {name: np.array(values) / values[0] for name, values in self.norms.items()}


def group_norms(module: nn.Module) -> dict[str, float]:
    """Frobenius norms of the groups of parameters that `GROUPS` names; what matches none is `other`."""
    squares: dict[str, float] = {}
    for name, parameter in module.named_parameters():
        group = next((g for g, patterns in GROUPS.items() if any(one in name for one in patterns)), "other")
        squares[group] = squares.get(group, 0.0) + float(parameter.detach().double().square().sum())
    return {group: math.sqrt(value) for group, value in squares.items()}


def train_network(
    module: nn.Module,
    train: Split,
    test: Split,
    optimiser: torch.optim.Optimizer,
    *,
    epochs: int,
    batch: int,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> NetworkRun:
    """Minimise the cross-entropy in shuffled batches; `optimiser` may be any of PyTorch's or of `torch_optimisers`."""
    run, generator = NetworkRun(), torch.Generator().manual_seed(seed)
    images, labels = train
    _record_epoch(run, module, train, test)
    for epoch in range(epochs):
        for chosen in torch.randperm(len(labels), generator=generator).split(batch):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(module(images[chosen]), labels[chosen])
            loss.backward()
            _record_step(run, module, optimiser, loss)
        _record_epoch(run, module, train, test)
        progress(f"epoch {epoch + 1} of {epochs}: train loss {run.train_loss[-1]:.4f}")
    return run


def _record_step(run: NetworkRun, module: nn.Module, optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    parameters = [p for p in module.parameters() if p.grad is not None]
    before = [p.detach().clone() for p in parameters]
    gradient = math.hypot(*(float(torch.linalg.vector_norm(p.grad)) for p in parameters if p.grad is not None))
    if isinstance(optimiser, SPSmax):
        optimiser.step(loss=loss.detach())
    else:
        optimiser.step()
    moved = math.hypot(*(float((p.detach() - old).norm()) for p, old in zip(parameters, before, strict=True)))
    report: dict = optimiser.param_groups[0]
    run.batch_loss.append(float(loss.detach()))
    run.gradient_norm.append(gradient)
    run.step_size.append(float(report.get("last_step", math.nan)))
    run.capped.append(bool(report.get("capped", False)))
    run.displacement.append(moved)


@torch.no_grad()
def _record_epoch(run: NetworkRun, module: nn.Module, train: Split, test: Split) -> None:
    scores, labels = module(train[0]), train[1]
    right = lambda found, wanted: float((found.argmax(1) == wanted).double().mean())
    run.train_loss.append(float(nn.functional.cross_entropy(scores, labels)))
    run.train_accuracy.append(right(scores, labels))
    run.test_accuracy.append(right(module(test[0]), test[1]))
    for name, norm in group_norms(module).items():
        run.norms.setdefault(name, []).append(norm)
