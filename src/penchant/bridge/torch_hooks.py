"""How a record looks at a network: the module itself, its attention blocks, and what they attend to in one forward pass, by hooks that are gone after it."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError

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
    wrapped = type(model).__name__ in ("DataParallel", "DistributedDataParallel")
    inner: Any = getattr(model, "_orig_mod", model.module if wrapped else None)
    if inner is not None:
        return unwrap(inner)
    if lazy := next((name for name, one in model.named_parameters() if nn.parameter.is_lazy(one)), ""):
        raise ArgumentError(
            "model", "the bridge", "initialised", f"'{lazy}' without a shape", "call it on a batch first"
        )
    return model


def tensor(values: object, name: str, owner: str) -> torch.Tensor:
    """Numbers of any kind as a tensor without a history."""
    try:
        return torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(name, owner, "an array of numbers", str(error).splitlines()[0]) from error


def scores(found: Any) -> Any:
    """The outputs of a network, also of one that answers with an object that has them."""
    return getattr(found, "logits", found)


def answered(module: nn.Module, inputs: torch.Tensor, owner: str, shaped: bool = True) -> torch.Tensor:
    """Outputs of a module, (n,) or (n, classes) where they are to be `shaped`; inputs that it cannot take and answers of another kind are named."""
    wrong = torch.nonzero(~torch.isfinite(inputs.double()).flatten(1).all(1)) if len(inputs) else torch.zeros(1, 1)
    if len(wrong):
        found = f"sample {int(wrong[0])} that is not" if len(inputs) else "none"
        raise ArgumentError("inputs", owner, "finite, of one sample or more", found)
    try:
        found = scores(module(inputs))
    except (RuntimeError, TypeError, IndexError) as error:
        said = f"an array of shape {tuple(inputs.shape)} ({str(error).splitlines()[0]})"
        raise ArgumentError("inputs", owner, f"what the {type(module).__name__} takes", said) from error
    if not isinstance(found, torch.Tensor) or (shaped and (found.ndim not in (1, 2) or len(found) != len(inputs))):
        shape = getattr(found, "shape", type(found).__name__)
        raise ArgumentError("model", owner, f"a module with outputs ({len(inputs)},) or (.., classes)", shape)
    return found


@contextmanager
def aside(module: nn.Module) -> Iterator[None]:
    """The module as it is, in evaluation mode, for a look that leaves no trace: flags, buffers, random state and compilation are given back."""
    parts = list(module.modules())
    flags = [one.training for one in parts]
    compiled = [(one, one._compiled_call_impl) for one in parts if one._compiled_call_impl]
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
                one.training = False
            for one, _ in compiled:
                one._compiled_call_impl = None
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            for one, flag in zip(parts, flags, strict=True):
                one.training = flag
            for one, call in compiled:
                one._compiled_call_impl = call
            for one, old in buffers:
                if not torch.equal(one, old):
                    one.copy_(old)


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


class Listener:
    """Logits of an attention block from what its projections, or the block itself, are given in one forward pass."""

    def __init__(self, block: Attention, stack: ExitStack):
        self.block, self.seen, self.mask = block, {}, None
        hook = block.module.register_forward_pre_hook(self._before, with_kwargs=True)
        stack.callback(hook.remove)
        for k, one in enumerate(block.projections or ()):
            stack.callback(one.register_forward_hook(lambda *_, k=k: self.seen.setdefault(k, _[2])).remove)

    def _before(self, part: Any, given: tuple, named: dict) -> None:
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
    empty = torch.zeros(mask.shape, device=mask.device)
    return empty.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else mask


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
