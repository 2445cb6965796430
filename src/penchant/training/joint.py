"""Joint training of attention and decoder: one compiled run for a batch of data sets, records at chosen steps."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..errors import ArgumentError
from ..files import mark
from ..logspace import check_float64
from ..optimisers.joint import AbstractJointRule, JointMove
from ..problem import RESOLUTION
from ..settings.joint import JointPoint, JointReading, JointStart, JointTokens, TokenGram
from ..settings.losses import AbstractLoss, Exponential
from .joint_batch import JointBatch, counterpart
from .loop import check_steps, collect, drive_many, drive_one, first_of, running, stepped
from .recorders import LogSpaced
from .status import Status
from .trajectory import settings_of, write_npz

FORMAT = mark("joint trajectory")
_LEAP = 1e6
_FLAT = 1e-8  # |theta| |grad log L| below this at a step that rounding swallows: a minimum, not a gradient that has underflown
_SERIES = ("steps", "log_loss", "norm_u", "norm_W", "log_slope_u", "log_slope_W", "scores", "logits", "outputs")


class _State(eqx.Module):
    point: JointPoint
    memory: JointPoint | None
    count: Int[Array, ""]
    status: Int[Array, ""]
    first_capped: Int[Array, ""]


class JointTrajectory(eqx.Module):
    """R records of one joint run.

    `log_loss`, the norms of u and W, `log_slope_*` = log|grad_* log L|, `scores` and `logits` (R x n x T), `outputs` z
    (R x n), and the token coefficients `u`, `W` (R x n x T) of what training has added to `start` (None: zero);
    `first_capped` is the step at which a cap first decided, or -1.
    """

    data: JointTokens
    loss: AbstractLoss
    steps: np.ndarray
    log_loss: np.ndarray
    norm_u: np.ndarray
    norm_W: np.ndarray
    log_slope_u: np.ndarray
    log_slope_W: np.ndarray
    scores: np.ndarray
    logits: np.ndarray
    outputs: np.ndarray
    u: np.ndarray
    W: np.ndarray
    start: JointStart | None
    first_capped: int = eqx.field(static=True)
    status: Status = eqx.field(static=True)
    header: dict = eqx.field(static=True)

    @property
    def parts(self) -> dict[str, Any]:
        return {"data": self.data, "loss": self.loss}

    def __len__(self) -> int:
        return len(self.steps)

    def decoder(self, record: int = -1) -> np.ndarray:
        """u as a vector."""
        added = np.einsum("nt,ntd->d", self.u[record], self.data.tokens)
        return added if self.start is None else added + np.asarray(self.start.u)

    def weight(self, record: int = -1) -> np.ndarray:
        """W as a matrix."""
        added = np.einsum("nt,ntd->nd", self.W[record], self.data.tokens).T @ np.asarray(self.data.queries)
        return added if self.start is None else added + np.asarray(self.start.W)

    def log_attention(self) -> np.ndarray:
        """log softmax of the logits, R x n x T."""
        return np.asarray(jax.nn.log_softmax(jnp.asarray(self.logits), axis=-1))

    def selection(self, record: int = -1) -> np.ndarray:
        """The token with most attention in every sample."""
        return self.logits[record].argmax(axis=-1)

    def lines(self) -> tuple[str, str]:
        """How a run ended and where, as `penchant train --joint` prints it."""
        sizes = f"log loss {self.log_loss[-1]:.8g}, |W| {self.norm_W[-1]:.6g}, |u| {self.norm_u[-1]:.6g}"
        return (
            f"status     {self.status.name}: {self.status.message}",
            f"run        {self.steps[-1]} steps, {sizes}",
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<JointTrajectory of {self.steps[-1]} steps, {len(self)} records: {self.status.name}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def save(self, path: str | Path) -> Path:
        """Write all series, the coefficients, and the final u and W."""
        arrays = {name: getattr(self, name) for name in _SERIES}
        arrays |= {"coefficients_u": self.u, "coefficients_W": self.W, "u": self.decoder(), "W": self.weight()}
        return write_npz(path, {"format": FORMAT, **self.header, "status": self.status.name}, arrays)


def train_joint(
    data: Any,
    rule: Any,
    *,
    steps: Any,
    start: JointStart | Sequence[JointStart] | None = None,
    loss: Any = None,
    recorder: Any = None,
) -> Any:
    """Train W and u of `JointTokens` together by a joint rule for `steps` steps, from zero or from `start`.

    A list of data sets of one shape, of starts, of step sizes (where a rule takes a number) or of several of these, all of one
    length, is one vectorised run that returns a list.

    >>> from penchant.optimisers.joint import BlockNormalised
    >>> from penchant.settings.joint import marked_tokens
    >>> run = train_joint(marked_tokens(), BlockNormalised(0.05), steps=100)
    >>> run.status.name, round(float(run.norm_u[-1]), 2), round(float(run.norm_W[-1]), 2)
    ('out_of_steps', 4.98, 4.83)
    >>> runs = train_joint(marked_tokens(), BlockNormalised([0.01, 0.05]), steps=100)
    >>> [round(float(run.norm_u[-1]), 2) for run in runs]
    [0.99, 4.98]
    """
    check_float64()
    loss = Exponential() if loss is None else loss
    if not isinstance(loss, AbstractLoss):
        raise ArgumentError("loss", "train_joint", "a loss such as Exponential() or Logistic()", repr(loss))
    if not isinstance(rule, AbstractJointRule):
        raise ArgumentError("rule", "train_joint", "a rule for two blocks", type(rule).__name__, counterpart(rule))
    batch = JointBatch(data, rule, start)
    for one in batch.sets:
        one.check_loss(loss)
    steps = check_steps(steps, "train_joint")
    schedule = jnp.asarray((recorder or LogSpaced()).schedule(steps))
    parts = (batch.grams(), rule, loss)
    if batch.many:
        states, records = drive_many(_Joint, (*batch.axes, None), parts, schedule)
    else:
        states, records = jax.tree.map(lambda leaf: leaf[None], drive_one(_Joint(*parts), schedule))
    runs = []
    for k, (one, begin, member) in enumerate(batch.members()):
        header = {"loss": type(loss).__name__, "optimiser": settings_of(member), "steps": steps}
        header["growth_ratio"] = float(member.growth_ratio)
        series, ending = collect(states.status[k], jax.tree.map(lambda leaf, k=k: np.asarray(leaf[k]), records))
        capped = int(states.first_capped[k])
        run = JointTrajectory(one, loss, **series, start=begin, first_capped=capped, status=ending, header=header)
        runs.append(run)
    return runs if batch.many else runs[0]


class _Joint(eqx.Module):
    """Joint training as a process; a `Process` of `drive`."""

    gram: TokenGram
    rule: AbstractJointRule
    loss: AbstractLoss

    def begin(self) -> _State:
        n = len(self.gram.labels)
        zeros = jnp.zeros((n, len(self.gram.plain) // n))
        memory = self.rule.init(JointPoint(zeros, zeros, zeros, zeros))
        first = self.gram.point(zeros, zeros)
        critical = self.gram.vanished(self.gram.read(first, self.loss))
        status = jnp.where(critical, int(Status.zero_gradient), int(Status.running))
        return _State(first, memory, jnp.asarray(0), status, jnp.asarray(-1))

    def burst(self, state: _State, until: Array) -> _State:
        """The scores and logits travel for speed; at every record they are recomputed, so that rounding does not accumulate."""
        state = jax.lax.while_loop(lambda s: running(s, until), lambda s: self._step(s), state)
        return eqx.tree_at(lambda s: s.point, state, self.gram.point(state.point.u, state.point.W))

    def _step(self, state: _State) -> _State:
        reading = self.gram.read(state.point, self.loss)
        move = self.rule.move(reading, state.memory, state.count)
        moved = jax.tree.map(jnp.add, state.point, move.displacement)
        status = first_of(_endings(self.gram, state.point, reading, move))
        capped = jnp.where((state.first_capped < 0) & move.capped, state.count, state.first_capped)
        return stepped(state, _State(moved, move.memory, state.count + 1, status, capped))

    def record(self, state: _State) -> dict[str, Array]:
        point, reading = state.point, self.gram.read(state.point, self.loss)
        norm_u, norm_W = self.gram.norms(point)
        return {
            "steps": state.count,
            "log_loss": reading.log_loss,
            "norm_u": norm_u,
            "norm_W": norm_W,
            "log_slope_u": reading.u.log_gradient_norm - reading.log_loss,
            "log_slope_W": reading.W.log_gradient_norm - reading.log_loss,
            "scores": point.scores,
            "logits": point.logits,
            "outputs": reading.outputs,
            "u": point.u,
            "W": point.W,
        }


def _endings(
    gram: TokenGram, point: JointPoint, reading: JointReading, move: JointMove
) -> tuple[tuple[Any, Status], ...]:
    """What ends joint training at a step; the first that holds decides."""
    length, norm = gram.length(move.displacement), jnp.hypot(*gram.norms(point))
    flat = reading.log_gradient_norm - reading.log_loss + jnp.log(norm) < jnp.log(_FLAT)
    largest = jnp.maximum(jnp.max(jnp.abs(reading.outputs)), jnp.max(jnp.abs(point.logits)))
    return (
        (~jnp.isfinite(reading.log_loss), Status.not_finite),
        (flat & (length <= jnp.finfo(float).eps * norm), Status.settled),
        (jnp.finfo(float).eps * largest > RESOLUTION, Status.resolution_exhausted),
        (~(length <= _LEAP * jnp.maximum(1.0, norm)), Status.diverging_step),
    )
