"""The figures of the deep linear paper: linear networks by line search (Figure 1), and the dense layers of a convolutional network on images that need no download (Figure 2)."""

from types import ModuleType
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import PyTree

from ....diagnostics.alignment import alignments, sandwich, sine
from ....errors import MissingExtra, quietly
from ....exhibits import Figure, Finding, Line, Result, Table
from ....lab import Lab, Study, recipe
from ....optimisers.layerwise import LayerDescent, LineSearch
from ....settings.base import Setting
from ....training.events import LogExcessBelow
from ....training.recorders import Every
from ....training.train import train
from ....training.trajectory import Trajectory
from ....verdict import all_of, at_least, at_most
from .. import lemmas
from ..alignment import descent_margin, layers_align, other_starts
from ..evidence import FINEST, descent, escaped, geometry, levels, mirrored, problem
from ..lemmas import descent_bounds
from ..theorems import JI
from . import WORDS, words

_STARTS = ("PyTorch's default", "equal Frobenius norms")
_SOURCE = f"{JI}, Figure 2"


@runtime_checkable
class Probe(Protocol):
    """What `bridge.torch.Probe` has seen of dense layers: epochs x layers, and one loss per epoch."""

    @property
    def losses(self) -> np.ndarray: ...
    @property
    def ratio(self) -> np.ndarray: ...
    @property
    def frobenius(self) -> np.ndarray: ...
    @property
    def floor(self) -> np.ndarray: ...
    @property
    def shapes(self) -> list: ...


@recipe
def _runs(lab: Lab) -> tuple[Trajectory, Trajectory, Trajectory]:
    """Four layers, four layers from a small start, and one layer from 0."""
    steps, seed = 1000 if lab.full else 250, 1 + lab.seed
    lab.progress("line search")
    one = problem(lab, 1, logistic=True)[0]
    single = train(one, LayerDescent(LineSearch(one)), (np.zeros((1, 2)),), steps=steps, recorder=Every())
    return descent(lab, steps=steps, seed=seed), descent(lab, steps=steps, scale=0.15, seed=seed), single


def _angles(lab: Lab, run: Trajectory) -> np.ndarray:
    unit = geometry(lab).direction
    weights = [run.weight(k) for k in range(len(run))]
    return np.array([np.degrees(np.arcsin(min(1.0, sine(w, unit)))) if w.any() else np.nan for w in weights])


def risks(lab: Lab) -> tuple[Figure, Figure]:
    deep, small, single = _runs(lab)
    named = {"start 0.4": deep, "start 0.15": small, "1 layer": single}
    lines = tuple(Line(name, run.steps, levels(run)) for name, run in named.items())
    plain = tuple(Line(name, run.steps, np.exp(run.log_excess)) for name, run in list(named.items())[:2])
    caption = "The first panel on a linear axis, where it looks finished after ten steps."
    return (
        Figure("risk", "Risk against the step", "step", "-log R", lines, "Logistic risk, uncapped line search."),
        Figure("risk-linear", "Risk against the step, as the paper draws it", "step", "R", plain, caption),
    )


def aligned(lab: Lab) -> tuple[Figure, Figure]:
    run = _runs(lab)[1]
    found, step = alignments(run), np.maximum(run.steps, 1)
    ratios = tuple(Line(f"layer {k + 1}", step, 1 - found.deficit[:, k]) for k in range(4))
    misfits = tuple(Line(f"layers {k + 1} and {k + 2}", step, found.misfit[:, k]) for k in range(3))
    caption = "Start 0.15. The last layer is a row, so its ratio is always 1."
    title, label = "Adjacent layers align", "1 - |<v, u>|"
    return (
        Figure("ratios", "Every layer tends to rank one", "step", "spectral / Frobenius", ratios, caption, "log"),
        Figure("alignment", title, "step", label, misfits, "Start 0.15.", "log", "log"),
    )


def angles(lab: Lab) -> tuple[Figure, Table]:
    deep, _, single = _runs(lab)
    lines = tuple(
        Line(name, run.steps[1:], _angles(lab, run)[1:]) for name, run in (("4 layers", deep), ("1 layer", single))
    )
    caption = "Not monotone: the line search works at the edge of stability."
    rows = tuple(
        (name, k, *_of_direction(lab, run, k), f"{np.exp(run.log_excess[k]):.2g}")
        for name, run in (("4 layers, start 0.4", deep), ("1 layer, start 0", single))
        for k in (0, 1, 10, 100, 250, *((1000,) if lab.full else ()))
    )
    columns = ("network", "step", "degrees to the maximum margin", "margin / best margin", "risk")
    return (
        Figure("angle", "Angle to the maximum margin", "step", "degrees", lines, caption, "log", "log"),
        Table("angles", "Angles, margins and risks", columns, rows, "Strips in the plane, n = 40."),
    )


def _of_direction(lab: Lab, run: Trajectory, record: int) -> tuple[str, str]:
    """Angle and relative margin; the weight 0 has neither."""
    if not run.weight(record).any():
        return "no direction", ""
    return f"{_angles(lab, run)[record]:.4g}", f"{sandwich(run)[0][record] / geometry(lab).margin:.6g}"


