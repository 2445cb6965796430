"""The step rules of the theory for PyTorch networks: normalised stochastic descent and capped Polyak steps.

Both are ordinary `torch.optim.Optimizer`s: parameter groups, `state_dict`, learning-rate schedulers and a gradient scaler work as
with any other. Every group reports `last_grad_norm`, `last_step` (the multiplier of the gradient), `capped`, `last_displacement`
and `step_count`.
"""

import math
from collections.abc import Callable, Iterable

import torch  # pyright: ignore[reportMissingImports]
from torch.optim.optimizer import ParamsT  # pyright: ignore[reportMissingImports]

from ..errors import ArgumentError, warn

Loss = torch.Tensor | float
_REPORT = {"last_grad_norm": 0.0, "last_step": 0.0, "capped": False, "last_displacement": 0.0, "step_count": 0}
_CLIPPED = 3  # steps in a row with one and the same gradient norm: no stochastic gradient does that by itself
_SCOPES = ("global", "group", "tensor")


def _check(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not value >= 0 or (value == 0 and name in ("lr", "c", "eta_max")):
            required = "positive" if name in ("lr", "c", "eta_max") else "zero or positive"
            raise ArgumentError(name, owner, required, value)


def _norm(gradients: Iterable[torch.Tensor]) -> float:
    """Euclidean norm of all entries together; half precision is summed in float32, float64 in float64."""
    wide = [g if g.dtype in (torch.float32, torch.float64) else g.float() for g in gradients]
    found = math.hypot(*(float(torch.linalg.vector_norm(g)) for g in wide))
    if not math.isfinite(found):
        raise FloatingPointError(
            f"The gradient norm is {found}. Usual causes: a step too large before this one, a loss of half precision without a "
            "gradient scaler. Lower `lr` or `eta_max`, or use torch.amp.GradScaler, which skips such steps."
        )
    return found


class _Reporting(torch.optim.Optimizer):
    """What both rules share: gradients that are present and dense, and a report in every group."""

    def __init__(self, params: ParamsT, defaults: dict):
        super().__init__(params, {**defaults, **_REPORT})

    def _gradients(self, group: dict, decay: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Parameters and gradients of a group; a coupled weight decay is part of the gradient."""
        found = []
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                raise ArgumentError("grad", type(self).__name__, "a dense gradient", "a sparse one")
            found.append((parameter, parameter.grad + decay * parameter if decay else parameter.grad))
        return found

    @staticmethod
    def _report(group: dict, norm: float, step: float, capped: bool, moved: list[torch.Tensor]) -> None:
        displacement = _norm(moved) if moved else 0.0
        group.update(last_grad_norm=norm, last_step=step, capped=capped, last_displacement=displacement)
        group["step_count"] += 1


class SNGD(_Reporting):
    """Stochastic normalised gradient descent: the step `min(lr/N, eta_max) g`, where N is the norm of the gradient.

    `scope` says over what N is taken: all parameters ("global"), each group, or each tensor. `momentum` averages the normalised
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
        _check("SNGD", lr=lr, eta_max=eta_max, momentum=momentum, weight_decay=weight_decay)
        if not momentum < 1:
            raise ArgumentError("momentum", "SNGD", "below 1", momentum)
        if scope not in _SCOPES:
            raise ArgumentError("scope", "SNGD", f"one of {', '.join(_SCOPES)}", repr(scope))
        self.scope = scope
        rule = {"lr": lr, "eta_max": eta_max, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, {**rule, "decoupled": decoupled})

    @torch.no_grad()
    def step(self, closure: Callable[[], Loss] | None = None) -> Loss | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step; a closure recomputes the loss first and its value is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        decay = lambda group: 0.0 if group["decoupled"] else group["weight_decay"]
        found = [self._gradients(group, decay(group)) for group in self.param_groups]
        everything = _norm(g for pairs in found for _, g in pairs)
        for group, pairs in zip(self.param_groups, found, strict=True):
            self._move(group, pairs, everything)
        return loss

    def _move(self, group: dict, pairs: list, everything: float) -> None:
        whole = everything if self.scope == "global" else _norm(g for _, g in pairs)
        steps, moved = [0.0], []
        for parameter, gradient in pairs:
            norm = _norm([gradient]) if self.scope == "tensor" else whole
            size = min(group["lr"] / norm, group["eta_max"]) if norm else 0.0
            steps.append(size)
            change = self._remembered(parameter, size * gradient, group["momentum"])
            if group["decoupled"]:
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.sub_(change)
            moved.append(change)
        self._report(group, whole, max(steps), max(steps) >= group["eta_max"], moved)

    def _remembered(self, parameter: torch.Tensor, change: torch.Tensor, momentum: float) -> torch.Tensor:
        if not momentum:
            return change
        state = self.state[parameter]
        buffer = state["momentum_buffer"].mul_(momentum).add_(change) if "momentum_buffer" in state else change.clone()
        state["momentum_buffer"] = buffer
        return buffer


class SPSmax(_Reporting):
    """Stochastic Polyak steps with a cap: the step `min((loss - l_star)/(c N^2), eta_max) g`, N the norm of the whole gradient.

    The loss is that of the batch: `step(loss=loss)` after `backward`, or `step(closure)`. `gamma` lets a step exceed the one before
    by at most gamma^(1/batches_per_epoch). Weight decay is coupled: wd |p|^2 / 2 belongs to the loss and wd p to the gradient.
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
        _check("SPSmax", eta_max=eta_max, c=c, weight_decay=weight_decay)
        if not max_update_norm > 0:
            raise ArgumentError("max_update_norm", "SPSmax", "positive", max_update_norm)
        if gamma is not None and (not gamma >= 1 or not batches_per_epoch):
            raise ArgumentError("gamma", "SPSmax", "at least 1, with batches_per_epoch", (gamma, batches_per_epoch))
        self.growth = math.inf if gamma is None else gamma ** (1 / (batches_per_epoch or 1))
        self._same, self._warned = 0, False
        rule = {"c": c, "eta_max": eta_max, "l_star": l_star, "weight_decay": weight_decay}
        super().__init__(params, {**rule, "max_update_norm": max_update_norm})

    @torch.no_grad()
    def step(self, closure: Callable[[], Loss] | None = None, *, loss: Loss | None = None) -> Loss | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step. The loss is a closure's value or is given; one of the two is needed."""
        returned = None
        if closure is not None:
            with torch.enable_grad():
                loss = returned = closure()
        if loss is None:
            raise ValueError("SPSmax.step needs the loss of the batch: step(loss=loss.detach()), or step(closure).")
        found = [self._gradients(group, group["weight_decay"]) for group in self.param_groups]
        norm = _norm(g for pairs in found for _, g in pairs)
        self._look_for_clipping(norm)
        value = float(loss) + sum(self._penalty(group) for group in self.param_groups)
        for group, pairs in zip(self.param_groups, found, strict=True):
            self._move(group, pairs, norm, value)
        return returned

    @staticmethod
    def _penalty(group: dict) -> float:
        decay = group["weight_decay"]
        return 0.5 * decay * sum(float(p.double().square().sum()) for p in group["params"]) if decay else 0.0

    def _move(self, group: dict, pairs: list, norm: float, value: float) -> None:
        wanted = max(value - group["l_star"], 0.0) / (group["c"] * norm**2) if norm else 0.0
        most = min(group["eta_max"], group["max_update_norm"] / norm if norm else math.inf)
        if group["step_count"] and group["last_step"]:
            most = min(most, self.growth * group["last_step"])
        size = min(wanted, most)
        moved = [size * gradient for _, gradient in pairs]
        for (parameter, _), change in zip(pairs, moved, strict=True):
            parameter.sub_(change)
        self._report(group, norm, size, wanted > most, moved)

    def _look_for_clipping(self, norm: float) -> None:
        last = self.param_groups[0]["last_grad_norm"]
        self._same = self._same + 1 if norm and abs(norm - last) <= 1e-5 * norm else 0
        if self._same >= _CLIPPED - 1 and not self._warned:
            self._warned = True
            warn(
                f"The gradient norm was {norm:.6g} in {_CLIPPED} steps in a row: is the gradient clipped? SPSmax divides by its square, "
                "so that clipping lengthens the step; remove it and pass max_update_norm instead."
            )
