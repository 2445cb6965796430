"""The step rules of the theory for PyTorch networks: normalised stochastic descent and capped Polyak steps.

Both are ordinary `torch.optim.Optimizer`s: parameter groups, `state_dict`, learning-rate schedulers, a gradient scaler and copies work as
with any other, and both take the loss of the batch, `step(loss=loss)`, so that one loop serves both. Every group reports `last_grad_norm`,
`last_step` (the multiplier of the gradient), `capped`, `last_displacement` and `step_count`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.optim.optimizer import ParamsT  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError, warn

Loss = torch.Tensor | float
Pairs = tuple[list[torch.Tensor], list[torch.Tensor]]  # parameters of a group and their gradients
_REPORT = {"last_grad_norm": 0.0, "last_step": 0.0, "capped": False, "last_displacement": 0.0, "step_count": 0}
_CLIPPED = 3  # steps in a row with one and the same gradient norm: no stochastic gradient does that by itself
_SCOPES = ("global", "group", "tensor")


_BOUNDS: dict[
    str, tuple[str, Callable[[Any], bool]]
] = {  # of what a group may say: what is required of a value, and whether it is so
    **dict.fromkeys(("lr", "c", "eta_max", "max_update_norm"), ("positive", lambda value: value > 0)),
    "weight_decay": ("zero or positive", lambda value: value >= 0),
    "momentum": ("zero or positive, and below 1", lambda value: 0 <= value < 1),
    "scope": (f"one of {', '.join(_SCOPES)}", lambda value: value in _SCOPES),
    "l_star": ("finite", math.isfinite),
}


def _norms(tensors: Sequence[torch.Tensor]) -> list[float]:
    """Euclidean norm of each tensor, fetched at once for each device; half precision is summed in float32, float64 in float64."""
    places: dict[tuple, list[int]] = {}
    for k, one in enumerate(tensors):
        places.setdefault((one.device, one.dtype), []).append(k)
    found = [0.0] * len(tensors)
    for (_, dtype), indices in places.items():
        wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
        values = torch.stack(torch._foreach_norm([tensors[k] for k in indices], 2, wide)).tolist()
        least = 1e-140 if dtype == torch.float64 else 1e-12
        for k, value in zip(indices, values, strict=True):
            found[k] = value if least < value < math.inf else _scaled_norm(tensors[k])
    return found


def _scaled_norm(tensor: torch.Tensor) -> float:
    """The norm by way of the largest entry: squares of 1e-23 are 0 in float32, and so would be the step."""
    peak = float(tensor.abs().max()) if tensor.numel() else 0.0
    return peak * float((tensor.double() / peak).norm()) if 0 < peak < math.inf else peak


def _joint(norms: Sequence[float], tensors: Sequence[torch.Tensor]) -> float:
    """The norm of all entries together, which must be finite, and should not be so small that entries have lost their digits."""
    found = math.hypot(*norms)
    if not math.isfinite(found):
        raise FloatingPointError(
            f"The gradient norm is {found}. Usual causes: a step too large before this one, a loss of half precision without a "
            "gradient scaler. Lower `lr` or `eta_max`, or use torch.amp.GradScaler, which skips such steps."
        )
    if 0 < found < 1e-4 and found < (tiny := min(torch.finfo(one.dtype).tiny for one in tensors)):
        warn(
            f"The gradient norm is {found:.3g}: below {tiny:.3g} numbers of this precision lose their digits, and soon there is no step at all. "
            "Take the gradient of log(loss), formed by torch.logsumexp: normalised steps are the same."
        )
    return found


def _quotient(above: float, norm: float) -> float:
    """What is above over the norm; 0, no step, where the norm is 0 or so small that the quotient is no number."""
    found = above / norm if norm else 0.0
    return found if found < math.inf else 0.0


def _add(targets: list[torch.Tensor], gradients: list[torch.Tensor], sizes: list[float]) -> None:
    """Add every gradient times its size to its target, in place; one size for all is one call, and a size that a type does not hold two factors."""
    most = min((torch.finfo(dtype).max for dtype in {one.dtype for one in targets}), default=0.0)
    if targets and len(set(sizes)) == 1 and abs(sizes[0]) <= most:
        torch._foreach_add_(targets, gradients, alpha=sizes[0])
        return
    for target, gradient, size in zip(targets, gradients, sizes, strict=False):
        root = math.sqrt(abs(size)) if abs(size) > most else 1.0
        target.add_(gradient if root == 1 else root * gradient, alpha=size / root)


class _Reporting(torch.optim.Optimizer):
    """What both rules share: gradients that are present and dense, their norms before anything moves, and a report in every group."""

    def __init__(self, params: ParamsT, defaults: dict):
        super().__init__(params, {**defaults, **_REPORT})

    def add_param_group(self, param_group: dict) -> None:
        """A group of parameters, with what is the same for all where it says nothing of its own."""
        super().add_param_group(param_group)
        for name, (required, right) in _BOUNDS.items():
            if name in param_group and not right(param_group[name]):
                raise ArgumentError(name, type(self).__name__, required, repr(param_group[name]))

    @torch.no_grad()
    def step(self, closure: Callable[[], Loss] | None = None, *, loss: Loss | None = None) -> Loss | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step. A closure recomputes loss and gradients first, and its value is returned; else `loss` is that of the batch."""
        returned = None
        if closure is not None:
            with torch.enable_grad():
                loss = returned = closure()
        found = [self._gradients(group) for group in self.param_groups]
        norms = [_norms(gradients) for _, gradients in found]
        everything = _joint([one for part in norms for one in part], [one for _, part in found for one in part])
        value = self._objective(loss, everything)
        for group, pairs, sizes in zip(self.param_groups, found, norms, strict=True):
            self._move(group, pairs, sizes, everything, value)
            group["step_count"] += 1
        return returned

    def _gradients(self, group: dict) -> Pairs:
        """Parameters that have a gradient, with it; a coupled weight decay is part of the gradient."""
        parameters = [one for one in group["params"] if one.grad is not None]
        gradients = [one.grad for one in parameters]
        if any(one.is_sparse for one in gradients):
            raise ArgumentError("grad", type(self).__name__, "a dense gradient", "a sparse one")
        if parameters and group["weight_decay"] and not group.get("decoupled"):
            gradients = torch._foreach_add(gradients, parameters, alpha=group["weight_decay"])
        return parameters, list(gradients)

    def _objective(self, loss: Loss | None, norm: float) -> float:
        """The number that the rule needs of the loss; most need none."""
        return math.nan

    def _move(self, group: dict, pairs: Pairs, norms: list[float], everything: float, value: float) -> None:
        raise NotImplementedError


