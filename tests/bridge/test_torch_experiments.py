"""The papers' experiments: the networks are those they say, and a tiny run writes what a full one does."""

import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from penchant import data
from penchant.cli import _parser, main
from penchant.errors import ArgumentError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from penchant.bridge import torch_experiments  # noqa: E402
from penchant.bridge.torch_networks import Encoder, VisionTransformer  # noqa: E402
from penchant.bridge.wordpiece import WordPiece  # noqa: E402

DOCS = Path(__file__).parents[2] / "docs"


def weights(words=40, width=24, hidden=32, depth=2, places=16):
    rng = np.random.default_rng(0)
    normal = lambda *shape: 0.1 * rng.normal(size=shape).astype(np.float32)
    found = {"embeddings.word_embeddings.weight": normal(words, width)}
    found |= {
        f"embeddings.{n}_embeddings.weight": normal(k, width) for n, k in (("position", places), ("token_type", 2))
    }
    found |= {"embeddings.LayerNorm.weight": 1 + normal(width), "embeddings.LayerNorm.bias": normal(width)}
    for k in range(depth):
        shapes = {f"attention.self.{n}": (width, width) for n in ("query", "key", "value")}
        shapes |= {"attention.output.dense": (width, width), "intermediate.dense": (hidden, width)}
        shapes |= {
            "output.dense": (width, hidden),
            "attention.output.LayerNorm": (width,),
            "output.LayerNorm": (width,),
        }
        for name, shape in shapes.items():
            found[f"encoder.layer.{k}.{name}.weight"] = normal(*shape)
            found[f"encoder.layer.{k}.{name}.bias"] = normal(shape[0])
    return found


def test_the_encoder_computes_what_the_published_architecture_does():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 16, "layer_norm_eps": 1e-12}
    other = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False).eval()
    other.load_state_dict({name: torch.from_numpy(one) for name, one in weights().items()}, strict=False)
    model, words = Encoder(weights(), heads=3), torch.tensor([[2, 7, 9, 3, 0, 0], [2, 5, 3, 0, 0, 0]])
    there = (words != 0)[..., None]
    with torch.no_grad():
        seen = other(words, attention_mask=there[..., 0].long()).last_hidden_state
        torch.testing.assert_close(model(words), model.head((seen * there).sum(1) / there.sum(1)), rtol=1e-4, atol=1e-6)


def test_words_are_cut_as_the_published_tokeniser_does():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "##s", "!", "cafe", "'", "t", "don", "中"]
    texts = ["Playing, plays!", "Café\tdon't \x00 zzz", "中 play", "play [SEP] play", "", "x" * 200]
    mine = WordPiece("\n".join(words))
    assert mine.tokens(texts[:2], 8).tolist() == [[2, 4, 5, 1, 4, 6, 7, 3], [2, 8, 11, 9, 10, 1, 3, 0]]
    assert mine.tokens(texts[3:4], 8).tolist() == [[2, 4, 3, 4, 3, 0, 0, 0]]
    tokenizers = pytest.importorskip("tokenizers")
    tool = tokenizers.Tokenizer(tokenizers.models.WordPiece({w: k for k, w in enumerate(words)}, unk_token="[UNK]"))
    tool.normalizer = tokenizers.normalizers.BertNormalizer()
    tool.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    for text in texts[:3] + texts[4:]:
        inside = tool.encode(text).ids[:10]
        assert mine.tokens([text], 12)[0, : len(inside) + 2].tolist() == [2, *inside, 3]


def test_shifted_patches_see_their_neighbours_and_no_token_attends_to_itself():
    model = VisionTransformer(side=8, patch=4, width=8, depth=1, heads=2, small_data=True)
    image = torch.zeros(1, 1, 8, 8)
    image[..., 3, 3] = 1.0  # in the first patch, and in the second by a shift of two pixels
    tokens = lambda x: model.embedding(torch.cat([x, *_shifts(x)], 1)).flatten(2)[0].T
    moved = (tokens(image) - tokens(torch.zeros_like(image))).norm(dim=1) > 0
    assert moved.tolist() == [True, True, True, True]
    assert model(image).shape == (1, 10)
    attention = model.blocks[0].attention
    value, drawn = torch.randn(1, 4, 8), torch.randn(1, 4, 8)
    with torch.no_grad():
        changed = drawn.clone()
        changed[0, 2] = value[0, 2]
        before = attention.value(drawn)
        assert attention.itself.diagonal().lt(-1e8).all()
        assert before.shape == attention(changed).shape


