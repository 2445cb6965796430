"""The probe inside other people's loops: the same weights with and without it, and a record like any other."""

import importlib
import logging

import numpy as np
import pytest

from penchant.errors import DataFileError
from penchant.report.networks import read_network

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

ROWS = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 3, (24,), generator=torch.Generator().manual_seed(1))


class Writer:
    """What the standard writer of TensorBoard is asked for."""

    def __init__(self):
        self.seen = {}

    def add_scalar(self, name, value, step):
        self.seen.setdefault(name, []).append((step, value))


def flat(model):
    return torch.cat([one.detach().ravel() for one in model.parameters()])


def test_what_is_not_known_is_no_curve_of_tensorboard():
    """A probe without data knows no loss where nobody tells it, and writers complain of numbers that are none."""
    from penchant.bridge.torch_probe import Probe

    writer, probe = Writer(), Probe(nn.Sequential(nn.Linear(5, 3), nn.Linear(4, 2)))
    probe.write_scalars(writer)
    assert not {"probe/losses", "probe/alignment"} & set(writer.seen)
    assert writer.seen["probe/frobenius/0"] == [(0, probe.frobenius[0, 0])]


@pytest.mark.filterwarnings("ignore")
def test_trainer_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from penchant.bridge.torch_transformers import ProbeCallback

    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=24, max_position_embeddings=8, num_labels=3)
    words = torch.randint(0, 20, (24, 6), generator=torch.Generator().manual_seed(2))
    rows = [{"input_ids": words[k], "labels": LABELS[k]} for k in range(24)]
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 5, "use_cpu": True}
    options |= {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "seed": 0}
    ends, writer = [], Writer()
    for probed in (False, True):
        torch.manual_seed(0)
        model = transformers.BertForSequenceClassification(config)
        watch = [ProbeCallback(tmp_path / "run.npz", words, LABELS, writer=writer, budget=None)] if probed else None
        asked = transformers.TrainingArguments(str(tmp_path / "out"), **options)
        transformers.Trainer(model, asked, train_dataset=rows, callbacks=watch).train()
        ends.append(flat(model))
    assert torch.equal(*ends)
    header, series = read_network(tmp_path / "run.npz")
    assert header["model"] == "BertForSequenceClassification"
    assert series["steps"].tolist() == [0, 1, 2, 3, 4, 5]
    assert np.isfinite(series["losses"]).all()
    assert "probe/frobenius/classifier" in writer.seen
    assert [step for step, _ in writer.seen["probe/losses"]] == [0, 1, 2, 3, 4, 5]


def fitted(folder, watch, epochs=2, checkpoint=None, fails_at=None):
    """A network after some epochs of Lightning, 3 steps of two batches each, and its trainer."""
    lightning = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))

        def forward(self, x):
            return self.layers(x)

        def training_step(self, batch, _):
            if self.global_step == fails_at:
                raise RuntimeError("a fault of the user's own")
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)

    torch.manual_seed(0)
    model, loader = Net(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ROWS, LABELS), 4)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    told = {"max_epochs": epochs, "accumulate_grad_batches": 2, "callbacks": watch, "default_root_dir": folder}
    trainer = lightning.Trainer(accelerator="cpu", **told, **quiet)
    trainer.fit(model, loader, ckpt_path=checkpoint, weights_only=False)
    return model, trainer


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path):
    pytest.importorskip("lightning.pytorch")
    from penchant.bridge.torch_lightning import LightningProbe

    watch = LightningProbe(tmp_path / "run.npz", ROWS, LABELS, budget=None)
    ends = [flat(fitted(tmp_path, callbacks)[0]) for callbacks in ([], [watch])]
    assert torch.equal(*ends)
    header, series = read_network(tmp_path / "run.npz")
    assert header["layers"] == ["layers.0", "layers.3"]
    assert series["steps"].tolist() == [0, 1, 2, 3, 4, 6]


@pytest.mark.filterwarnings("ignore")
def test_steps_are_those_of_the_optimiser_also_from_a_checkpoint(tmp_path):
    pytest.importorskip("lightning.pytorch")
    from penchant.bridge.torch_lightning import LightningProbe

    kept = tmp_path / "net.ckpt"
    fitted(tmp_path, [])[1].save_checkpoint(kept)
    fitted(tmp_path, [LightningProbe(tmp_path / "run.npz", every=1, budget=None)], 3, kept)
    assert read_network(tmp_path / "run.npz")[1]["steps"].tolist() == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_fails_leaves_its_record(tmp_path):
    pytest.importorskip("lightning.pytorch")
    from penchant.bridge.torch_lightning import LightningProbe

    with pytest.raises(RuntimeError, match="user's own"):
        fitted(tmp_path, [LightningProbe(tmp_path / "run.npz", budget=None)], fails_at=4)
    assert read_network(tmp_path / "run.npz")[1]["steps"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("module", "name"), [("torch_transformers", "ProbeCallback"), ("torch_lightning", "LightningProbe")]
)
@pytest.mark.filterwarnings("ignore")
def test_a_record_that_cannot_be_written_is_refused_before_training(tmp_path, module, name):
    pytest.importorskip("transformers" if name == "ProbeCallback" else "lightning")
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "run.npz"):
        with pytest.raises(DataFileError, match="Cannot write"):
            getattr(importlib.import_module(f"penchant.bridge.{module}"), name)(path)


@pytest.mark.filterwarnings("ignore")
def test_the_standard_writer_of_tensorboard(tmp_path):
    writers = pytest.importorskip("tensorboardX")
    from penchant.bridge.torch_probe import Probe

    probe = Probe(nn.Sequential(nn.Linear(5, 3)), ROWS, LABELS)
    with writers.SummaryWriter(str(tmp_path)) as writer:
        probe.write_scalars(writer)
    (file,) = tmp_path.iterdir()
    assert b"probe/frobenius/0" in file.read_bytes()
