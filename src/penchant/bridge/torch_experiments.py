"""The papers' experiments on genuine data: transformers under four step rules, and the layers of AlexNet from two starts.

Every rule gets the same grid of factors on its rate, tried with one seed for a fifth of the epochs; the factor of the lowest train loss is then run with three
seeds. Results are plain dictionaries with the record of the data, the settings and the time.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from .. import data
from ..errors import ArgumentError
from .torch_networks import GROUPS, Encoder, Split, VisionTransformer, dense, digits, equalise, small_alexnet
from .torch_optimisers import SNGD, SPSmax
from .wordpiece import WordPiece

Make = Callable[[dict, int], nn.Module]
_PIECE = 1000  # samples that are looked at together
_STEP = ("batch_loss", "gradient_norm", "step_size", "capped", "displacement")
_LOOK, _SHARE = 5000, 5  # samples looked at; epochs over those of the grid
ASKED = ("epochs", "factors", "seeds", "first", "variants")  # what an experiment may be given in the place of its own
_VECTORS, _ITERATIONS = 32, 20  # of the subspace in which the largest singular value is looked for


def group_norms(module: nn.Module) -> dict[str, float]:
    """Frobenius norms of the groups of parameters that `GROUPS` names; what matches none is `other`."""
    squares: dict[str, float] = {}
    for name, parameter in module.named_parameters():
        group = next((g for g, patterns in GROUPS.items() if any(one in name for one in patterns)), "other")
        squares[group] = squares.get(group, 0.0) + float(parameter.detach().double().square().sum())
    return {group: math.sqrt(value) for group, value in squares.items()}


def ready(inputs: torch.Tensor) -> torch.Tensor:
    """What a network reads: bytes are pixels and become numbers in [-1, 1], other integers are words."""
    if inputs.dtype == torch.uint8:
        return inputs.float() / 127.5 - 1
    return inputs if inputs.is_floating_point() else inputs.long()


def train_network(
    module: nn.Module,
    train: Split,
    test: Split,
    optimiser: torch.optim.Optimizer,
    *,
    epochs: int,
    batch: int,
    seed: int = 0,
    measure: Callable[[nn.Module], dict[str, float]] = group_norms,
    look: int | None = None,
) -> dict[str, Any]:
    """Minimise the cross-entropy in shuffled batches; `optimiser` may be any of PyTorch's or of `torch_optimisers`.

    Of every step there are `batch_loss`, `gradient_norm`, `step_size` (multiplier of the gradient; nan where the optimiser does not report it), `capped` and
    `displacement` (norm of the change of all parameters); of every epoch, the first before any step, `train_loss`, `train_accuracy`, `test_accuracy`, and
    `norms` of every group of parameters (`GROUPS`), of at most `look` samples, evenly spread over each set. A run that is not finite ends.
    """
    generator, shown = torch.Generator().manual_seed(seed), (_spread(train, look), _spread(test, look))
    steps, seen = [], [_looked(module, *shown, measure)]
    for _ in range(epochs):
        order = torch.randperm(len(train[1]), generator=generator).to(train[1].device)
        steps += [_step(module, train[0][chosen], train[1][chosen], optimiser) for chosen in order.split(batch)]
        seen.append(_looked(module, *shown, measure))
        if not math.isfinite(seen[-1]["train_loss"]):
            break
    found = dict(zip(_STEP, torch.stack(steps).T.tolist(), strict=True))
    found |= {name: [one[name] for one in seen] for name in seen[0]}
    return found | {"norms": {name: [one[name] for one in found["norms"]] for name in found["norms"][0]}}


def _step(
    module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, optimiser: torch.optim.Optimizer
) -> torch.Tensor:
    """A step, and what is recorded of it; numbers stay on their device."""
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(module(ready(inputs)), labels)
    loss.backward()
    parameters = [one for one in module.parameters() if one.grad is not None]
    size = lambda tensors: torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    before, gradient = [one.detach().clone() for one in parameters], size([one.grad for one in parameters])
    report: dict = optimiser.param_groups[0]
    rest: dict[str, Any] = {"loss": loss.detach()} if "last_step" in report else {}
    optimiser.step(**rest)
    moved = size(torch._foreach_sub([one.detach() for one in parameters], before))
    told = torch.tensor([report.get("last_step", math.nan), report.get("capped", False)])
    return torch.stack([loss.detach(), gradient, *told.to(gradient), moved])


def _spread(split: Split, look: int | None) -> Split:
    every = max(1, math.ceil(len(split[1]) / look)) if look else 1
    return split[0][::every], split[1][::every]


@torch.no_grad()
def _looked(module: nn.Module, train: Split, test: Split, measure: Callable) -> dict[str, Any]:
    outputs = lambda inputs: torch.cat([module(ready(one)) for one in inputs.split(_PIECE)])
    right = lambda scores, labels: float((scores.argmax(1) == labels).double().mean())
    scores = outputs(train[0])
    accuracy = {"train_accuracy": right(scores, train[1]), "test_accuracy": right(outputs(test[0]), test[1])}
    return {"train_loss": float(nn.functional.cross_entropy(scores, train[1])), **accuracy, "norms": measure(module)}


class Experiment(NamedTuple):
    """Data and network of an experiment, its variants (a rule and its rate, or a start), and what of it a quick version has."""

    data: str
    network: Make
    variants: dict[str, tuple[str, float, float]]  # rule, rate, cap
    batch: int
    epochs: int
    factors: tuple[float, ...]
    length: int = 0  # tokens of a text
    quick: Mapping[str, Any] = MappingProxyType({})
    after: str = ""


_RULES: dict[str, Callable[[Iterable[nn.Parameter], float, float], torch.optim.Optimizer]] = {  # by rate and cap
    "SGD": lambda parameters, rate, cap: torch.optim.SGD(parameters, rate),
    "momentum": lambda parameters, rate, cap: torch.optim.SGD(parameters, rate, momentum=0.9),
    "SNGD": SNGD,
    "SPS": lambda parameters, rate, cap: SPSmax(parameters, cap),
    "Adam": lambda parameters, rate, cap: torch.optim.Adam(parameters, rate),
}


def dense_ratios(module: nn.Module) -> dict[str, float]:
    """Spectral over Frobenius norm of every dense layer, and the latter; the former from a subspace, good to some parts in a thousand."""
    found: dict[str, float] = {}
    layers: dict[str, Any] = dict(module.named_modules())
    for name in dense(module):
        weight = layers[name].weight.detach().double()
        top = torch.svd_lowrank(weight, min(_VECTORS, *weight.shape), _ITERATIONS)[1][0]
        found |= {f"ratio {name}": float(top / weight.norm()), f"norm {name}": float(weight.norm())}
    return found


def _vision(side: int, channels: int, width: int, depth: int, heads: int, patch: int) -> Make:
    sizes = {"side": side, "patch": patch, "width": width, "depth": depth, "heads": heads, "hidden": width}
    return lambda arrays, seed: VisionTransformer(**sizes, channels=channels, small_data=True, seed=seed)


def _alexnet(width: float = 1.0, hidden: int = 4096) -> Make:
    return lambda arrays, seed: small_alexnet(width, hidden, seed=seed)


def _rates(sgd: float, sngd: tuple[float, float], sps: float, adam: float) -> dict[str, tuple[str, float, float]]:
    rows = {"SGD": (sgd, 0.0), "SNGD": sngd, "SPS": (1.0, sps), "Adam": (adam, 0.0)}
    return {name: (name, *row) for name, row in rows.items()}


_ENCODER: Make = lambda arrays, seed: Encoder(arrays, int(arrays["train_labels"].max()) + 1, seed=seed)
_TEXT = _rates(1e-3, (1e-2, 1e-2), 1e-2, 2e-5)
_STARTS: dict[str, tuple[str, float, float]] = dict.fromkeys(("default start", "equal norms"), ("momentum", 0.05, 0.0))
_FINE, _WIDE = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 1.0, 10.0, 100.0)
_LITTLE = {"seeds": (0,), "factors": (1.0,)}
_FEW = {**_LITTLE, "samples": 384, "epochs": 1}
_SMALL = {**_LITTLE, "samples": 2000, "epochs": 20, "network": _alexnet(0.25, 256)}
_DIGITS = _rates(0.1, (0.1, math.inf), 0.5, 1e-3)
EXPERIMENTS = {
    "vit-digits": Experiment(
        *("digits", _vision(8, 1, 32, 2, 2, 2), _DIGITS, 50, 12, (0.1, 1.0, 10.0)),
        quick=_LITTLE,
        after="Vasudeva et al., Figures 6 and 7, on small pictures",
    ),
    "vit-mnist": Experiment(
        *("mnist", _vision(28, 1, 128, 2, 8, 4), _rates(0.1, (0.01, 0.05), 0.05, 1e-3), 100, 25, _FINE),
        quick={**_LITTLE, "samples": 6000, "epochs": 3},
        after="Vasudeva et al., Figure 6",
    ),
    "vit-cifar10": Experiment(
        *("cifar10", _vision(32, 3, 512, 10, 8, 4), _rates(0.1, (0.01, 0.05), 0.01, 1e-4), 100, 50, _FINE),
        quick={**_LITTLE, "samples": 6000, "epochs": 3, "network": _vision(32, 3, 64, 4, 4, 8)},
        after="Vasudeva et al., Figure 7",
    ),
    **{
        f"encoder-{name}": Experiment(
            *(name, _ENCODER, _TEXT, batch, 3, _WIDE, length), quick=_FEW, after=f"Vasudeva et al., {figures}"
        )
        for name, batch, length, figures in (
            ("imdb", 32, 128, "Figures 1 and 4"),
            ("rotten-tomatoes", 32, 48, "Figures 1 and 4"),
            ("multinli", 32, 128, "Figure 1"),
            ("civilcomments", 16, 128, "Figure 4"),
        )
    },
    "alexnet-cifar10": Experiment(
        *("cifar10", _alexnet(), _STARTS, 64, 50, (0.2, 1.0, 5.0)), quick=_SMALL, after="Ji and Telgarsky, Figure 2"
    ),
}


def _sets(wanted: Experiment, folder: str | None, samples: int | None) -> tuple[dict, dict, list[Split]]:
    """Arrays that make the network, where everything came from, and the two sets as tensors."""
    if wanted.data == "digits":
        return {}, {"digits": {"data": "digits", "from": "scikit-learn", "licence": "BSD; UCI"}}, list(digits())
    found = data.load(wanted.data, folder)
    arrays, records = dict(found.arrays), {wanted.data: found.record}
    if wanted.length:
        own = folder and next(Path(folder).glob("*minilm*"), None)
        encoder = data.load("minilm", folder if own else None)
        arrays, records = {**arrays, **encoder.arrays}, records | {"minilm": encoder.record}
    splits = []
    for part in ("train", "test"):
        labels = found.arrays[f"{part}_labels"]
        every = max(1, len(labels) // samples) if samples else 1
        inputs = _inputs(found, part, arrays, wanted.length, every).copy()
        splits.append((torch.from_numpy(inputs), torch.from_numpy(labels[::every].astype(np.int64))))
    return arrays, records, splits


def _inputs(found: data.Dataset, part: str, arrays: dict, length: int, every: int) -> np.ndarray:
    """Every so many samples of a part, as the network reads them."""
    if not length:
        images = found.arrays[f"{part}_images"][::every]
        return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    if f"{part}_tokens" in arrays:
        return arrays[f"{part}_tokens"][::every, :length]
    vocabulary = arrays["vocabulary"].tobytes().decode().rstrip("\n")
    return WordPiece(vocabulary).tokens(found.texts(part)[::every], length)


def _chosen(variants: dict[str, tuple[str, float, float]], wanted: Iterable[tuple[str, tuple[float, ...]]]) -> dict:
    """The variants that are wanted, with their own rates and caps where they have some."""
    found = {}
    for name, given in wanted:
        if name not in variants or len(given) > 2:
            required = f"one of {', '.join(variants)}, with at most a rate and a cap"
            raise ArgumentError("variants", "experiment", required, f"'{name}' with {len(given)} numbers")
        found[name] = (*variants[name][:1], *given, *variants[name][1 + len(given) :])
    return found


class _Bench:
    """What every run of an experiment shares."""

    def __init__(self, name: str, *, device: str, folder: str | None, full: bool, asked: Mapping[str, Any]):
        kind, given = EXPERIMENTS[name], {key: value for key, value in asked.items() if value is not None}
        given |= {"variants": _chosen(kind.variants, given["variants"])} if "variants" in given else {}
        quick = {**({} if full else kind.quick), **given}
        self.device = torch.device(device)
        own = ("epochs", "factors", "network", "variants")
        self.kind = kind._replace(**{key: quick[key] for key in own if key in quick})
        self.seeds = quick.get("seeds", (0, 1, 2))
        for word, least in {"epochs": self.kind.epochs, "factors": min(self.kind.factors)}.items():
            if not least > 0:
                raise ArgumentError(word, "experiment", "above 0", least)
        first = quick.get("first")
        self.arrays, self.records, splits = _sets(kind, folder, None if first else quick.get("samples"))
        counts = first or [len(labels) for _, labels in splits]
        if not all(0 < n <= len(split[1]) for n, split in zip(counts, splits, strict=True)):
            required = " and ".join(f"1 to {len(labels)}" for _, labels in splits)
            raise ArgumentError("first", "experiment", f"{required} samples to train and to test with", list(counts))
        self.train, self.test = ((x[:n].to(device), y[:n].to(device)) for n, (x, y) in zip(counts, splits, strict=True))
        self.measure = dense_ratios if kind.data == "cifar10" and "equal norms" in kind.variants else group_norms

    def run(self, variant: str, factor: float, seed: int, epochs: int) -> dict:
        """One training, as numbers per epoch, the first before any step."""
        began, (name, rate, cap) = time.perf_counter(), self.kind.variants[variant]
        network = self.kind.network(self.arrays, seed)
        if variant == "equal norms":
            equalise(network, seed=seed)
        network = network.to(self.device)
        sizes = lambda: {n: float(p.detach().double().norm()) for n, p in network.named_parameters() if p.ndim > 1}
        first, optimiser = sizes(), _RULES[name](network.parameters(), rate * factor, cap * factor)
        how: dict[str, Any] = {"epochs": epochs, "batch": self.kind.batch, "look": _LOOK, "measure": self.measure}
        found = train_network(network, self.train, self.test, optimiser, seed=seed, **how)
        growth = {layer: size / first[layer] for layer, size in sizes().items() if first[layer]}
        about = {"variant": variant, "rule": name, "factor": factor, "rate": rate * factor}
        about |= {"cap": cap * factor if math.isfinite(cap) else None}
        return {**about, "seed": seed, **_numbers(found), "growth": growth, "seconds": time.perf_counter() - began}


def _numbers(run: dict) -> dict:
    """A run by epochs: what was looked at, and means over the steps of each."""
    means = lambda name: np.array(run[name]).reshape(len(run["train_loss"]) - 1, -1).mean(1).tolist()
    looked = {name: run[name] for name in ("train_loss", "train_accuracy", "test_accuracy", "norms")}
    return looked | {name: means(name) for name in ("batch_loss", "capped", "step_size", "displacement")}


def experiment(
    name: str,
    *,
    device: str = "cpu",
    folder: str | None = None,
    full: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    **asked: Any,
) -> Iterator[dict]:
    """All that is known of an experiment, again after each run.

    `asked` may have `epochs`, `factors` (of the grid), `seeds`, `first` (samples to train and to test with) and `variants` (pairs of a name and of
    a rate and a cap of its own, which may be missing).
    """
    for word, known, found in (("name", EXPERIMENTS, [name]), ("asked", ASKED, asked)):
        if wrong := next((one for one in found if one not in known), ""):
            raise ArgumentError(word, "experiment", f"one of {', '.join(known)}", f"'{wrong}'")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        said = f"'{device}' ({str(error).splitlines()[0]})"
        raise ArgumentError("device", "experiment", "one that this PyTorch has", said, "--device cpu") from error
    began = time.perf_counter()
    torch.set_float32_matmul_precision("high")
    bench = _Bench(name, device=device, folder=folder, full=full, asked=asked)
    kind, trial = bench.kind, max(1, round(bench.kind.epochs / _SHARE))
    place = torch.cuda.get_device_name() if bench.device.type == "cuda" else "CPU, one thread"
    settings = {"batch": kind.batch, "epochs": kind.epochs, "epochs of the grid": trial}
    settings |= {"epochs of the paper": EXPERIMENTS[name].epochs, "variants": kind.variants, "full": full}
    settings |= {"factors": kind.factors, "seeds": list(bench.seeds)}
    settings |= {"samples": len(bench.train[1]), "test samples": len(bench.test[1])}
    found = {"experiment": name, "after": kind.after, "data": bench.records, "settings": settings}
    found |= {"grid": [], "runs": []}
    found |= {"device": place, "software": {"torch": torch.__version__, "numpy": np.__version__}}
    grid = product(kind.variants, kind.factors) if len(kind.factors) > 1 else ()
    jobs: list[tuple] = [("grid", variant, factor, 0, trial) for variant, factor in grid]
    jobs += [("runs", variant, None, seed, kind.epochs) for seed, variant in product(bench.seeds, kind.variants)]
    for part, variant, factor, seed, epochs in jobs:
        best = factor or best_factor(found["grid"], variant, kind.factors)
        last = bench.run(variant, best, seed, epochs)
        found[part].append(last)
        found["seconds"] = time.perf_counter() - began
        ends = f"loss {last['train_loss'][-1]:.4f}, test {last['test_accuracy'][-1]:.4f}"
        progress(f"{part} {variant} x {best:g} seed {seed}: {ends}, {last['seconds']:.1f} s")
        yield found


def best_factor(grid: list[dict], variant: str, factors: tuple[float, ...]) -> float:
    """The factor of the lowest train loss; one that did not stay finite loses."""
    losses = {one["factor"]: one["train_loss"][-1] for one in grid if one["variant"] == variant}
    finite = {factor: loss for factor, loss in losses.items() if math.isfinite(loss)}
    return min(finite, key=lambda factor: finite[factor]) if finite else factors[0]