def _shifts(x):
    padded = nn.functional.pad(x, [2] * 4)
    return [padded[..., a : a + 8, b : b + 8] for a in (0, 4) for b in (0, 4)]


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Eighty random images in a folder of the user's own, and networks of a few units."""
    rng = np.random.default_rng(0)
    for name, shape in (("mnist", (28, 28)), ("cifar10", (32, 32, 3))):
        labels = rng.integers(0, 10, 80, np.uint8)
        images = rng.integers(0, 256, (80, *shape), np.uint8)
        parts = {f"{p}_{k}": v for p in ("train", "test") for k, v in (("images", images), ("labels", labels))}
        np.savez(tmp_path / f"{name}.npz", **parts)
    quick = {"seeds": (0, 1), "factors": (0.1, 1.0), "samples": 40, "epochs": 2}
    table = torch_experiments.EXPERIMENTS
    small = {
        "vit-mnist": torch_experiments._vision(28, 1, 8, 1, 2, 14),
        "alexnet-cifar10": torch_experiments._alexnet(0.05, 16),
    }
    for name, network in small.items():
        monkeypatch.setitem(table, name, table[name]._replace(batch=20, quick={**quick, "network": network}))
    return tmp_path


@pytest.mark.parametrize("name", ["vit-mnist", "alexnet-cifar10"])
def test_a_tiny_experiment_tries_the_same_grid_for_each_and_runs_the_best(tiny, name):
    *_, found = torch_experiments.experiment(name, folder=str(tiny))
    found = json.loads(json.dumps(found))
    variants = torch_experiments.EXPERIMENTS[name].variants
    assert [(one["variant"], one["factor"]) for one in found["grid"]] == [(v, f) for v in variants for f in (0.1, 1.0)]
    assert len(found["runs"]) == 2 * len(variants)
    for run in found["runs"]:
        tried = {one["factor"]: one["train_loss"][-1] for one in found["grid"] if one["variant"] == run["variant"]}
        assert run["factor"] == min(tried, key=lambda factor: tried[factor])
        assert len(run["train_loss"]) == 3
        assert len(run["batch_loss"]) == 2
    assert "sha256" in found["data"]["mnist" if name == "vit-mnist" else "cifar10"]
    if name == "alexnet-cifar10":
        equal = next(one for one in found["runs"] if one["variant"] == "equal norms")
        assert [equal["norms"][f"norm {k}"][0] for k in (14, 16, 18)] == pytest.approx([4.0] * 3, rel=1e-6)


def test_ratios_of_dense_layers_are_those_of_a_full_decomposition():
    module = nn.Sequential(nn.Linear(60, 50), nn.ReLU(), nn.Linear(50, 5))
    found = torch_experiments.dense_ratios(module)
    for name in ("0", "2"):
        weight = module.get_submodule(name).weight.detach().double()
        assert found[f"ratio {name}"] == pytest.approx(
            float(torch.linalg.matrix_norm(weight, 2) / weight.norm()), rel=2e-3
        )


def test_the_command_line_runs_writes_and_draws_an_experiment(tiny, tmp_path, capsys):
    place = tmp_path / "out"
    assert main(["experiment", "vit-mnist", "--data", str(tiny), "--out", str(place), "--json"]) == 0
    streams = capsys.readouterr()
    told, kept = json.loads(streams.out), place / "vit-mnist.json"
    assert "runs SPS x" in streams.err
    assert [one["train_loss"] for one in json.loads(kept.read_text())["runs"]] == [
        r["train_loss"] for r in told["runs"]
    ]
    assert main(["experiment", str(kept), "--out", str(tmp_path / "again")]) == 0
    assert "Every rule trains the network" in capsys.readouterr().out
    page = (tmp_path / "again" / "index.html").read_text()
    assert "a file of the user&#39;s own" in page
    assert told["data"]["mnist"]["sha256"] in page
    cut = json.loads(kept.read_text())
    cut["runs"] = [one for one in cut["runs"] if one["variant"] != "Adam"][:4]  # the time was over
    kept.write_text(json.dumps(cut))
    assert main(["experiment", str(kept), "--out", str(tmp_path / "cut")]) == 0
    assert "undecided: Adam ends lowest" in capsys.readouterr().out


