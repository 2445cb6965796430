"""Deep linear networks by line search: Figure 1 of the paper."""

from inspect import signature

import numpy as np

from ....diagnostics.alignment import alignments, sandwich, sine
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ....lab import Lab, Study, claims_in
from ....optimisers.layerwise import LayerDescent, LineSearch
from ....settings.base import Setting
from ....settings.parametrisations import Direct
from ....theory.base import judge_direction
from ....training.recorders import Every
from ....training.train import train
from ....training.trajectory import Trajectory
from ....verdict import all_of, at_least, at_most
from .. import flow as claims
from .. import lemmas
from ..evidence import descent, geometry, levels, problem
from ..theorems import JI, DeepLinearMaxMargin

WORDS = {
    "-log R": "minus the natural logarithm of the mean risk: the clock in which the laws are powers",
    "ratio": "spectral over Frobenius norm of a layer; 1 means rank one",
    "alignment": "|<v_{k+1}, u_k>|, top right singular vector of a layer with the top left one of the layer below",
    "offset": "the part of the network orthogonal to the maximum margin",
    "excess": "Frobenius norm squared minus spectral norm squared",
    "D": "largest squared Frobenius norm of a layer minus that of the last one, plus the spectral norms of the imbalances W_k W_k' - W_{k+1}' W_{k+1}, at the start",
    "R_0": "the risk of the start",
    "traces": "of a layer: the sum over the steps of the squared step size times the squared gradient norm",
    "violation": "log R after a step minus the log of what the descent inequality promises; negative means that it was kept",
    "H(p)": "entropy of the dual weights p of the support vectors, whose sum is 1",
    "conservation drift": "largest spectral norm of the change of an imbalance since the start; 0 for the exact flow",
    "size law": "margin <w, u> + log n + log R, which tends to H(p); u is the maximum-margin direction, n the number of samples",
    "margin sandwich": "smallest margin per norm, and |sum of q_i z_i| with the run's own weights q on the signed inputs z: they enclose the best margin",
}


def words(*names: str) -> dict[str, str]:
    """The common definitions, and those of these networks that a study needs."""
    return {**DEFINITIONS, **{name: WORDS[name] for name in names}}


def claim_finding(lab: Lab, claim_name: str, catalogue: tuple, seed: int = 0) -> Finding:
    """What a claim of the ledger says of the starts of a study: those of the ledger itself have seed 0.

    Claims whose bounds were chosen for the ledger's start keep it, and say so where the study has another.
    """
    claim = next(claim for claim in catalogue if claim.name == f"deep-linear/{claim_name}")
    if "start" in signature(claim.check).parameters:
        return Finding(claim.statement, claim(lab, False, 1 + seed), claim.citation)
    where = " (On the start of the ledger, not on that of this seed.)" if seed else ""
    return Finding(claim.statement + where, claim(lab), claim.citation)


def _angles(lab: Lab, run: Trajectory) -> np.ndarray:
    unit = geometry(lab).direction
    weights = [run.weight(k) for k in range(len(run))]
    return np.array([np.degrees(np.arcsin(min(1.0, sine(w, unit)))) if w.any() else np.nan for w in weights])


def run(lab: Lab) -> Result:
    """Figure 1: separators of one and of four layers, risk and ratios against the step."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    steps = 1000 if full else 250
    progress("line search, four layers")
    deep = descent(lab, steps=steps, seed=1 + seed)
    progress("line search, four layers, small start")
    small = descent(lab, steps=steps, scale=0.15, seed=1 + seed)
    plain = Setting(deep.setting.data, Direct(), deep.setting.loss)
    progress("line search, one layer")
    one, zero = problem(lab, 1, logistic=True)[0], (np.zeros((1, 2)),)
    single = train(one, LayerDescent(LineSearch(one)), zero, steps=steps, recorder=Every())
    found = alignments(small)
    step = np.maximum(small.steps, 1)
    figures = (
        _separators(lab, plain, {"1 layer": single, "4 layers": deep}),
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
                Line("4 layers", deep.steps[1:], _angles(lab, deep)[1:]),
                Line("1 layer", single.steps[1:], _angles(lab, single)[1:]),
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
            *_of_direction(lab, run, k),
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
    findings = (
        _turned(lab, deep),
        _aligned(small),
        *(claim_finding(lab, name, claims_in(claims, lemmas), seed) for name in names),
    )
    shown = (table, _layers({"0.4": deep, "0.15": small}))
    meant = words("-log R", "ratio", "alignment", "excess", "D", "R_0", "traces", "violation")
    return Result(findings, figures, shown, {"four-layers": deep, "one-layer": single} if full else {}, meant)


def _turned(lab: Lab, run: Trajectory) -> Finding:
    """The direction of this start, judged like that of any data: against the rivals, and by its margin against 9/10 of the way from 0 to the best."""
    prediction = DeepLinearMaxMargin().predict(run.setting, LayerDescent(LineSearch(run.setting)))
    lower = float(sandwich(run)[0][-1] / geometry(lab).margin)
    verdict = all_of(judge_direction(prediction, run.weight()), at_least(lower, 0.9, "margin over best margin"))
    return Finding("From this start line search turns to the maximum margin.", verdict, f"{JI}, Theorem 4")


def _aligned(run: Trajectory) -> Finding:
    """Ratios and alignments of this start, against those it began with."""
    found = alignments(run)
    left = lambda values: float((values[-1] / values[0]).max())
    verdict = all_of(
        at_most(left(found.deficit[:, :-1]), 0.1, "largest share of 1 - ratio that is left"),
        at_most(left(found.misfit), 0.1, "largest share of 1 - |<v, u>| that is left"),
    )
    return Finding("From this start (0.15) the layers align.", verdict, f"{JI}, Theorem 3")


def _of_direction(lab: Lab, run: Trajectory, record: int) -> tuple[str, str]:
    """Angle and relative margin; the weight 0 has neither."""
    if not run.weight(record).any():
        return "no direction", ""
    return f"{_angles(lab, run)[record]:.4g}", f"{sandwich(run)[0][record] / geometry(lab).margin:.6g}"


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


def _separators(lab: Lab, plain: Setting, runs: dict[str, Trajectory]) -> Figure:
    """Signed points, and the line each network separates them with."""
    signed, reach = np.asarray(plain.data.signed), np.linspace(-1, 1, 2)
    half = len(signed) // 2
    points = signed * np.where(np.arange(len(signed)) < half, 1.0, -1.0)[:, None]
    unit = geometry(lab).direction
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


STUDIES = (Study("deep-linear", "Deep linear networks: aligned layers, maximum margin (Figure 1)", run),)
