"""The probe as a callback of Lightning: `Trainer(callbacks=[LightningProbe("run.npz")])`."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]

from .torch_probe import Probe


class LightningProbe(Callback):
    """Watches a module that Lightning trains and writes its record to `path` when training ends; further arguments are those of `Probe`.

    Every logger of the trainer that writes for TensorBoard gets the same curves. Weights are the same with and without it.
    """

    def __init__(self, path: str | Path, *data: Any, **options: Any):
        self.path, self._data, self._options = Path(path), data, options
        self.probe: Probe | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Only the first process of several watches."""
        if trainer.is_global_zero:
            self.probe = Probe(pl_module, *self._data, **self._options)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step of the optimiser, however many batches went into it."""
        if self.probe and trainer.global_step > self.probe.count:
            self.probe.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """A last record, the file, and the curves."""
        if self.probe:
            self.probe.finish(self.path, (logger.experiment for logger in trainer.loggers))
