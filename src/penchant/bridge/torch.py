"""The network on which the paper shows that layers align, and the start from which none is larger than another.

PyTorch is an extra (`pip install 'penchant[torch]'`); nothing else of penchant imports it.
"""

from itertools import pairwise

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError


def dense(module: nn.Module) -> tuple[str, ...]:
    """The names of the dense layers of a module."""
    return tuple(name for name, layer in module.named_modules() if isinstance(layer, nn.Linear))


def small_alexnet(width: float = 1.0, hidden: int = 4096, *, seed: int = 0) -> nn.Sequential:
    """AlexNet for 32 x 32 images, dense layers 1024-4096-4096-10; `width` scales the channels, `hidden` the dense layers."""
    for name, value in {"width": width, "hidden": hidden}.items():
        if not value > 0:
            raise ArgumentError(name, "small_alexnet", "positive", value)
    torch.manual_seed(seed)
    sizes = [3, *(max(1, round(width * channels)) for channels in (64, 192, 384, 256, 256))]
    layers: list[nn.Module] = []
    for k, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2 if k == 0 else 1, padding=1), nn.ReLU()]
        if k in (0, 1, 4):
            layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(4 * sizes[-1], hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, 10))


def equalise(module: nn.Module, size: float = 4.0, *, seed: int = 0) -> None:
    """Give every dense layer normal weights of Frobenius norm `size` and no bias, so that no layer starts out larger than another."""
    if not size > 0:
        raise ArgumentError("size", "equalise", "positive", size)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                drawn = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
                layer.weight.copy_(size * drawn / drawn.norm())
                if layer.bias is not None:
                    layer.bias.zero_()