class SNGD(_Reporting):
    """Stochastic normalised gradient descent: the step `min(lr/N, eta_max) g`, where N is the norm of the gradient.

    `scope` says over what N is taken: all parameters ("global", the joint form), each group ("group", the block form), or each tensor. `momentum` averages the normalised
    steps. Weight decay is decoupled by default, p <- (1 - lr weight_decay) p; coupled, it is part of the gradient and of N.
    Uncapped, the rule does not see a scaling of the loss or clipping by the global norm.

    >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> rule = SNGD([weight], lr=0.5)
    >>> (weight**2).sum().backward()
    >>> rule.step()
    >>> weight.tolist(), rule.param_groups[0]["last_grad_norm"]
    ([2.7..., 3.5...], 10.0)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        eta_max: float = math.inf,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        decoupled: bool = True,
        scope: str = "global",
    ):
        rule = {"lr": lr, "eta_max": eta_max, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, {**rule, "decoupled": decoupled, "scope": scope})

    def _move(self, group: dict, pairs: Pairs, norms: list[float], everything: float, value: float) -> None:
        (parameters, gradients), rate, most = pairs, float(group["lr"]), group["eta_max"]
        whole = everything if group["scope"] == "global" else math.hypot(*norms)
        scales = norms if group["scope"] == "tensor" else [whole] * len(norms)
        sizes = [min(_quotient(rate, norm), most) for norm in scales]
        if group["decoupled"] and group["weight_decay"] and parameters:
            torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        lengths = [size * norm for size, norm in zip(sizes, norms, strict=True)]
        if group["momentum"] and parameters:
            gradients = self._remembered(parameters, gradients, sizes, group["momentum"])
            lengths = _norms(gradients)
            _add(parameters, gradients, [-1.0])
        else:
            _add(parameters, gradients, [-size for size in sizes])
        step = max(sizes, default=0.0)
        group.update(last_grad_norm=whole, last_step=step, capped=step >= most, last_displacement=math.hypot(*lengths))

    def _remembered(self, parameters: list, gradients: list, sizes: list[float], momentum: float) -> list[torch.Tensor]:
        for one in parameters:
            if "momentum_buffer" not in self.state[one]:
                self.state[one]["momentum_buffer"] = torch.zeros_like(one)
        buffers = [self.state[one]["momentum_buffer"] for one in parameters]
        torch._foreach_mul_(buffers, momentum)
        _add(buffers, gradients, sizes)
        return buffers


class SPSmax(_Reporting):
    """Stochastic Polyak steps with a cap: the step `min((loss - l_star)/(c N^2), lr eta_max) g`, N the norm of the whole gradient.

    The loss is that of the batch: `step(loss=loss)` after `backward`, or `step(closure)`. `gamma` lets a step exceed the one before
    by at most gamma^(1/batches_per_epoch). A scheduler lowers the cap, by the factor `lr`. Weight decay is coupled: wd |p|^2 / 2 belongs to the loss and wd p to the gradient.
    Clipping the gradient by a factor k < 1 would lengthen the step by 1/k; bound it with `max_update_norm` instead.

    >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> rule = SPSmax([weight], eta_max=10.0)
    >>> loss = (weight**2).sum()
    >>> loss.backward()
    >>> rule.step(loss=loss)
    >>> weight.tolist(), rule.param_groups[0]["last_step"]
    ([1.5, 2.0], 0.25)
    """

    def __init__(
        self,
        params: ParamsT,
        eta_max: float,
        c: float = 1.0,
        l_star: float = 0.0,
        gamma: float | None = None,
        batches_per_epoch: int | None = None,
        weight_decay: float = 0.0,
        max_update_norm: float = math.inf,
    ):
        if gamma is not None and (not gamma >= 1 or not batches_per_epoch):
            raise ArgumentError("gamma", "SPSmax", "at least 1, with batches_per_epoch", (gamma, batches_per_epoch))
        growth = math.inf if gamma is None else gamma ** (1 / (batches_per_epoch or 1))
        rule = {"c": c, "lr": 1.0, "eta_max": eta_max, "l_star": l_star, "weight_decay": weight_decay}
        rule |= {"max_update_norm": max_update_norm, "growth": growth, "same_norm": 0}
        super().__init__(params, rule)

    def _objective(self, loss: Loss | None, norm: float) -> float:
        if loss is None:
            raise ValueError("SPSmax.step needs the loss of the batch: step(loss=loss.detach()), or step(closure).")
        if not math.isfinite(loss):
            raise FloatingPointError(f"The loss is {float(loss)}. Usual cause: a step too large before this one.")
        self._look_for_clipping(norm)
        return float(loss) + sum(self._penalty(group) for group in self.param_groups)

    @staticmethod
    def _penalty(group: dict) -> float:
        decay = group["weight_decay"]
        return 0.5 * decay * sum(float(p.double().square().sum()) for p in group["params"]) if decay else 0.0

    def _move(self, group: dict, pairs: Pairs, norms: list[float], everything: float, value: float) -> None:
        norm, rate = everything, float(group["lr"])
        wanted = _quotient(_quotient(max(value - group["l_star"], 0.0), norm), group["c"] * norm)
        most = min(rate * group["eta_max"] if rate else 0.0, group["max_update_norm"] / norm if norm else math.inf)
        if group["step_count"] and group["last_step"]:
            most = min(most, group["growth"] * group["last_step"])
        size = min(wanted, most)
        _add(*pairs, [-size])
        length = size * math.hypot(*norms)
        group.update(last_grad_norm=norm, last_step=size, capped=wanted > most, last_displacement=length)

    def _look_for_clipping(self, norm: float) -> None:
        first = self.param_groups[0]
        first["same_norm"] = (
            first["same_norm"] + 1 if norm and abs(norm - first["last_grad_norm"]) <= 1e-5 * norm else 0
        )
        if first["same_norm"] == _CLIPPED - 1:
            warn(
                f"The gradient norm was {norm:.6g} in {_CLIPPED} steps in a row: is the gradient clipped? SPSmax divides by its square, "
                "so that clipping lengthens the step; remove it and pass max_update_norm instead."
            )
