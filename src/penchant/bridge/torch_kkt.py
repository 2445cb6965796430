"""The KKT meter for PyTorch modules: margins and products with their gradients in float64, and the kinks of piecewise linear activations."""

import math
import re
import time
import warnings
from collections.abc import Callable, Sequence
from copy import copy, deepcopy

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.overrides import TorchFunctionMode  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError, warn
from .kkt import RADII, Reading, read
from .kkt_cone import LARGE, Kinks, Masks, margin_pairs
from .torch_hooks import answered, scores, tensor, unwrap

_CHUNK = 64  # gradients at a time
_PAIRS = 20_000  # kinks whose distance is measured; the nearest by their relative size, if there are more
_MODES = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
_SLOPES: dict[Callable, tuple[float | None, float]] = {  # slopes below and above 0; None is an argument of the call
    **dict.fromkeys((torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_, nn.functional.relu), (0.0, 1.0)),
    **dict.fromkeys((torch.abs, torch.Tensor.abs, torch.Tensor.__abs__), (-1.0, 1.0)),
    nn.functional.leaky_relu: (None, 1.0),
}
_KINKED = re.compile(  # other operations with kinks, by name
    r"_?((adaptive_)?max_pool\dd|clamp|clip|relu6|[pr]relu|selu|threshold|hard|softshrink|a?max|a?min|maximum|minimum|sort|topk|where).*"
)


class _Slopes(TorchFunctionMode):
    """Every kinked activation of a forward pass: what it is given, and with masks the slope (0 below, 1 above) that its derivative takes; values stay."""

    def __init__(self, masks: Sequence[torch.Tensor] | None = None):
        super().__init__()
        self.masks, self.seen, self.others = masks, [], set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func not in _SLOPES:
            name = getattr(func, "__name__", "")
            self.others |= {name} if _KINKED.fullmatch(name) else set()
            return func(*args, **kwargs)
        below, above = _SLOPES[func]
        low = (args[1] if len(args) > 1 else kwargs.get("negative_slope", 0.01)) if below is None else below
        z = args[0] if args else kwargs["input"]
        self.seen.append(z)
        value = above * torch.relu(z) - low * torch.relu(-z) if low else above * torch.relu(z)
        if self.masks is None:
            return value
        line = z * (low + (above - low) * self.masks[len(self.seen) - 1])
        return line + (value - line).detach()