def layers(lab: Lab) -> Table:
    """Figure 1b as numbers: risk, ratios and alignments on the way."""
    rows = []
    for start, run in zip(("0.4", "0.15"), _runs(lab)[:2], strict=True):
        found = alignments(run)
        for k in (10, 100, 250):
            ratios, fits = (f"{r:.4f}" for r in 1 - found.deficit[k]), (f"{fit:.5f}" for fit in 1 - found.misfit[k])
            rows.append((start, k, f"{np.exp(run.log_excess[k]):.2g}", *ratios, *fits))
    named = (*(f"ratio {k}" for k in range(1, 5)), *(f"alignment {k}, {k + 1}" for k in range(1, 4)))
    columns, caption = ("start", "step", "risk", *named), "Uncapped line search, four layers."
    return Table("layers", "Risk, ratios and alignments", columns, tuple(rows), caption)


def separators(lab: Lab) -> Figure:
    """Signed points, and the line each network separates them with."""
    deep, _, single = _runs(lab)
    signed, reach = np.asarray(deep.setting.data.signed), np.linspace(-1, 1, 2)
    half = len(signed) // 2
    points = {"+1": signed[:half], "-1": -signed[half:]}
    lines = [Line(name, those[:, 0], those[:, 1], "points") for name, those in points.items()]
    across = lambda w: np.outer([-w[1], w[0]], reach) / np.linalg.norm(w)
    for name, weight in (("1 layer", single.weight()), ("4 layers", deep.weight())):
        lines.append(Line(name, *across(weight)))
    lines.append(Line("maximum margin", *across(geometry(lab).direction), style="prediction"))
    title, caption = "Separators of one and of four layers", "After the last step; all three lines coincide to the eye."
    return Figure("separators", title, "x1", "x2", tuple(lines), caption)


def kept_runs(lab: Lab) -> dict[str, Trajectory]:
    deep, _, single = _runs(lab)
    return {"four-layers": deep, "one-layer": single} if lab.full else {}


def _bridge() -> ModuleType:
    try:
        from ....bridge import torch
    except ImportError:
        raise MissingExtra("torch", "The study nonlinear-layers") from None
    return torch


def dense_layers(lab: Lab) -> Result:
    """Two starts of a reduced network, and the full-size network before training."""
    bridge, epochs, seed = _bridge(), 100 if lab.full else 60, lab.seed
    images, labels = bridge.template_images(seed=seed)
    probes = {}
    for start in _STARTS:
        lab.progress(f"{start}: {epochs} epochs")
        network = _network(bridge, start, seed, 0.25, 256)
        probes[start] = bridge.train_probed(network, images, labels, rate=0.02, epochs=epochs, seed=seed)
    lab.progress("the full-size network before training")
    fresh = {}
    for start in _STARTS:
        network = _network(bridge, start, seed)
        fresh[start] = bridge.Probe(network, layers=bridge.dense(network))
    figures = tuple(figure for start, probe in probes.items() for figure in _figures(start, probe))
    return Result(_findings(probes, fresh), figures, (_trained(probes), _full_size(fresh)), {}, WORDS)


def _network(bridge: ModuleType, start: str, seed: int, *size: float) -> object:
    network = bridge.small_alexnet(*size, seed=seed)
    if start == _STARTS[1]:
        bridge.equalise(network, seed=seed)
    return network


def _random_ratio(probe: Probe) -> np.ndarray:
    """Spectral over Frobenius norm of a large matrix with independent entries: 1/sqrt(m) + 1/sqrt(n)."""
    return np.array([sum(1 / np.sqrt(size) for size in shape) for shape in probe.shapes])


def _findings(probes: dict[str, Probe], fresh: dict[str, Probe]) -> tuple[Finding, ...]:
    default, equal = (probes[start] for start in _STARTS)
    gain = lambda probe: probe.ratio[-1] / probe.ratio[0]
    miss = max(float(np.abs(probe.ratio[0] / _random_ratio(probe) - 1).max()) for probe in fresh.values())
    runs = probes.items()
    rises = [at_least(float(gain(one).min()), 1.1, f"{start}: smallest growth of a ratio") for start, one in runs]
    falls = [at_most(one.losses[-1] / one.losses[0], 0.5, f"{start}: last over first loss") for start, one in runs]
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


def _figures(start: str, probe: Probe) -> tuple[Figure, ...]:
    epochs, name = np.arange(len(probe.losses)), start.split()[0].lower().removesuffix("'s")
    ratios = tuple(Line(f"dense layer {k + 1}", epochs, probe.ratio[:, k]) for k in range(probe.ratio.shape[1]))
    losses = (Line("cross-entropy", epochs, probe.losses),)
    return (
        Figure(f"ratios-{name}", f"Ratios, {start}", "epoch", "spectral / Frobenius", ratios, "Reduced network."),
        Figure(f"loss-{name}", f"Loss, {start}", "epoch", "loss", losses, "The same runs."),
    )


