"""Deep linear networks by line search: Figure 1 of the paper."""

from collections.abc import Callable

import numpy as np

from ..diagnostics.alignment import alignments, sandwich, sine
from ..optimisers.layerwise import LayerDescent, LineSearch
from ..settings.base import Setting
from ..settings.parametrisations import Direct
from ..theorems import deep_linear_claims as claims
from ..theorems import deep_linear_lemmas as lemmas
from ..theorems.deep_linear_problems import descent, geometry, levels, problem
from ..training.recorders import Every
from ..training.train import train
from ..training.trajectory import Trajectory
from .base import DEFINITIONS, Figure, Finding, Line, Result, Study, Table

WORDS = {
    **DEFINITIONS,
    "-log R": "minus the natural logarithm of the mean risk: the clock in which the laws are powers",
    "ratio": "spectral over Frobenius norm of a layer; 1 means rank one",
    "alignment": "|<v_{k+1}, u_k>|, top right singular vector of a layer with the top left one of the layer below",
    "offset": "the part of the network orthogonal to the maximum margin",
    "excess": "Frobenius norm squared minus spectral norm squared",
}


def claim_finding(claim_name: str, catalogue: tuple) -> Finding:
    claim = next(claim for claim in catalogue if claim.name == f"deep-linear/{claim_name}")
    return Finding(claim.statement, claim.check(False), claim.citation)


def _angles(run: Trajectory) -> np.ndarray:
    unit = geometry().direction
    weights = [run.weight(k) for k in range(len(run))]
    return np.array([np.degrees(np.arcsin(min(1.0, sine(w, unit)))) if w.any() else np.nan for w in weights])


def run(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    """Figure 1: separators of one and of four layers, risk and ratios against the step."""
    steps = 1000 if full else 250
    progress("line search, four layers")
    deep = descent(steps=steps)
    progress("line search, four layers, small start")
    small = descent(steps=steps, scale=0.15)
    plain = Setting(deep.setting.data, Direct(), deep.setting.loss)
    progress("line search, one layer")
    one, zero = problem(1, logistic=True)[0], (np.zeros((1, 2)),)
    single = train(one, LayerDescent(LineSearch(one)), zero, steps=steps, recorder=Every())
    found = alignments(small)
    step = np.maximum(small.steps, 1)
    figures = (
        _separators(plain, {"1 layer": single, "4 layers": deep}),
        Figure(
            "risk",
            "Risk against the step",
            "step",
            "-log R",
            (
                Line("start 0.4", deep.steps, levels(deep)),
                Line("start 0.15", small.steps, levels(small)),
                Line("1 layer", single.steps, levels(single)),
            ),
            "Logistic risk, uncapped line search.",
        ),
        Figure(
            "risk-linear",
            "Risk against the step, as the paper draws it",
            "step",
            "R",
            tuple(
                Line(name, run.steps, np.exp(run.log_excess))
                for name, run in (("start 0.4", deep), ("start 0.15", small))
            ),
            "The first panel on a linear axis, where it looks finished after ten steps.",
        ),
        Figure(
            "ratios",
            "Every layer tends to rank one",
            "step",
            "spectral / Frobenius",
            tuple(Line(f"layer {k + 1}", step, 1 - found.deficit[:, k]) for k in range(4)),
            "Start 0.15. The last layer is a row, so its ratio is always 1.",
            "log",
        ),
        Figure(
            "alignment",
            "Adjacent layers align",
            "step",
            "1 - |<v, u>|",
            tuple(Line(f"layers {k + 1} and {k + 2}", step, found.misfit[:, k]) for k in range(3)),
            "Start 0.15.",
            "log",
            "log",
        ),
        Figure(
            "angle",
            "Angle to the maximum margin",
            "step",
            "degrees",
            (
                Line("4 layers", deep.steps[1:], _angles(deep)[1:]),
                Line("1 layer", single.steps[1:], _angles(single)[1:]),
            ),
            "Not monotone: the line search works at the edge of stability.",
            "log",
            "log",
        ),
    )
    rows = tuple(
        (
            name,
            k,
            f"{_angles(run)[k]:.4g}",
            f"{sandwich(run)[0][k] / geometry().margin:.6g}",
            f"{np.exp(run.log_excess[k]):.2g}",
        )
        for name, run in (("4 layers, start 0.4", deep), ("1 layer, start 0", single))
        for k in (0, 1, 10, 100, *((250, 1000) if full else (250,)))
    )
    table = Table(
        "angles",
        "Angles, margins and risks",
        ("network", "step", "degrees to the maximum margin", "margin / best margin", "risk"),
        rows,
        "Strips in the plane, n = 40.",
    )
    names = ("descent-max-margin", "aligned", "descent-bounds")
    findings = tuple(claim_finding(name, (*claims.CLAIMS, *lemmas.CLAIMS)) for name in names)
    shown = (table, _layers({"0.4": deep, "0.15": small}))
    return Result(findings, figures, shown, {"four-layers": deep, "one-layer": single} if full else {}, WORDS)


def _layers(runs: dict[str, Trajectory]) -> Table:
    """Figure 1b as numbers: risk, ratios and alignments on the way."""
    rows = []
    for start, run in runs.items():
        found = alignments(run)
        for k in (10, 100, 250):
            ratios, fits = 1 - found.deficit[k], 1 - found.misfit[k]
            numbers = (
                f"{np.exp(run.log_excess[k]):.2g}",
                *(f"{r:.4f}" for r in ratios),
                *(f"{fit:.5f}" for fit in fits),
            )
            rows.append((start, k, *numbers))
    columns = (
        "start",
        "step",
        "risk",
        *(f"ratio {k}" for k in range(1, 5)),
        *(f"alignment {k}, {k + 1}" for k in range(1, 4)),
    )
    return Table("layers", "Risk, ratios and alignments", columns, tuple(rows), "Uncapped line search, four layers.")


def _separators(plain: Setting, runs: dict[str, Trajectory]) -> Figure:
    """Signed points, and the line each network separates them with."""
    signed, reach = np.asarray(plain.data.signed), np.linspace(-1, 1, 2)
    half = len(signed) // 2
    points = signed * np.where(np.arange(len(signed)) < half, 1.0, -1.0)[:, None]
    unit = geometry().direction
    across = lambda w: np.array([-w[1], w[0]]) / np.linalg.norm(w)
    lines = [
        Line("+1", points[:half, 0], points[:half, 1], "points"),
        Line("-1", points[half:, 0], points[half:, 1], "points"),
    ]
    lines += [
        Line(name, reach * across(run.weight())[0], reach * across(run.weight())[1]) for name, run in runs.items()
    ]
    lines.append(Line("maximum margin", reach * across(unit)[0], reach * across(unit)[1], "prediction"))
    return Figure(
        "separators",
        "Separators of one and of four layers",
        "x1",
        "x2",
        tuple(lines),
        "After the last step; all three lines coincide to the eye.",
    )


STUDIES = (Study("deep-linear", "Deep linear networks: aligned layers, maximum margin (Figure 1)", "deep_linear", run),)
