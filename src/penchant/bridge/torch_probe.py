"""A probe for any training loop of PyTorch: what theory speaks about, measured on the way, without a trace in the training.

Nothing is hooked into the model but during a record, and a record looks at the model as it is: unwrapped, in evaluation mode, without gradients,
with the random state, the flags and the buffers given back. Training has the same bits with and without it.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from scipy.sparse.linalg import svds
from torch import nn  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError
from ..files import mark, write_npz
from .kkt_cone import check_labels
from .torch_hooks import QUANTILES, Listener, answered, aside, attention_blocks, head_spectra, scores, tensor, unwrap

_EXACT = 1_000_000_000  # products above which only the largest singular value is looked for
_TOLERANCE, _GROWTH, _PIECE = 1e-6, 1.3, 1024


_DERIVED: dict[str, Callable[["Probe"], np.ndarray]] = {
    "ratio": lambda probe: probe.spectral / probe.frobenius,
    "stable_rank": lambda probe: probe.ratio**-2,
    "growth": lambda probe: probe.frobenius / probe.frobenius[0],
    "differences": lambda probe: -np.diff(probe.frobenius**2, axis=1),
    "floor": lambda probe: np.array([1 / np.sqrt(min(shape)) for shape in probe.shapes]),
}


def spectrum(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All singular values, in no order, and the top left and right vectors; of a large matrix the largest value alone.

    The basis of a Gram matrix is good to rounding, its eigenvalues are not: the values are the lengths of the images of the basis.
    """
    if matrix.shape[0] < matrix.shape[1]:
        values, right, left = spectrum(matrix.T)
        return values, left, right
    if matrix.size * matrix.shape[1] > _EXACT:
        found = svds(matrix, k=1, v0=np.ones(matrix.shape[1]), tol=_TOLERANCE)  # pyright: ignore[reportArgumentType]
        return found[1], found[0][:, 0], found[2][0]  # pyright: ignore[reportOptionalSubscript]
    basis = np.linalg.eigh(matrix.T @ matrix)[1]
    images = matrix @ basis
    values = np.linalg.norm(images, axis=0)
    top = int(values.argmax())
    return values, images[:, top] / (values[top] or 1.0), basis[:, top]


def smallest_margins(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """y f(x) for one output and labels -1, 1; else the output of the label minus the largest other."""
    outputs = outputs.double()
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        return labels.double() * outputs.flatten()
    own = outputs.gather(1, labels[:, None])
    return (own - outputs.scatter(1, labels[:, None], -math.inf).max(1, keepdim=True).values).flatten()


def _loss(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        return float(nn.functional.softplus(-smallest_margins(outputs, labels)).mean())
    return float(nn.functional.cross_entropy(outputs.double(), labels))


def _angle(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor], sizes: tuple[float, float]) -> float:
    """The angle between two lists of tensors, good to its last digits where it is small."""
    if not all(sizes):
        return math.nan
    unit = lambda tensor, size: tensor.double() / size
    apart = _size([unit(a, sizes[0]) - unit(b, sizes[1]) for a, b in zip(first, second, strict=True)])
    return 2 * math.asin(min(1.0, apart / 2))


def _size(tensors: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float(one.double().square().sum()) for one in tensors))


