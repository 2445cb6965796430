"""The probe as a callback of the Hugging Face `Trainer`: `Trainer(..., callbacks=[ProbeCallback("run.npz")])`."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]

from ..errors import PenchantError
from ..files import check_writable
from .torch_probe import Probe


class ProbeCallback(TrainerCallback):
    """Watches the model of a trainer and writes its record to `path` when training ends; further arguments are those of `Probe`.

    `writer` is a `SummaryWriter` of TensorBoard, which gets the same curves. Weights are the same with and without it.
    Steps are counted from where this training starts; of one that is interrupted `callback.probe.save(path)` keeps the record.
    """

    def __init__(self, path: str | Path, *data: Any, writer: Any = None, **options: Any):
        check_writable(str(path))
        self.path, self.writer, self._data, self._options = Path(path), writer, data, options
        self.probe: Probe | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """The model is known from here on; only the first process of several watches it."""
        if found.get("model") is None:
            raise PenchantError("ProbeCallback needs the trainer's model: pass it to `Trainer(callbacks=[...])`.")
        if state.is_world_process_zero:
            self.probe = Probe(found["model"], *self._data, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """A step of the optimiser, however many batches went into it."""
        if self.probe:
            self.probe.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """A last record, and the file."""
        if self.probe:
            self.probe.finish(self.path, [self.writer])