def test_what_is_asked_for_takes_the_place_of_the_table(tiny, tmp_path, capsys):
    asked = ["--epochs", "1", "--factors", "0.5,2", "--seeds", "1:3", "--first", "60", "20"]
    asked += ["--variants", "SGD=0.03", "SNGD=0.1,0.5", "--data", str(tiny), "--out", str(tmp_path / "out"), "--json"]
    assert main(["experiment", "vit-mnist", *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    settings = {name: told["settings"][name] for name in ("epochs", "factors", "seeds", "samples", "test samples")}
    assert settings == {"epochs": 1, "factors": [0.5, 2.0], "seeds": [1, 2], "samples": 60, "test samples": 20}
    assert told["settings"]["variants"] == {"SGD": ["SGD", 0.03, 0.0], "SNGD": ["SNGD", 0.1, 0.5]}
    grid = [(one["variant"], one["rate"], one["cap"]) for one in told["grid"]]
    assert grid == [("SGD", 0.015, 0.0), ("SGD", 0.06, 0.0), ("SNGD", 0.05, 0.25), ("SNGD", 0.2, 1.0)]
    assert [(one["variant"], one["seed"]) for one in told["runs"]] == [("SGD", 1), ("SNGD", 1), ("SGD", 2), ("SNGD", 2)]
    for words, wrong in {
        "one of SGD": ["--variants", "SDG"],
        "with 3 numbers": ["--variants", "SGD=1,2,3"],
        "1 to 80 and 1 to 80 samples": ["--first", "100", "10"],
        "argument --seeds": ["--seeds", "0:x"],
        "one seed or more": ["--seeds", "3:3"],
        "'epochs' argument": ["--epochs", "0"],
        "'factors' argument": ["--factors", "1,-1"],
        "argument --factors": ["--factors", "1;2"],
    }.items():
        assert main(["experiment", "vit-mnist", "--data", str(tiny), "--out", str(tmp_path / "no"), *wrong]) == 2
        assert words in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="one of epochs"):
        next(torch_experiments.experiment("vit-mnist", epoch=3))


def test_what_is_no_experiment_is_named(tiny, tmp_path, capsys):
    (tmp_path / "other.json").write_text('{"runs": []}')
    (tmp_path / "text.json").write_text("no")
    parts = ("experiment", "after", "data", "settings", "runs", "seconds")
    (tmp_path / "cut.json").write_text(json.dumps({part: [] for part in parts}))
    wanted = {"it has no 'after'": [str(tmp_path / "other.json")], "is no JSON": [str(tmp_path / "text.json")]}
    wanted |= {
        "run it again": [str(tmp_path / "cut.json")],
        "one of vit-digits": ["vit-minst"],
        "'device' argument": ["vit-mnist", "--data", str(tiny), "--device", "tpu"],
    }
    for words, asked in wanted.items():
        assert main(["experiment", *asked, "--out", str(tmp_path / "out")]) == 2
        assert words in capsys.readouterr().err
    assert main(["experiment", "vit-mnist", "--data", str(tiny), "--out", str(tmp_path / "text.json" / "out")]) == 2
    told = capsys.readouterr().err
    assert "Not a directory" in told
    assert "runs SGD" not in told  # before the work, not after it


def test_the_encoder_comes_as_usual_beside_texts_of_ones_own(tmp_path, monkeypatch):
    labels = {f"{part}_labels": np.arange(3) for part in ("train", "test")}
    np.savez(tmp_path / "multinli.npz", train_tokens=np.ones((3, 5), int), test_tokens=np.ones((3, 5), int), **labels)
    load, wanted = data.load, torch_experiments.EXPERIMENTS["encoder-multinli"]
    encoder = lambda folder: data.Dataset("minilm", {}, {"folder": folder})
    monkeypatch.setattr(data, "load", lambda name, f=None: encoder(f) if name == "minilm" else load(name, f))
    records = lambda: torch_experiments._sets(wanted, str(tmp_path), None)[1]
    assert records()["minilm"] == {"folder": None}
    (tmp_path / "minilm.npz").touch()
    assert records()["minilm"] == {"folder": str(tmp_path)}


COMMANDS = re.findall(r"^penchant experiment (.*?) +# (\S+)$", (DOCS / "networks.md").read_text(), re.MULTILINE)


def test_every_committed_file_has_a_command():
    assert sorted(file for _, file in COMMANDS) == sorted(one.name for one in (DOCS / "experiments").glob("*.json"))


@pytest.mark.parametrize(("command", "file"), COMMANDS, ids=[file for _, file in COMMANDS])
def test_the_command_of_a_committed_file_asks_for_its_runs(command, file, monkeypatch):
    """Grid and runs, one by one: what a training would have found is what the file says of the same variant, rate, cap, seed and epochs."""
    kept = json.loads((DOCS / "experiments" / file).read_text())
    asked = vars(_parser().parse_args(["experiment", *shlex.split(command)]))
    count = kept["settings"]["samples"], kept["settings"].get("test samples", 10)
    sets = [(torch.zeros(n, 1), torch.zeros(n)) for n in count]
    monkeypatch.setattr(torch_experiments, "_sets", lambda *_: ({}, kept["data"], sets))

    def run(self, variant, factor, seed, epochs):
        _, rate, cap = self.kind.variants[variant]
        wanted = (variant, rate * factor, cap * factor, seed)
        ended = lambda one: len(one["train_loss"]) == epochs + 1 or one["train_loss"][-1] is None
        same = [one for one in kept["grid"] + kept["runs"] if ended(one) and told(one) == pytest.approx(wanted)]
        assert same, (wanted, epochs)
        loss = [math.nan if one is None else one for one in same[0]["train_loss"]]
        return {**same[0], "train_loss": loss}

    told = lambda one: (one["variant"], one["rate"], one["cap"], one["seed"])
    monkeypatch.setattr(torch_experiments._Bench, "run", run)
    options = {key: asked[key] for key in (*torch_experiments.ASKED, "full")}
    *_, found = torch_experiments.experiment(asked["experiment"], **options)
    for part in ("grid", "runs"):
        assert [told(one) for one in found[part]] == [told(one) for one in kept[part]]
    for name in ("epochs", "epochs of the grid", "seeds", "samples"):
        assert found["settings"][name] == kept["settings"][name]
    assert list(found["settings"]["factors"]) == kept["settings"]["factors"]
