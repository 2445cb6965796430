"""What every run of an attention layer keeps, whatever its gradients came from."""

import os
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import numpy as np

from ....training.status import Status
from ....training.trajectory import write_npz
from ..setting.problem import AttentionLayer, AttentionRegression


class AbstractAttentionRun(eqx.Module):
    """R records of one run: `steps` taken and the population's `excess` L - L* at each.

    A run that diverged ends with its last finite state; `safe_step` is the step that the population would have allowed at the
    start. On a sample that diverged it is one that was tried over the same number of steps (not a number: none was found).
    """

    FORMAT: ClassVar[str]
    SERIES: ClassVar[tuple[str, ...]]

    problem: AttentionRegression
    steps: np.ndarray
    excess: np.ndarray
    status: Status = eqx.field(static=True, kw_only=True)
    safe_step: float = eqx.field(static=True, kw_only=True)
    header: dict = eqx.field(static=True, kw_only=True)

    def __len__(self) -> int:
        return len(self.steps)

    @abstractmethod
    def at(self, record: int = -1) -> AttentionLayer:
        """U and V at a record (the last one by default)."""

    def save(self, path: str | os.PathLike) -> Path:
        """Write all series and the final U and V."""
        layer = self.at()
        arrays = {name: getattr(self, name) for name in self.SERIES}
        arrays |= {"U": np.asarray(layer.value), "V": np.asarray(layer.key_query)}
        return write_npz(path, {"format": self.FORMAT, **self.header, "status": self.status.name}, arrays)