class Probe:
    """Norms, alignment, attention, margins and direction of a network while it trains: `probe = Probe(model)`, and `probe.step(loss)` after each step.

    Records at steps 0, 1, 2, ... ceil(1.3^k), or `every` so many, and no more than `budget` of the time of training, the record before the first
    step not counted (None: all of them); `optimiser` takes the place of calling `step`, also under gradient accumulation and a gradient scaler.
    With `inputs` and `labels` (classes, or -1 and 1 for one output) every record looks at them: loss, margins, attention, homogeneity. `layers` names those
    to look at, by default every parameter with two axes or more (convolutions as outputs x rest, stacked projections apart).

    After some records, with one row each: `steps`, `losses`, `frobenius`, `spectral`, `nuclear` (not a number for very large layers), `ratio`
    (spectral over Frobenius: 1 means rank one), `stable_rank`, `growth`, and `series()` with all there is. `floor` is the smallest
    ratio that a layer of its shape can have; `differences` are |W_k|^2 - |W_{k+1}|^2, which a gradient flow on homogeneous layers without biases conserves.

    >>> probe = Probe(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    >>> probe.names, probe.floor.round(4).tolist(), probe.ratio.shape
    (('0', '2'), [0.5774, 0.7071], (1, 2))
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: torch.Tensor | np.ndarray | None = None,
        labels: torch.Tensor | np.ndarray | None = None,
        *,
        every: int | None = None,
        layers: Sequence[str] | None = None,
        optimiser: torch.optim.Optimizer | None = None,
        budget: float | None = 0.03,
    ):
        self.module = unwrap(model)
        self._weights = _matrices(self.module, layers)
        self.names = tuple(self._weights)
        self.shapes = tuple((len(one()), one()[0].numel()) for one in self._weights.values())
        self.blocks = attention_blocks(self.module)
        self._parameters = list(self.module.parameters())
        place = self._parameters[0].device
        held = lambda one, name: None if one is None else tensor(one, name, "Probe").to(place)
        self._data = held(inputs, "inputs"), held(labels, "labels")
        self._every, self._budget = every, math.inf if budget is None else budget
        _check_data(self.module, *self._data, every, self._budget)
        self.count, self._due, self._spent = 0, 0, 0.0
        self._rows: list[dict[str, np.ndarray]] = []
        self._start = self._before = [one.detach().clone() for one in self._parameters]
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._silent = distributed and torch.distributed.get_rank() != 0
        self._hook = optimiser.register_step_post_hook(lambda *_: self.step()) if optimiser is not None else None
        self.record()
        self._cost, self._spent, self._began = self._spent, 0.0, time.perf_counter()

    def step(self, loss: float | torch.Tensor = math.nan) -> None:
        """Count a step of training, and record if one is due and can be afforded."""
        self.count += 1
        trained = time.perf_counter() - self._began - self._spent
        if self.count >= self._due and self._spent + self._cost <= self._budget * trained:
            self.record(loss)

    def record(self, loss: float | torch.Tensor = math.nan) -> None:
        """Note everything as it is now; the loss is that of the probe's own data where it has some."""
        if self._silent:
            return
        begin = time.perf_counter()
        with aside(self.module):
            row = {"steps": self.count, "losses": float(loss), **self._of_layers(), **self._of_direction()}
            row |= self._of_attention_weights() | self._of_data()
        self._rows.append({name: np.asarray(value) for name, value in row.items()})
        following = self.count + self._every if self._every else math.ceil(_GROWTH * self.count)
        self._due = max(self.count + 1, following)
        self._cost = time.perf_counter() - begin
        self._spent += self._cost

    def detach(self) -> None:
        """A last record where the last steps have none; then the optimiser is let go of, and so are the copies of weights."""
        if self._rows and self.count > self._rows[-1]["steps"]:
            self.record()
        if self._hook is not None:
            self._hook.remove()
        self._hook, self._start, self._before = None, [], []

    def _of_layers(self) -> dict[str, object]:
        found = []
        for name, weight in self._weights.items():
            matrix = weight().detach().flatten(1).double().cpu().numpy()
            if not np.isfinite(matrix).all():
                fix = "a smaller learning rate"
                raise ArgumentError("model", "Probe", "of finite weights", f"some that are not in layer '{name}'", fix)
            values, left, right = spectrum(matrix)
            nuclear = values.sum() if len(values) == min(matrix.shape) else math.nan
            found.append((np.linalg.norm(matrix), values.max(), nuclear, left, right))
        frobenius, spectral, nuclear = (np.array([one[k] for one in found]) for k in range(3))
        fits = [abs(b[4] @ a[3]) if len(b[4]) == len(a[3]) else math.nan for a, b in pairwise(found)]
        return {"frobenius": frobenius, "spectral": spectral, "nuclear": nuclear, "alignment": fits}

    def _of_direction(self) -> dict[str, object]:
        now = [one.detach() for one in self._parameters]
        size, old, first = _size(now), _size(self._before), _size(self._start)
        turned, turn = _angle(now, self._before, (size, old)), _angle(now, self._start, (size, first))
        self._before = [one.clone() for one in now]
        return {"norm": size, "turn": turn, "turned": turned}

    def _of_attention_weights(self) -> dict[str, np.ndarray]:
        found = {}
        for k, block in enumerate(self.blocks.values()):
            query, key = (one.detach().double().cpu().numpy() for one in block.weights())
            found[f"spectrum_{k}"] = head_spectra(query, key, block.heads)
        return found

    def _of_data(self) -> dict[str, object]:
        """Outputs of the probe's data, here and with doubled weights, and attention on the first of them."""
        inputs, labels = self._data
        if inputs is None:
            return {}
        pieces = inputs.split(_PIECE)
        with ExitStack() as stack:
            heard = {k: Listener(block, stack) for k, block in enumerate(self.blocks.values())}
            parts = [scores(self.module(pieces[0]))]
        outputs = torch.cat([*parts, *(scores(self.module(piece)) for piece in pieces[1:])])
        readings = {k: one.reading() for k, one in heard.items() if len(one.seen) == 2}
        found: dict[str, object] = {f"{name}_{k}": one[name] for k, one in readings.items() for name in one}
        doubled = {name: 2 * one.detach() for name, one in self.module.named_parameters()}
        other = scores(torch.func.functional_call(self.module, doubled, (pieces[0],))).double()
        same = outputs[: len(other)].double()
        factor = float((other * same).sum() / same.square().sum())  # not a number where all outputs are 0
        found |= {"degree": math.log2(abs(factor)) if factor else math.nan}
        found |= {"defect": float((other - factor * same).norm() / other.norm())}
        if labels is None:
            return found
        margins = smallest_margins(outputs, labels).cpu().numpy()
        levels = np.quantile(margins, (0.0, *QUANTILES))
        return found | {"losses": _loss(outputs, labels), "margins": levels}

    def series(self) -> dict[str, np.ndarray]:
        """Everything that was recorded, by name, one row for each record."""
        found = {name: np.stack([row[name] for row in self._rows]) for name in (self._rows[0] if self._rows else {})}
        if "margins" in found:
            power = np.round([*found["degree"][np.isfinite(found["degree"])], math.nan][0])
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                found["normalised_margins"] = found["margins"] / found["norm"][:, None] ** power
        return found

    def __getattr__(self, name: str) -> np.ndarray:
        """A series by its name, or what follows from some."""
        if name in _DERIVED:
            return _DERIVED[name](self)
        if name.startswith("_") or not self._rows or name not in self._rows[0]:
            raise AttributeError(f"this probe has recorded no '{name}'")
        return self.series()[name]

    def write_scalars(self, writer: Any) -> None:
        """Everything that was recorded, to a `SummaryWriter` of TensorBoard: a curve for each layer and each head."""
        series = self.series()
        for name, values in series.items():
            if name != "steps":
                labels = self.names if values.shape[1:] == (len(self.names),) else None
                for k, column in enumerate(values.reshape(len(values), -1).T):
                    part = f"/{labels[k] if labels else k}" if values.ndim > 1 else ""
                    for step, value in zip(series["steps"], column, strict=True):
                        if math.isfinite(value):  # a loss that nobody told, layers that do not follow one another
                            writer.add_scalar(f"probe/{name}{part}", float(value), int(step))

    def finish(self, path: str | Path, writers: Iterable[Any]) -> None:
        """The end of a training that someone else drives: a last record, the file, and the curves for those who write for TensorBoard."""
        self.detach()
        self.save(path)
        for writer in writers:
            if hasattr(writer, "add_scalar"):
                self.write_scalars(writer)

    def save(self, path: str | Path, data: dict | None = None) -> Path:
        """Write a run file that `penchant probe` draws; `data` is where the data came from, the record of `penchant.data.load`."""
        header = {"format": mark("network run"), "model": type(self.module).__name__, "layers": self.names}
        header |= {"data": data} if data else {}
        header |= {"shapes": self.shapes, "blocks": tuple(self.blocks), "software": {"torch": torch.__version__}}
        return write_npz(path, header, self.series())


