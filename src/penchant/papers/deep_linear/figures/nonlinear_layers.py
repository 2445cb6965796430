"""Do the dense layers of a convolutional network align as linear ones do? Figure 2 of the paper, on images that need no download."""

from typing import Any

import numpy as np

from ....errors import MissingExtra
from ....exhibits import Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....verdict import all_of, at_least, at_most
from ..theorems import JI
from . import WORDS

_STARTS = ("PyTorch's default", "equal Frobenius norms")
_SOURCE = f"{JI}, Figure 2"


def _bridge() -> Any:
    try:
        from ....bridge import torch
    except ImportError:
        raise MissingExtra("torch", "The study nonlinear-layers") from None
    return torch


def run(lab: Lab) -> Result:
    """Two starts of a reduced network, and the full-size network before training."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    bridge, epochs = _bridge(), 100 if full else 60
    images, labels = bridge.template_images(seed=seed)
    probes = {}
    for start in _STARTS:
        progress(f"{start}: {epochs} epochs")
        network = bridge.small_alexnet(0.25, 256, seed=seed)
        if start == _STARTS[1]:
            bridge.equalise(network, seed=seed)
        probes[start] = bridge.train_probed(network, images, labels, rate=0.02, epochs=epochs, seed=seed)
    progress("the full-size network before training")
    fresh = {start: _fresh(bridge, start, seed) for start in _STARTS}
    figures = tuple(figure for start, probe in probes.items() for figure in _figures(start, probe))
    return Result(_findings(probes, fresh), figures, (_trained(probes), _full_size(fresh)), {}, WORDS)


def _fresh(bridge: Any, start: str, seed: int) -> Any:
    network = bridge.small_alexnet(seed=seed)
    if start == _STARTS[1]:
        bridge.equalise(network, seed=seed)
    probe = bridge.SpectralProbe(network)
    probe.record(float("nan"))
    return probe


def _random_ratio(probe: Any) -> np.ndarray:
    """Spectral over Frobenius norm of a large matrix with independent entries: 1/sqrt(m) + 1/sqrt(n)."""
    return np.array([sum(1 / np.sqrt(size) for size in shape) for shape in probe.shapes])


def _findings(probes: dict[str, Any], fresh: dict[str, Any]) -> tuple[Finding, ...]:
    default, equal = (probes[start] for start in _STARTS)
    gain = lambda probe: probe.ratio[-1] / probe.ratio[0]
    miss = max(float(np.abs(probe.ratio[0] / _random_ratio(probe) - 1).max()) for probe in fresh.values())
    rises = [
        at_least(float(gain(one).min()), 1.1, f"{start}: smallest growth of a ratio") for start, one in probes.items()
    ]
    falls = [
        at_most(one.losses[-1] / one.losses[0], 0.5, f"{start}: last over first loss") for start, one in probes.items()
    ]
    floors = min(float((probe.ratio[-1] / probe.floor)[:2].min()) for probe in probes.values())
    middle = float((gain(equal) / gain(default))[:2].min())
    return (
        Finding("The ratios of dense layers rise while the loss falls.", all_of(*rises, *falls), _SOURCE),
        Finding(
            "The two wide layers end above twice the smallest ratio that their shapes allow.",
            at_least(floors, 2.0, "smallest ratio over its floor, at the end"),
            _SOURCE,
        ),
        Finding(
            "The two wide layers align more from layers of equal norm.",
            at_least(middle, 1.0, "growth of their ratios from equal norms over that from the default start"),
            _SOURCE,
        ),
        Finding(
            "Before training a ratio is 1/sqrt(m) + 1/sqrt(n), as for any matrix of independent entries.",
            at_most(miss, 0.03, "largest relative difference, full size"),
            "Marchenko, Pastur 1967",
        ),
    )


def _figures(start: str, probe: Any) -> tuple[Figure, ...]:
    epochs, name = np.arange(len(probe.losses)), start.split()[0].lower().removesuffix("'s")
    ratios = tuple(Line(f"dense layer {k + 1}", epochs, probe.ratio[:, k]) for k in range(probe.ratio.shape[1]))
    losses = (Line("cross-entropy", epochs, np.array(probe.losses)),)
    return (
        Figure(f"ratios-{name}", f"Ratios, {start}", "epoch", "spectral / Frobenius", ratios, "Reduced network."),
        Figure(f"loss-{name}", f"Loss, {start}", "epoch", "loss", losses, "The same runs."),
    )


def _trained(probes: dict[str, Any]) -> Table:
    rows = []
    for start, probe in probes.items():
        for k in range(probe.ratio.shape[1]):
            first, last = probe.ratio[0, k], probe.ratio[-1, k]
            norms = (probe.frobenius[0, k], probe.frobenius[-1, k])
            rows.append((start, k + 1, *(f"{value:.4g}" for value in (first, last, *norms, probe.floor[k]))))
    return Table(
        "trained",
        "Dense layers of the reduced network",
        ("start", "layer", "ratio before", "ratio after", "norm before", "norm after", "floor"),
        tuple(rows),
        f"SGD with momentum 0.9, batch 64, rate 0.02, {len(next(iter(probes.values())).losses) - 1} epochs on 512 synthetic images of ten classes.",
    )


def _full_size(fresh: dict[str, Any]) -> Table:
    ratios = lambda one, k: (f"{value:.3g}" for value in (one.ratio[0, k], _random_ratio(one)[k], one.floor[k]))
    rows = tuple(
        (start, k + 1, f"{one.frobenius[0, k]:.4g}", *ratios(one, k)) for start, one in fresh.items() for k in range(3)
    )
    columns = ("start", "layer", "Frobenius norm", "ratio", "1/sqrt(m) + 1/sqrt(n)", "floor")
    return Table("full-size", "Dense layers 1024-4096-4096-10 before training", columns, rows, "")


STUDIES = (Study("nonlinear-layers", "Do the layers of a nonlinear network align? (Figure 2)", run),)
