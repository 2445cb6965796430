"""A probe for any training loop of PyTorch: what theory speaks about, measured on the way, without a trace in the training.

Nothing is hooked into the model but during a record, and a record looks at the model as it is: unwrapped, in evaluation mode, without gradients,
with the random state, the flags and the buffers given back. Training has the same bits with and without it.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from scipy.sparse.linalg import svds
from torch import nn  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError
from ..files import mark, write_npz

_EXACT = (
    1_000_000_000  # products of a Gram matrix and its basis above which only the largest singular value is looked for
)
_TOLERANCE, _GROWTH, _PIECE = 1e-6, 1.3, 1024
_PROJECTIONS = (("query", "key"), ("q_proj", "k_proj"), ("to_q", "to_k"), ("q_lin", "k_lin"))
_HEADS = ("num_heads", "heads", "num_attention_heads", "n_heads")
QUANTILES = (0.1, 0.5, 0.9)


class Attention(NamedTuple):
    """An attention block: where it is, how many heads it has, and the weights of its queries and keys."""

    module: nn.Module
    heads: int
    weights: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    projections: tuple[nn.Module, nn.Module] | None


def unwrap(model: nn.Module) -> nn.Module:
    """The module itself, without what `torch.compile` and data-parallel wrappers put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DataParallel", "DistributedDataParallel"):
            inner = model.module
        if inner is None:
            return model
        model = inner


@contextmanager
def aside(module: nn.Module) -> Iterator[None]:
    """The module as it is, in evaluation mode, for a look that leaves no trace: flags, buffers, random state and compilation are given back."""
    parts = list(module.modules())
    flags, compiled = [one.training for one in parts], [one._compiled_call_impl for one in parts]
    buffers = [(one, one.clone()) for one in module.buffers()]
    devices = {one.device for one in module.parameters()}
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(sorted(d.index or 0 for d in devices if d.type == "cuda")))
        stack.enter_context(torch.no_grad())
        for kind in {device.type for device in devices}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        try:
            torch.backends.mha.set_fastpath_enabled(False)  # it would pass the hooks by
            for one in parts:
                one.training, one._compiled_call_impl = False, None
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            for one, flag, call in zip(parts, flags, compiled, strict=True):
                one.training, one._compiled_call_impl = flag, call
            for one, old in buffers:
                if not torch.equal(one, old):
                    one.copy_(old)


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


