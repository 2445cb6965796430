"""Deep linear networks in discrete time: when descent leaves the flow, and what momentum, minibatches and Adam make of its limit."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ....diagnostics.direction import misalignment
from ....exhibits import Figure, Line, Result, Shown, Table
from ....flow.flow import Levels
from ....lab import Lab, Study, claims_in
from ....optimisers.base import Descent
from ....optimisers.step_rules import Polyak
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....theory.families.linear import linear_rivals
from ....theory.layer_constants import critical_step
from ....training.events import LogExcessBelow
from ....training.recorders import LogSpaced
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import steps
from ..evidence import FAR, geometry, kept, levels, problem
from .alignment import claim_finding, words

_SHARES = (0.1, 0.2, 0.4, 0.7, 0.9, 0.98, 1.02, 1.1, 1.4, 2.0)
_DEPTHS = (2, 3, 4)


def run_discretisation(lab: Lab) -> Result:
    """Descent with steps that promise a fixed drop of log R, on both sides of the critical one, and other optimisers at their own pace."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    rows, offsets, distances = [], [], []
    for depth in _DEPTHS:
        progress(f"relative steps, depth {depth}")
        shares = (0.05, *_SHARES) if full else _SHARES
        runs = [steps.relative_descent(lab, share, depth) for share in shares]
        errors = [steps.offset_error(run.weight(), geometry(lab)) for run in runs]
        away = _from_flow(lab, depth, runs)
        for share, run, error, distance in zip(shares, runs, errors, away, strict=True):
            found = steps.measures(run.setting, run.at(), run.at(0))
            cells = (distance, error, found["drift"], found["1 - |<v, u>|"], found["margin / best margin"])
            drop = share * critical_step(geometry(lab), depth)
            shown = tuple(
                Shown(cell, form) for cell, form in zip(cells, (".2g", ".2g", ".2g", ".2g", ".6f"), strict=True)
            )
            rows.append((depth, share, Shown(drop, ".4f"), int(run.steps[-1]), *shown))
        offsets.append(Line(f"L = {depth}", np.array(shares), np.array(errors)))
        distances.append(Line(f"L = {depth}", np.array(shares), np.array(away)))
    progress("other optimisers")
    figures = (
        Figure(
            "offset",
            "Beyond the critical step the offset never settles",
            "drop of log R per step / critical drop",
            "relative error of the offset",
            tuple(offsets),
            f"Strips in the plane, descent to risk e^-{steps.LEVEL:g}. The critical drop is 2 L margin^2 / variance, known before training.",
            "log",
            "log",
        ),
        Figure(
            "distance",
            "How far descent is from the flow",
            "drop of log R per step / critical drop",
            "|W - flow| / |flow|",
            tuple(distances),
            "All layers together, at the same risk. The distance grows like the step: nothing is seen of the critical one, which concerns one direction.",
            "log",
            "log",
        ),
    )
    table = Table(
        "steps",
        "Relative steps",
        (
            "L",
            "share of the critical drop",
            "drop of log R per step",
            "steps",
            "distance from the flow",
            "error of the offset",
            "conservation drift",
            "1 - |<v, u>|",
            "margin / best margin",
        ),
        tuple(rows),
        f"Strips, descent to risk e^-{steps.LEVEL:g}. Alignment and margin survive on both sides of the critical step.",
    )
    findings = tuple(claim_finding(lab, claim.name.split("/")[1], claims_in(steps), seed) for claim in claims_in(steps))
    meant = {
        **words("-log R", "alignment", "offset", "conservation drift"),
        "drop of log R per step": "step size times |grad R|^2 / R: what the step promises to first order, the relative step",
        "critical drop": "2 L margin^2 / (largest variance of the support vectors across the margin, under their dual weights)",
    }
    return Result(findings, figures, (table, _optimisers(lab, seed)), {}, meant)


def _from_flow(lab: Lab, depth: int, runs: list[Trajectory]) -> list[float]:
    """Distance of the last layers of every run from those of the flow at the same risk, relative to these."""
    setting, start = problem(lab, depth)
    ends = sorted({float(run.log_excess[-1]) for run in runs}, reverse=True)
    last = float(max(levels(run)[-1] for run in runs)) + 1.0
    path = train(setting, FAR, start, until=kept(last), steps=20_000, recorder=Levels("log_excess", ends))
    flat = lambda layers: np.concatenate([np.asarray(layer).ravel() for layer in layers])
    found = []
    for run in runs:
        there = flat(path.at(int(np.abs(path.log_excess - run.log_excess[-1]).argmin())))
        found.append(float(np.linalg.norm(flat(run.at()) - there) / np.linalg.norm(there)))
    return found


def _optimisers(lab: Lab, seed: int) -> Table:
    """Where momentum, minibatches and Adam go, on data where the margins agree and on data where they do not."""
    strips, start = problem(lab, 3, logistic=True)
    entries: list[tuple[str, str, Setting, Any, Any]] = [
        ("strips", "descent, step 0.2", strips, steps.whole_descent(lab).at(), start)
    ]
    for batch in (8, 1):
        entries.append(("strips", f"SGD, batch {batch}", strips, steps.sampled_descent(lab, batch, seed), start))
    for beta in (0.5, 0.9):
        run = steps.relative_descent(lab, 0.25, 3, beta)
        entries.append(("strips", f"momentum {beta}, 0.25 of critical", run.setting, run.at(), run.at(0)))
    apart, first = steps.apart(lab, seed=1 + seed)
    until, recorder = LogExcessBelow(-steps.LEVEL), LogSpaced(10)
    run = train(apart, Descent(Polyak(10.0)), first, steps=40_000, until=until, recorder=recorder)
    entries.append(("blobs", "descent, drop 0.1", apart, run.at(), first))
    entries.append(("blobs", "Adam", apart, steps.adaptive(lab, seed=1 + seed).at(), first))
    return Table(
        "optimisers",
        "Other optimisers, three layers",
        (
            "data",
            "optimiser",
            "-log R",
            "1 - |<v, u>|",
            "margin / best margin",
            "1 - corr, l2",
            "1 - corr, linf",
            "conservation drift",
        ),
        tuple((data, name, *_row(setting, layers, begun)) for data, name, setting, layers, begun in entries),
        "On the strips the l2 and linf references coincide; on the blobs they are apart, and Adam goes to the linf one.",
    )


def _row(setting: Setting, layers: Any, begun: Any) -> tuple:
    found, reference = steps.measures(setting, layers, begun), max_margin(setting.data)
    other = next(rival for rival in linear_rivals(setting, reference) if rival.name == "linf")
    params = tuple(jnp.asarray(layer) for layer in layers)
    level = -float(setting.weigh(setting.margins(params)).log_excess)
    weight = np.asarray(setting.weight(params))
    return (
        Shown(level, ".1f"),
        Shown(found["1 - |<v, u>|"], ".2g"),
        Shown(found["margin / best margin"], ".4f"),
        Shown(found["1 - corr"], ".2g"),
        Shown(misalignment(weight, other.weight), ".2g"),
        Shown(found["drift"], ".2g"),
    )


STUDIES = (
    Study(
        "deep-linear-discretisation",
        "Deep linear networks: descent, momentum, SGD and Adam against the flow",
        run_discretisation,
    ),
)