def _matrices(module: nn.Module, layers: Sequence[str] | None) -> dict[str, Callable[[], torch.Tensor]]:
    """What gives every matrix of a module as it is now, by the name of its layer."""
    found: dict[str, Callable[[], torch.Tensor]] = {}
    for name, one in module.named_parameters():
        layer = name.removesuffix(".weight")
        if name.endswith("in_proj_weight"):
            parts = zip(("query", "key", "value"), range(3), strict=True)
            stem = layer.removesuffix("in_proj_weight")
            found |= {f"{stem}{word}": lambda one=one, k=k: one.chunk(3)[k] for word, k in parts}
        elif one.ndim >= 2:
            found[layer] = lambda one=one: one
    if not found:
        raise ArgumentError("model", "Probe", "a module with dense or convolutional layers", type(module).__name__)
    unknown = set(layers or ()) - set(found)
    if unknown:
        raise ArgumentError("layers", "Probe", f"one of {', '.join(found)}", f"'{min(unknown)}'")
    return found if layers is None else {name: found[name] for name in layers}


def _check_data(
    module: nn.Module, inputs: torch.Tensor | None, labels: torch.Tensor | None, every: int | None, budget: float
) -> None:
    if every is not None and not every >= 1:
        raise ArgumentError("every", "Probe", "a positive number of steps", every)
    if not budget >= 0:
        raise ArgumentError("budget", "Probe", "a share of the time of training, or None", budget)
    if labels is not None and (inputs is None or len(inputs) != len(labels)):
        found = "no inputs" if inputs is None else f"{len(inputs)} inputs and {len(labels)} labels"
        raise ArgumentError("labels", "Probe", "one for each of the inputs", found)
    if inputs is not None:
        with aside(module):
            outputs = answered(module, inputs[:_PIECE], "Probe", labels is not None)
        if labels is not None:
            check_labels(labels.cpu().numpy(), 1 if outputs.ndim == 1 else outputs.shape[1], "Probe")
