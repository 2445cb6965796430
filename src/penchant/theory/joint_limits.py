"""Where a joint run goes: the selection it reached, and the programs of that selection that u and W solve."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..diagnostics.direction import misalignment
from ..errors import (
    ArgumentError,
    InfeasibleDecoder,
    InfeasibleError,
    NotSeparableError,
    UndecidedMargin,
)
from ..references.base import Solution
from ..references.euclidean_margin import max_margin
from ..references.offset_margin import OffsetSolution, offset_margin
from ..settings.joint import JointTokens
from ..training.joint import JointTrajectory

_SETTLED = 0.9  # attention below this on its leading token leaves the selection open


class JointReferences(eqx.Module):
    """The programs of one selection.

    `attention`: shortest W that selects the tokens; `decoder`: shortest u that classifies them; `offset`: the W-program in
    which every sample is helped by `ratio` times its decoder margin (its limit when |u|/|W| tends to that ratio); `support_only`:
    the W-program of the samples that support the decoder (the limit when |u| outgrows |W|). They agree when every sample supports.
    """

    tokens: tuple[int, ...]
    attention: Solution
    decoder: Solution
    offset: OffsetSolution
    support_only: Solution
    ratio: float = 1.0

    @property
    def all_support(self) -> bool:
        return bool(self.decoder.support.all())


def joint_references(data: JointTokens, selection: Any = None, ratio: float = 1.0) -> JointReferences:
    """Solve the four programs of a selection (the optimal one by default), the offset program for this ratio |u|/|W|."""
    if not (isinstance(ratio, int | float) and 0 <= ratio < np.inf):
        raise ArgumentError("ratio", "joint_references", "a nonnegative, finite number", repr(ratio))
    chosen = np.asarray(data.optimal if selection is None else selection)
    attention = data.attention(chosen)
    try:
        decoder = max_margin(data.decoder(chosen))
    except NotSeparableError as error:
        raise InfeasibleDecoder(chosen.tolist(), error.weights, error.norm) from None
    reached = np.asarray(data.decoder(chosen).margins(jnp.asarray(decoder.weight))) / np.linalg.norm(decoder.weight)
    others = attention.others.shape[1]
    return JointReferences(
        tuple(int(token) for token in chosen),
        max_margin(attention),
        decoder,
        offset_margin(attention, ratio * np.repeat(reached, others)),
        max_margin(data.attention(chosen, np.flatnonzero(decoder.support))),
        ratio,
    )


class JointLimit(eqx.Module):
    """Where a joint run has gone: `kind` is "global" (the optimal tokens), "local" (others) or "undecided".

    1 - corr of u to the decoder program and of W to the three attention programs, all of the reached selection (while undecided,
    of the tokens that lead so far); NaN where a program has no solution or a block is still 0. `concentration` is the smallest
    attention that a sample gives to its leading token: below 0.9 the selection is open.
    """

    kind: str
    tokens: tuple[int, ...]
    references: JointReferences | None
    decoder: float
    attention: float
    offset: float
    support_only: float
    concentration: float


def detect_joint_limit(run: JointTrajectory) -> JointLimit:
    """Name where a joint run has gone, from its last record; the offset program is that of the ratio at which its blocks grow."""
    tokens = tuple(int(token) for token in run.selection())
    nan, concentration = float("nan"), float(np.exp(run.log_attention()[-1]).max(axis=1).min())
    kind = "global" if np.array_equal(tokens, run.data.optimal) else "local"
    kind = "undecided" if concentration < _SETTLED else kind
    weight, decoder = run.weight(), run.decoder()
    try:
        ratio = run.header["growth_ratio"]
        found = joint_references(run.data, np.asarray(tokens), ratio) if weight.any() or decoder.any() else None
    except (InfeasibleError, UndecidedMargin):
        found = None
    if found is None:
        return JointLimit(kind, tokens, None, nan, nan, nan, nan, concentration)
    programs = (found.attention, found.offset, found.support_only)
    attention, offset, support_only = (misalignment(weight, p.weight) if weight.any() else nan for p in programs)
    to_decoder = misalignment(decoder, found.decoder.weight) if decoder.any() else nan
    return JointLimit(kind, tokens, found, to_decoder, attention, offset, support_only, concentration)
