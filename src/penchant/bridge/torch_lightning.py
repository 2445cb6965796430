"""The probe as a callback of Lightning: `Trainer(callbacks=[LightningProbe("run.npz")])`."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]

from ..files import check_writable
from .torch_probe import Probe


class LightningProbe(Callback):
    """Watches a module that Lightning trains and writes its record to `path` when training ends; further arguments are those of `Probe`.

    Every logger of the trainer that writes for TensorBoard gets the same curves. Weights are the same with and without it.
    Steps are counted from where this training starts, also from a checkpoint; one that is interrupted leaves what was recorded until then.
    """

    def __init__(self, path: str | Path, *data: Any, **options: Any):
        check_writable(str(path))
        self.path, self._data, self._options = Path(path), data, options
        self.probe: Probe | None = None
        self._known = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Only the first process of several watches."""
        if trainer.is_global_zero:
            self.probe, self._known = Probe(pl_module, *self._data, **self._options), trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step of the optimiser, however many batches went into it."""
        if self.probe and trainer.global_step > self._known:
            self._known = trainer.global_step
            self.probe.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """A last record, the file, and the curves."""
        if self.probe:
            self.probe.finish(self.path, (logger.experiment for logger in trainer.loggers))

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The file of what was recorded, without a look at weights that may be what went wrong."""
        if self.probe:
            self.probe.save(self.path)
