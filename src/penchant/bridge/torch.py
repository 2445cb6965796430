"""Layers of a PyTorch network as they align: a probe for dense layers, and the network and images on which the paper shows it.

PyTorch is an extra (`pip install 'penchant[torch]'`); nothing else of penchant imports it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from scipy.sparse.linalg import svds
from torch import nn  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError

_EXACT = 1_000_000  # entries below which all singular values are cheaper than a careful iteration for the largest
_TOLERANCE = 1e-6


class SpectralProbe:
    """Frobenius and spectral norms of every dense layer of a module, recorded on demand together with the loss.

    After some records `frobenius`, `spectral` and `ratio` (spectral over Frobenius: 1 means rank one) have one row per record
    and one column per layer; `differences` are |W_k|^2 - |W_{k+1}|^2 in Frobenius norms, which a gradient flow on
    homogeneous layers without biases conserves; `floor` is the smallest ratio that a layer of its shape can have.

    >>> probe = SpectralProbe(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    >>> probe.record(0.5)
    >>> probe.names, probe.floor.round(4).tolist(), probe.ratio.shape
    (('0', '2'), [0.5774, 0.7071], (1, 2))
    """

    def __init__(self, module: nn.Module):
        found = {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
        if not found:
            raise ArgumentError("module", "SpectralProbe", "a module with dense layers", type(module).__name__)
        self.names, self._layers = tuple(found), tuple(found.values())
        self.losses: list[float] = []
        self._frobenius: list[list[float]] = []
        self._spectral: list[list[float]] = []
        self._warm: list[np.ndarray | None] = [None] * len(found)

    def record(self, loss: float) -> None:
        """Note the norms as they are now, with the loss the caller measured."""
        matrices = [layer.weight.detach().double().cpu().numpy() for layer in self._layers]
        for name, matrix in zip(self.names, matrices, strict=True):
            if not np.isfinite(matrix).all():
                raise ArgumentError(
                    "module", "SpectralProbe", "of finite weights", f"{name} that is not", "a smaller learning rate"
                )
        self.losses.append(float(loss))
        self._frobenius.append([float(np.linalg.norm(matrix)) for matrix in matrices])
        self._spectral.append([self._largest(k, matrix) for k, matrix in enumerate(matrices)])

    def _largest(self, k: int, matrix: np.ndarray) -> float:
        """The spectral norm; large layers start from the singular vector of the last record, which hardly turns between two.

        Lanczos and not the power method: the top singular values of a random matrix crowd, and there a power iteration stops
        changing long before it has converged.
        """
        if matrix.size < _EXACT or min(matrix.shape) < 3:
            return float(np.linalg.norm(matrix, 2))
        warm = self._warm[k]
        start = np.ones(min(matrix.shape)) if warm is None else warm
        left, values, right = svds(matrix, k=1, v0=start, tol=_TOLERANCE)  # pyright: ignore[reportArgumentType]
        self._warm[k] = left[:, 0] if matrix.shape[0] < matrix.shape[1] else right[0]  # pyright: ignore[reportOptionalSubscript]
        return float(values[0])

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of every dense layer."""
        return tuple((layer.out_features, layer.in_features) for layer in self._layers)

    @property
    def frobenius(self) -> np.ndarray:
        return np.array(self._frobenius)

    @property
    def spectral(self) -> np.ndarray:
        return np.array(self._spectral)

    @property
    def ratio(self) -> np.ndarray:
        return self.spectral / self.frobenius

    @property
    def differences(self) -> np.ndarray:
        return -np.diff(self.frobenius**2, axis=1)

    @property
    def floor(self) -> np.ndarray:
        return np.array([1 / np.sqrt(min(shape)) for shape in self.shapes])


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


def template_images(count: int = 512, noise: float = 0.7, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten classes of 32 x 32 images: a smoothed random template per class, plus noise. A stand-in that needs no download."""
    if count < 1:
        raise ArgumentError("count", "template_images", "positive", count)
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(10, 3, 8, 8, generator=generator)
    templates = nn.functional.interpolate(coarse, scale_factor=4, mode="bilinear", align_corners=False)
    labels = torch.randint(0, 10, (count,), generator=generator)
    return templates[labels] + noise * torch.randn(count, 3, 32, 32, generator=generator), labels


def train_probed(
    module: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    rate: float,
    epochs: int,
    batch: int = 64,
    momentum: float = 0.9,
    seed: int = 0,
) -> SpectralProbe:
    """Stochastic gradient descent with momentum on the cross-entropy; the probe holds one record per epoch, the first before any step.

    On one thread: how sums are split over several changes their rounding, and with it whether a rate at the edge diverges.
    """
    with _one_thread():
        probe, optimiser = SpectralProbe(module), torch.optim.SGD(module.parameters(), rate, momentum)
        generator = torch.Generator().manual_seed(seed)
        probe.record(_risk(module, images, labels))
        for _ in range(epochs):
            for chosen in _batches(len(labels), batch, generator):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(images[chosen]), labels[chosen]).backward()
                optimiser.step()
            probe.record(_risk(module, images, labels))
        return probe


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _batches(count: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    return iter(torch.randperm(count, generator=generator).split(size))


@torch.no_grad()
def _risk(module: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Mean cross-entropy over all images, in pieces that fit anywhere."""
    parts = [
        float(nn.functional.cross_entropy(module(x), y, reduction="sum"))
        for x, y in zip(images.split(1024), labels.split(1024), strict=True)
    ]
    return sum(parts) / len(labels)