def head_spectra(query: np.ndarray, key: np.ndarray, heads: int) -> np.ndarray:
    """Singular values of W_Q' W_K of every head (heads x size of a head), which is never formed; grouped keys serve several heads."""
    split = lambda weight, count: weight.reshape(count, -1, weight.shape[1]).transpose(0, 2, 1)
    size = len(query) // heads
    groups = len(key) // size
    first, second = (np.linalg.qr(split(*pair), mode="r") for pair in ((query, heads), (key, groups)))
    return np.linalg.svd(first @ np.repeat(second, heads // groups, 0).transpose(0, 2, 1), compute_uv=False)


def attention_blocks(module: nn.Module) -> dict[str, Attention]:
    """Blocks whose queries and keys are known by name and which say how many heads they have."""
    found = {}
    for name, part in module.named_modules():
        if isinstance(part, nn.MultiheadAttention):
            found[name] = Attention(part, part.num_heads, lambda part=part: _projected(part), None)
        heads = next((getattr(part, word) for word in _HEADS if isinstance(getattr(part, word, None), int)), None)
        for pair in _PROJECTIONS:
            both = tuple(getattr(part, word, None) for word in pair)
            if heads and all(isinstance(one, nn.Linear) for one in both):
                found[name] = Attention(part, heads, lambda both=both: (both[0].weight, both[1].weight), both)  # pyright: ignore[reportArgumentType, reportOptionalMemberAccess]
    return found


def _projected(part: nn.MultiheadAttention) -> tuple[torch.Tensor, torch.Tensor]:
    if part.in_proj_weight is None:
        return part.q_proj_weight, part.k_proj_weight
    query, key, _ = part.in_proj_weight.chunk(3)
    return query, key


class _Listener:
    """Logits of an attention block from what its projections, or the block itself, are given in one forward pass."""

    def __init__(self, block: Attention, stack: ExitStack):
        self.block, self.seen, self.mask = block, {}, None
        hook = block.module.register_forward_pre_hook(self._before, with_kwargs=True)
        hooks = [
            one.register_forward_hook(lambda *_, k=k: self.seen.setdefault(k, _[2]))
            for k, one in enumerate(block.projections or ())
        ]
        for one in (hook, *hooks):
            stack.callback(one.remove)

    def _before(self, part: nn.Module, given: tuple, named: dict) -> None:
        """Queries and keys of PyTorch's own block, and a mask that is given by name."""
        if self.block.projections is None and 0 not in self.seen:
            query, key = (given[k] if k < len(given) else named[word] for k, word in enumerate(("query", "key")))
            bias = (None, None) if part.in_proj_bias is None else part.in_proj_bias.chunk(3)[:2]
            turn = lambda x: x.transpose(0, 1) if not part.batch_first and x.ndim == 3 else x
            both = zip((query, key), self.block.weights(), bias, strict=True)
            self.seen = dict(enumerate(nn.functional.linear(turn(x), weight, b) for x, weight, b in both))
            padding = named.get("key_padding_mask")
            self.mask = None if padding is None else _added(padding)[:, None, None]
        mask = named.get("attn_mask", named.get("attention_mask"))
        if mask is not None and mask.ndim in (2, 4):
            self.mask = _added(mask) + (0.0 if self.mask is None else self.mask)

    def reading(self) -> dict[str, np.ndarray]:
        split = lambda x, heads: x.double().unflatten(-1, (heads, -1)).transpose(-3, -2)
        query = split(self.seen[0], self.block.heads)
        key = split(self.seen[1], self.seen[1].shape[-1] // query.shape[-1])
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        return attention_reading(logits if self.mask is None else logits + self.mask)


def _added(mask: torch.Tensor) -> torch.Tensor:
    """A mask as it is added to logits: True forbids."""
    return (
        torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -math.inf) if mask.dtype == torch.bool else mask
    )


def attention_reading(logits: torch.Tensor) -> dict[str, np.ndarray]:
    """Per head of logits (batch, heads, rows, keys): mean entropy over log of the keys allowed, quantiles over rows of log(1 - largest
    probability), median gap of the two largest logits. The second is a difference of log-sums: 1 - p would be 0 from p = 1 - 1e-16 on."""
    whole, share = logits.logsumexp(-1), logits.softmax(-1)
    counted = torch.isfinite(logits).sum(-1).clamp(min=2).double().log()
    entropy = -torch.where(share > 0, share * (logits - whole[..., None]), 0.0).sum(-1) / counted
    two, places = logits.topk(2)
    rest = logits.scatter(-1, places[..., :1], -math.inf).logsumexp(-1) - whole
    rows = lambda x: x.movedim(-2, 0).flatten(1)
    levels = torch.tensor(QUANTILES, dtype=rest.dtype, device=rest.device)
    found = {"entropy": rows(entropy).mean(1), "saturation": rows(rest).quantile(levels, 1).T}
    found["gap"] = rows(two[..., 0] - two[..., 1]).median(1).values
    return {name: value.cpu().numpy() for name, value in found.items()}


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
    parts = [
        float((a.double() / sizes[0] - b.double() / sizes[1]).square().sum())
        for a, b in zip(first, second, strict=True)
    ]
    return 2 * math.asin(min(1.0, math.sqrt(sum(parts)) / 2))


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
        inputs: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
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
        _check_data(inputs, labels, every)
        self._data, self._every, self._budget = (inputs, labels), every, math.inf if budget is None else budget
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
                raise ArgumentError("module", "Probe", "of finite weights", f"{name} that is not", fix)
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
            heard = {k: _Listener(block, stack) for k, block in enumerate(self.blocks.values())}
            parts = [_scores(self.module(pieces[0]))]
        outputs = torch.cat([*parts, *(_scores(self.module(piece)) for piece in pieces[1:])])
        found: dict[str, object] = {
            f"{name}_{k}": value
            for k, one in heard.items()
            if len(one.seen) == 2
            for name, value in one.reading().items()
        }
        doubled = {name: 2 * one.detach() for name, one in self.module.named_parameters()}
        other = _scores(torch.func.functional_call(self.module, doubled, (pieces[0],))).double()
        same = outputs[: len(other)].double()
        factor = float((other * same).sum() / same.square().sum())
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
            degree = round(float(found["degree"][0]))
            with np.errstate(over="ignore", under="ignore"):
                found["normalised_margins"] = found["margins"] / found["norm"][:, None] ** degree
        return found

    def __getattr__(self, name: str) -> np.ndarray:
        """A series by its name."""
        if name.startswith("_") or not self._rows or name not in self._rows[0]:
            raise AttributeError(f"this probe has recorded no '{name}'")
        return self.series()[name]

    @property
    def ratio(self) -> np.ndarray:
        return self.spectral / self.frobenius

    @property
    def stable_rank(self) -> np.ndarray:
        return self.ratio**-2

    @property
    def growth(self) -> np.ndarray:
        return self.frobenius / self.frobenius[0]

    @property
    def differences(self) -> np.ndarray:
        return -np.diff(self.frobenius**2, axis=1)

    @property
    def floor(self) -> np.ndarray:
        return np.array([1 / np.sqrt(min(shape)) for shape in self.shapes])

    def write_scalars(self, writer: Any) -> None:
        """Everything that was recorded, to a `SummaryWriter` of TensorBoard: a curve for each layer and each head."""
        series = self.series()
        for name, values in series.items():
            if name != "steps":
                labels = self.names if values.shape[1:] == (len(self.names),) else None
                for k, column in enumerate(values.reshape(len(values), -1).T):
                    part = f"/{labels[k] if labels else k}" if values.ndim > 1 else ""
                    for step, value in zip(series["steps"], column, strict=True):
                        writer.add_scalar(f"probe/{name}{part}", float(value), int(step))

    def save(self, path: str | Path, data: dict | None = None) -> Path:
        """Write a run file that `penchant probe` draws; `data` is where the data came from, the record of `penchant.data.load`."""
        header = {"format": mark("network run"), "model": type(self.module).__name__, "layers": self.names}
        header |= {"data": data} if data else {}
        header |= {"shapes": self.shapes, "blocks": tuple(self.blocks), "software": {"torch": torch.__version__}}
        return write_npz(path, header, self.series())


def _scores(found: Any) -> torch.Tensor:
    """The outputs of a network, also of one that answers with an object that has them."""
    return getattr(found, "logits", found)


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
        raise ArgumentError("module", "Probe", "a module with dense or convolutional layers", type(module).__name__)
    unknown = set(layers or ()) - set(found)
    if unknown:
        raise ArgumentError("layers", "Probe", f"one of {', '.join(found)}", f"'{min(unknown)}'")
    return found if layers is None else {name: found[name] for name in layers}


def _check_data(inputs: torch.Tensor | None, labels: torch.Tensor | None, every: int | None) -> None:
    if every is not None and not every >= 1:
        raise ArgumentError("every", "Probe", "a positive number of steps", every)
    if labels is not None and (inputs is None or len(inputs) != len(labels)):
        found = "no inputs" if inputs is None else f"{len(inputs)} inputs and {len(labels)} labels"
        raise ArgumentError("labels", "Probe", "one for each of the inputs", found)