class TorchGradients:
    """A copy of a module in float64 as a function of one flat vector of parameters; the module itself is left alone."""

    def __init__(self, model: nn.Module, inputs: object, labels: object):
        module = unwrap(model)
        _check_module(module)
        self.module = deepcopy(module).cpu().double().eval().requires_grad_(True)
        named = dict(self.module.named_parameters())
        self._scale, self._degree = 1.0, 0
        self._shapes = {name: one.shape for name, one in named.items()}
        self.start = torch.cat([one.detach().flatten() for one in named.values()]).numpy()
        self.x, known = tensor(inputs, "inputs", "kkt").cpu(), tensor(labels, "labels", "kkt").cpu()
        self.x = self.x.double() if self.x.is_floating_point() else self.x
        if len(known) != len(self.x):
            found = f"{len(self.x)} inputs and {len(known)} labels"
            raise ArgumentError("labels", "kkt", "one for each of the inputs", found)
        with torch.no_grad(), _Slopes() as seen:
            found = answered(self.module, self.x, "kkt")
        self.unseen = ", ".join(sorted(seen.others))
        self.samples, pairs = margin_pairs(known.numpy(), 1 if found.ndim == 1 else found.shape[1])
        self._sample = torch.tensor(self.samples)
        self._sign, self._own, self._other, self._has = (torch.tensor(one) for one in pairs)

    def _outputs(self, theta: torch.Tensor, x: torch.Tensor | None = None) -> torch.Tensor:
        parts = (self._scale * theta).split([shape.numel() for shape in self._shapes.values()])
        named = {name: part.view(shape) for part, (name, shape) in zip(parts, self._shapes.items(), strict=True)}
        batch = torch.as_tensor(self.x if x is None else x)
        found = scores(torch.func.functional_call(self.module, named, (batch,))).reshape(len(batch), -1)
        return self._scale**-self._degree * found

    def homogenised(self, degree: int) -> "TorchGradients":
        found = copy(self)
        found._scale, found._degree = LARGE, degree
        return found

    def _margins(self, theta: torch.Tensor, masks: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
        """All margins; with masks every margin passes the network on its own, since its slopes are its own."""
        if masks is None:
            f = self._outputs(theta)
            return self._sign * (f[self._sample, self._own] - self._has * f[self._sample, self._other])
        with _Slopes(masks):
            f = self._outputs(theta, self.x[self._sample])
        place = torch.arange(len(f))
        return self._sign * (f[place, self._own] - self._has * f[place, self._other])

    def outputs(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = _along(self._outputs, torch.tensor(theta), torch.tensor(theta))
        return value.detach().numpy(), slope.detach().numpy()

    def margins(self, theta: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self._margins(torch.tensor(theta)).numpy()

    def pull(self, theta: np.ndarray, weights: np.ndarray) -> np.ndarray:
        point = torch.tensor(theta, requires_grad=True)
        return torch.autograd.grad(self._margins(point), point, torch.tensor(weights))[0].numpy()

    def push(self, theta: np.ndarray, along: np.ndarray) -> np.ndarray:
        return _along(self._margins, torch.tensor(theta), torch.tensor(along))[1].detach().numpy()

    def rows(self, theta: np.ndarray, which: np.ndarray, masks: Masks = None) -> np.ndarray:
        """Gradients of some margins, one row each, in pieces."""
        chosen = None if masks is None else [torch.as_tensor(one) for one in masks]

        def one(point, x, sign, own, other, has, slopes):
            with _Slopes([part[None] for part in slopes] if slopes else None):
                f = self._outputs(point, x[None])[0]
            return sign * (f.gather(0, own[None]) - has * f.gather(0, other[None])).sum()

        slope: Callable = torch.func.grad(one)
        point, found = torch.tensor(theta), []
        for part in torch.as_tensor(which).split(_CHUNK):
            given = (self.x[self._sample[part]], *(t[part] for t in (self._sign, self._own, self._other, self._has)))
            slopes = tuple(mask[part] for mask in chosen) if chosen else ()
            axes = (None, 0, 0, 0, 0, 0, 0 if slopes else None)
            found.append(torch.func.vmap(slope, axes)(point, *given, slopes))
        return torch.cat(found).numpy() if found else np.zeros((0, len(theta)))

    def kinks(self, theta: np.ndarray) -> Kinks | None:
        """Slopes and distances |z| / |grad z| of every kinked unit; None for a smooth network."""
        with torch.no_grad(), _Slopes() as seen:
            self._outputs(torch.tensor(theta))
        if not seen.seen or any(len(z) != len(self.x) for z in seen.seen):
            return None
        flat = torch.cat([z.flatten(1) for z in seen.seen], 1)
        relative = flat.abs() / flat.square().mean(0).sqrt().clamp(min=1e-300)
        order = relative.flatten().argsort()[:_PAIRS]
        lengths = torch.cat([self._lengths(torch.tensor(theta), part, flat.shape[1]) for part in order.split(_CHUNK)])
        distances = torch.full((flat.numel(),), math.inf, dtype=torch.float64)
        distances[order] = torch.where(lengths > 0, flat.flatten()[order].abs() / lengths, math.inf)
        parts = distances.view_as(flat)[self._sample].split([z[0].numel() for z in seen.seen], 1)
        self._units = [z.shape[1:] for z in seen.seen]
        masks = [(z > 0).double()[self._sample].numpy() for z in seen.seen]
        return Kinks(masks, [part.numpy() for part in parts])

    def _lengths(self, theta: torch.Tensor, places: torch.Tensor, width: int) -> torch.Tensor:
        """Norms of the gradients of some preactivations, given by their places among all samples and units."""

        def one(point, x, unit):
            with _Slopes() as seen:
                self._outputs(point, x[None])
            return torch.cat([z.flatten() for z in seen.seen]) @ unit

        unit = nn.functional.one_hot(places % width, width).double()
        found = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(theta, self.x[places // width], unit)
        return found.norm(dim=1)

    def chosen(
        self, theta: np.ndarray, along: np.ndarray, masks: Sequence[np.ndarray], free: Sequence[np.ndarray], sign: int
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Slopes at free kinks that make every product largest (sign 1) or smallest (-1): exact where they lie in one layer, else by ascent."""
        now = [torch.as_tensor(one) for one in masks]
        loose = [torch.as_tensor(one).view(len(one), *shape) for one, shape in zip(free, self._units, strict=True)]
        point, way = torch.tensor(theta), torch.tensor(along)
        product = lambda *m: _along(lambda t: self._margins(t, m), point, way)[1]
        layers = [k for k, one in enumerate(loose) if one.any()]
        value = product(*now)
        for k in layers if len(layers) < 2 else 2 * layers:
            _, back = torch.func.vjp(lambda m, k=k: product(*now[:k], m, *now[k + 1 :]), now[k])[:2]
            slope = sign * back(torch.ones_like(value))[0]
            tried = torch.where(loose[k], (slope > 0).double(), now[k])
            other = product(*now[:k], tried, *now[k + 1 :])
            better = (sign * (other - value) >= 0).view(-1, *[1] * (tried.ndim - 1))
            now[k] = torch.where(better, tried, now[k])
            value = torch.where(better.flatten(), other, value)
        return value.detach().numpy(), [one.detach().numpy() for one in now]


def _along(function: Callable, point: torch.Tensor, way: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and derivative along a way; by two reverse passes where an operation has no forward derivative."""
    try:
        with warnings.catch_warnings():  # PyTorch loads scripts of its own for forward derivatives
            warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
            return torch.func.jvp(function, (point,), (way,))[:2]
    except (NotImplementedError, RuntimeError):
        value, back = torch.func.vjp(function, point)[:2]
        return value, torch.func.vjp(lambda v: back(v)[0], torch.zeros_like(value))[1](way)[0]


def _check_module(module: nn.Module) -> None:
    """What the meter cannot speak about, by name."""
    named = dict(module.named_parameters())
    if not named:
        raise ArgumentError("model", "kkt", "a module with parameters", f"{type(module).__name__}, which has none")
    for name, part in module.named_modules():
        if part.training and isinstance(part, _MODES) and getattr(part, "p", 1):
            found = f"{type(part).__name__} '{name}' in training mode"
            fix = "model.eval(): in training mode the margin of a sample is not a function of the weights alone"
            raise ArgumentError("model", "kkt", "in evaluation mode", found, fix)
        if isinstance(part, _MODES[0]):
            warn(
                f"'{name}' is read with its running statistics held fixed: of training with those of a batch no theorem here speaks."
            )
    for name, one in named.items():
        if not one.requires_grad:
            fix = f"model.get_parameter('{name}').requires_grad_(True), or fold it into the inputs: the theorems are about all parameters"
            raise ArgumentError("model", "kkt", "trained in all its parameters", f"'{name}', which is frozen", fix)
        if bad := int((~torch.isfinite(one.detach())).sum()):
            found = f"'{name}' with {bad} that are not"
            raise ArgumentError("model", "kkt", "of finite weights", found, "an earlier checkpoint")
    if shared := [name for name, _ in module.named_parameters(remove_duplicate=False) if name not in named]:
        warn(f"'{shared[0]}' is shared with another layer: it is counted once, and its degree is the sum of its uses.")


def plan(network: TorchGradients) -> str:
    """What a reading costs, before it is paid: memory of the gradients of all margins, and time from one pass."""
    network.rows(network.start, np.arange(1))  # what PyTorch loads at its first gradient is no cost of the network
    begin = time.perf_counter()
    network.pull(network.start, np.ones(len(network.samples)))
    once, (count, size) = time.perf_counter() - begin, (len(network.samples), len(network.start))
    memory = 8 * count * size / 1e6
    return f"{count} margins, {size} parameters: at most {memory:.3g} MB of gradients (those near the smallest margin first), some {65 * once:.2g} s for all; one pass takes {once:.2g} s"


def kkt(
    model: nn.Module,
    inputs: object,
    labels: object,
    *,
    tolerance: float = 1e-2,
    radii: Sequence[float] = RADII,
    memory: float = 4e9,
    progress: Callable[[str], None] = lambda text: None,
) -> Reading:
    """How far a module is from a KKT point of its margin problem, with a certificate; labels are classes, or -1 and 1 for one output.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = model.weight.copy_(torch.tensor([[2.0, -1.0]]))
    >>> found = kkt(model, [[1.0, 0.0], [0.0, 2.0]], [1, -1])
    >>> found.verdict.headline, found.upper < 1e-12
    ('confirmed', True)
    """
    network = TorchGradients(model, inputs, labels)
    cost = plan(network)
    progress(cost)
    near = 8 * len(network.start) * min(len(network.samples), 1000)
    if near > memory:
        fix = f"memory={near:.2g}, or fewer samples"
        raise ArgumentError("memory", "kkt", f"at least {near:.2g} bytes for the gradients", f"{memory:.2g}", fix)
    return read(network, tolerance=tolerance, radii=radii, cost=cost)
