"""Long runs in pieces: compiled code cannot be interrupted, so that control comes back about once a second."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .status import Status

REFRESH = 1000  # steps after which margins that travel with the parameters are recomputed from them
_PIECE = 250 * REFRESH  # steps of the first piece: most runs have no second one
_BRIEF = 0.5  # seconds; a piece that takes less is followed by one twice as long
_RECORDS = 64  # of a later piece, of which there is one compiled form


def in_pieces(run: Callable, schedule: np.ndarray) -> tuple[Any, Any]:
    """The last carry of `run(targets, carry)` over the schedule, and its records; a batch has its members on the first axis.

    The same numbers as in one piece: a run is cut where its margins are recomputed anyway, and records made there are dropped.
    """
    head, rest = np.split(schedule, [np.searchsorted(schedule, _PIECE, "right")])
    carry, records = jax.tree.map(np.asarray, run(jnp.asarray(head), None))
    found, last, length, axis = [records], int(head[-1]), _PIECE, carry.status.ndim
    while len(rest) and (carry.status == Status.running).any():
        begun, near = time.monotonic(), rest[rest <= last + length][:_RECORDS]
        last = int(near[-1]) if len(near) else last + length
        targets = np.append(near, np.full(_RECORDS - len(near), last))
        carry, records = jax.tree.map(np.asarray, run(jnp.asarray(targets), carry))
        ended = (carry.status != Status.running).all()
        kept = slice(len(near) or int(ended))  # where a run ends belongs to it, also between records
        found.append(jax.tree.map(lambda leaf, kept=kept: leaf[(slice(None),) * axis + (kept,)], records))
        length, rest = length * (2 if time.monotonic() - begun < _BRIEF else 1), rest[len(near) :]
    return carry, jax.tree.map(lambda *parts: np.concatenate(parts, axis), *found)
