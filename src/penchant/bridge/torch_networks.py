"""AlexNet, and the start from which no layer is larger than another; transformers whose queries, keys, values and outputs are layers of their own: a vision transformer and a pretrained encoder of text."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError, MissingExtra

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


def equalise(module: nn.Module, *, seed: int = 0) -> None:
    """Give every dense layer normal weights of Frobenius norm 4 and no bias, so that no layer starts out larger than another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        layers: dict[str, Any] = dict(module.named_modules())
        for layer in map(layers.__getitem__, dense(module)):
            drawn = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
            layer.weight.copy_(4.0 * drawn / drawn.norm())
            if layer.bias is not None:
                layer.bias.zero_()


class Attention(nn.Module):
    """Softmax attention with several heads; query, key, value and output are layers of their own, so that their norms can be told apart.

    `local`: no token attends to itself, and the temperature is learned, as in vision transformers for small data.
    """

    itself: torch.Tensor | None

    def __init__(self, width: int, heads: int, tokens: int = 0, *, local: bool = False):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.temperature = nn.Parameter(torch.ones(())) if local else None
        self.register_buffer("itself", -1e9 * torch.eye(tokens) if local else None, persistent=False)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        split = lambda x: x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        query, key, value = (split(layer(tokens)) for layer in (self.query, self.key, self.value))
        query = query if self.temperature is None else query * self.temperature
        mask = self.itself if self.temperature is not None else mask
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then a perceptron, each added to its tokens; these are normalised before, or with `after` once both are added."""

    def __init__(
        self, width: int, heads: int, hidden: int, *, tokens: int = 0, local: bool = False, after: bool = False
    ):
        super().__init__()
        tiny = 1e-12 if after else 1e-5  # of the pretrained encoder, of PyTorch
        self.first_norm, self.second_norm = nn.LayerNorm(width, tiny), nn.LayerNorm(width, tiny)
        self.attention, self.after = Attention(width, heads, tokens, local=local), after
        self.perceptron = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.after:
            tokens = self.first_norm(tokens + self.attention(tokens, mask))
            return self.second_norm(tokens + self.perceptron(tokens))
        tokens = tokens + self.attention(self.first_norm(tokens), mask)
        return tokens + self.perceptron(self.second_norm(tokens))


class VisionTransformer(nn.Module):
    """Transformer on square patches of square images, read out from the mean over patches.

    With `small_data` patches come with four copies of the image, shifted by half a patch along the diagonals, and attention is local.

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
        small_data: bool = False,
        seed: int = 0,
    ):
        super().__init__()
        if side % patch:
            raise ArgumentError("patch", "VisionTransformer", f"a divisor of the side {side}", patch)
        if width % heads:
            raise ArgumentError("heads", "VisionTransformer", f"a divisor of the width {width}", heads)
        torch.manual_seed(seed)
        self.shift, count = patch // 2 if small_data else 0, (side // patch) ** 2
        self.embedding = nn.Conv2d(5 * channels if small_data else channels, width, patch, stride=patch)
        self.position = nn.Parameter(0.02 * torch.randn(count, width))
        options = {"tokens": count, "local": small_data}
        self.blocks = nn.Sequential(*(Block(width, heads, hidden or 2 * width, **options) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.shift:
            padded, (h, w), s = nn.functional.pad(images, [self.shift] * 4), images.shape[-2:], 2 * self.shift
            images = torch.cat([images, *(padded[..., a : a + h, b : b + w] for a in (0, s) for b in (0, s))], 1)
        tokens = self.embedding(images).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(1))


class Encoder(nn.Module):
    """The encoder of `penchant.data.load("minilm")`, read out from the mean over tokens by a new head; padding is token 0."""

    def __init__(self, weights: Mapping[str, np.ndarray], classes: int = 2, *, heads: int = 12, seed: int = 0):
        super().__init__()
        (words, width), places = (weights[f"embeddings.{one}_embeddings.weight"].shape for one in ("word", "position"))
        hidden = len(weights["encoder.layer.0.intermediate.dense.bias"])
        depth = sum(name.endswith("intermediate.dense.bias") for name in weights)
        torch.manual_seed(seed)
        self.embedding, self.position = nn.Embedding(words, width), nn.Parameter(torch.zeros(places))
        self.first_norm = nn.LayerNorm(width, 1e-12)
        made = [Block(width, heads, hidden, after=True) for _ in range(depth)]
        self.blocks = nn.ModuleList(made)
        self.head = nn.Linear(width, classes)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self._take(weights, made)

    @torch.no_grad()
    def _take(self, weights: Mapping[str, np.ndarray], blocks: list[Block]) -> None:
        take = lambda target, name: target.copy_(torch.from_numpy(np.array(weights[name], np.float32)))
        take(self.embedding.weight, "embeddings.word_embeddings.weight")
        take(self.position, "embeddings.position_embeddings.weight")
        self.position += torch.from_numpy(np.array(weights["embeddings.token_type_embeddings.weight"][0], np.float32))
        pairs: list[tuple[Any, str]] = [(self.first_norm, "embeddings.LayerNorm")]
        for k, block in enumerate(blocks):
            stem = f"encoder.layer.{k}."
            parts = (block.attention.query, block.attention.key, block.attention.value, block.attention.output)
            names = [f"attention.{one}" for one in ("self.query", "self.key", "self.value", "output.dense")]
            parts += (block.first_norm, block.perceptron[0], block.perceptron[2], block.second_norm)
            names += ["attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"]
            pairs += [(part, stem + name) for part, name in zip(parts, names, strict=True)]
        for part, name in pairs:
            take(part.weight, f"{name}.weight")
            take(part.bias, f"{name}.bias")

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        there = (words != 0).unsqueeze(-1)
        mask = torch.where(there.transpose(1, 2).unsqueeze(1), 0.0, -1e9)
        tokens = self.first_norm(self.embedding(words) + self.position[: words.shape[1]])
        for block in self.blocks:
            tokens = block(tokens, mask)
        return self.head((tokens * there).sum(1) / there.sum(1))


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