def _trained(probes: dict[str, Probe]) -> Table:
    rows = []
    for start, probe in probes.items():
        for k in range(probe.ratio.shape[1]):
            first, last = probe.ratio[0, k], probe.ratio[-1, k]
            norms = (probe.frobenius[0, k], probe.frobenius[-1, k])
            rows.append((start, k + 1, *(f"{value:.4g}" for value in (first, last, *norms, probe.floor[k]))))
    columns = ("start", "layer", "ratio before", "ratio after", "norm before", "norm after", "floor")
    epochs = len(next(iter(probes.values())).losses) - 1
    text = f"SGD with momentum 0.9, batch 64, rate 0.02, {epochs} epochs on 512 synthetic images of ten classes."
    return Table("trained", "Dense layers of the reduced network", columns, tuple(rows), text)


def _full_size(fresh: dict[str, Probe]) -> Table:
    ratios = lambda one, k: (f"{value:.3g}" for value in (one.ratio[0, k], _random_ratio(one)[k], one.floor[k]))
    rows = tuple(
        (start, k + 1, f"{one.frobenius[0, k]:.4g}", *ratios(one, k)) for start, one in fresh.items() for k in range(3)
    )
    columns = ("start", "layer", "Frobenius norm", "ratio", "1/sqrt(m) + 1/sqrt(n)", "floor")
    return Table("full-size", "Dense layers 1024-4096-4096-10 before training", columns, rows, "")


def times(lab: Lab) -> tuple[Figure, Table]:
    """Starts above the risk of zero."""
    count = 1000 if lab.full else 200
    lab.progress("starts above the risk of zero")
    reached = np.sort(escaped(lab, range(lab.seed * count, (lab.seed + 1) * count)))
    share = f"{float(np.isfinite(reached).mean()):.3f}"
    lines = (Line("starts", reached, np.arange(1, len(reached) + 1) / len(reached)),)
    title = "Time to risk 0.1 from starts above the risk of zero"
    caption = f"{len(reached)} of {count} normal starts of scale 0.6 violate Assumption 2; depth 3, width 6, logistic."
    columns = ("starts", "violating", "reach risk 0.1", "median time", "largest time")
    row = (count, len(reached), share, f"{np.median(reached):.2f}", f"{reached.max():.2f}")
    return (
        Figure("times", title, "time", "share of the starts", lines, caption),
        Table("times", "Starts above the risk of zero", columns, (row,), "Gradient flow."),
    )


def _escape(setting: Setting, start: PyTree) -> float:
    with quietly():
        run = train(setting, FINEST, start, until=LogExcessBelow(float(np.log(0.5))), steps=20_000)
    return float(np.exp(run.log_time[-1]))


@recipe
def _escapes(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of perturbations of the start w1 = -w2, and the times they need."""
    sizes = np.array([10.0**-k for k in range(2, 13, 1 if lab.full else 2)])
    lab.progress("perturbations of the saddle")
    return sizes, np.array([_escape(*mirrored(lab, float(size))) for size in sizes])


def escapes(lab: Lab) -> tuple[Figure, Table]:
    """The antisymmetric start and perturbations of it: the time is log(1/perturbation) plus a constant."""
    sizes, found = _escapes(lab)
    slope = float(np.polyfit(np.log(1 / sizes[1:]), found[1:], 1)[0])
    law = found[-1] + np.log(1 / sizes) - np.log(1 / sizes[-1])
    lines = (Line("flow", sizes, found), Line("log(1/e) + constant", sizes, law, "prediction"))
    caption = "Starts w1 = -w2 moved by e along (w, w)."
    rows = tuple((f"{size:.0e}", f"{time:.3f}") for size, time in zip(sizes, found, strict=True))
    text = f"Slope {slope:.6f} in log(1/perturbation). Rounding is a perturbation too: unperturbed runs must not be read beyond t = 20."
    return (
        Figure("escape", "Escape from the saddle", "perturbation", "time to risk 1/2", lines, caption, "log"),
        Table("escape", "Escape times", ("perturbation", "time to risk 1/2"), rows, text),
    )


STUDIES = (
    Study(
        "deep-linear",
        "Deep linear networks: aligned layers, maximum margin (Figure 1)",
        claims=(descent_margin, layers_align, descent_bounds),
        exhibits=(separators, risks, aligned, angles, layers, kept_runs),
        definitions=words("-log R", "ratio", "alignment", "excess", "D", "R_0", "traces", "violation"),
    ),
    Study("nonlinear-layers", "Do the layers of a nonlinear network align? (Figure 2)", dense_layers),
    Study(
        "deep-linear-basin",
        "Starts above the risk of zero, and the saddle (appendix A)",
        claims=(lemmas.appendix, other_starts),
        exhibits=(times, escapes),
        definitions=words()
        | {
            "E1(q), q, q0": "the exponential integral, the integral of e^-s / s from q on, of q = |w_1|^2, which is q0 at the start; the risk is e^q",
            "e, perturbation": "length of what is added to both w_1 and w_2 = -w_1, along w_1",
        },
    ),
)
