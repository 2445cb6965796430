"""When training ends in a local direction: the runs are named, not called failures."""

import numpy as np

from ....diagnostics.direction import misalignment
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study
from ....optimisers.base import gradient_descent, normalised_descent, polyak
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....settings.generators import local_pair, local_single, random_tokens
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct
from ....theory.judge import judge
from ....theory.selections import detect_limit, locally_optimal_selections
from ....training.events import NormAbove
from ....training.recorders import LogSpaced
from ....training.train import train

_RULES = {
    "GD": (gradient_descent, (1.0,), 20_000),
    "NGD": (normalised_descent, (0.05,), 5_000),
    "Polyak, cap 50": (polyak, (1.0, 50.0), 2_000),
    "Polyak": (polyak, (), 2_000),
}


_WORDS = {
    "W_mm": "maximum-margin direction of the optimal tokens",
    "GD, NGD, Polyak": "gradient descent; steps of fixed length along the gradient; steps (L - L*) / |gradient|^2 times the gradient, that multiplier at most the cap",
    "global, local, undecided": "all samples give 0.9 of their attention to an optimal token; some to another one; some to none yet",
    "locally optimal": "a selection whose maximum-margin direction exists, and whose tokens have higher scores than their active neighbours; score slack: by how much",
    "plateau of log excess": "log excess with all attention on the tokens that were reached; -inf where these are optimal",
    "score gap": "score of the optimal token minus that of the other one",
}


def run(lab: Lab) -> Result:
    full, progress = lab.full, lab.progress
    cases = {
        "pair, gaps 1 and 0.1": local_pair(1.0, 0.1),
        "pair, gaps 1 and 0.25": local_pair(1.0, 0.25),
        "single sample": local_single(),
    }
    rows, findings, lines, kept = [], [], [], {}
    for case, data in cases.items():
        setting = Setting(data, Direct(), Exponential())
        runs = {
            name: train(setting, make(*arguments), steps=steps) for name, (make, arguments, steps) in _RULES.items()
        }
        runs["flow"] = train(setting, GradientFlow(), until=NormAbove(1e5))
        for name, one in runs.items():
            progress(f"{case}: {name}")
            limit = detect_limit(one)
            optimal = bool(limit.reached is not None and limit.reached.locally_optimal)
            rows.append(
                (
                    case,
                    name,
                    one.status.name,
                    limit.kind,
                    str(list(limit.tokens)),
                    "yes" if optimal else "no",
                    *_numbers(limit),
                )
            )
            if name == "NGD":
                prediction = lab.predict(setting, normalised_descent(0.05))
                findings.append(
                    Finding(
                        f"{case}, {name}: {prediction.theorem.statement}",
                        judge(prediction, one),
                        prediction.theorem.citation,
                    )
                )
                lines.append((case, one, max_margin(data), limit))
            kept[f"{case}-{name}".replace(" ", "-").replace(",", "")] = one
    selections = tuple(
        (
            case,
            str(list(found.tokens)),
            Shown(found.slack, ".4g"),
            Shown(found.solution.value, ".6f") if found.solution is not None else "",
        )
        for case, data in cases.items()
        for found in locally_optimal_selections(data)
    )
    tables = [
        Table(
            "limits",
            "Where the runs ended",
            (
                "data",
                "rule",
                "ending",
                "limit",
                "tokens",
                "locally optimal",
                "1 - corr to their direction",
                "1 - corr to W_mm",
                "plateau of log excess",
            ),
            tuple(rows),
            "Token indices from 0; all runs start at 0. GD: 20 000 steps of step size 1; NGD: 5 000 steps of length 0.05; Polyak: 2 000 steps, with a cap of 50 or "
            "without; flow: to norm 1e5. Uncapped Polyak ends when its linear model stops describing the loss.",
        ),
        Table(
            "selections",
            "Locally optimal selections",
            ("data", "tokens", "score slack", "norm of the direction"),
            selections,
            "By enumeration.",
        ),
    ]
    progress("random tokens: share of global runs against the dimension")
    figure, table = _random_tokens(full)
    tables.append(table)
    return Result(
        tuple(findings),
        (_paths(lines), figure),
        tuple(tables),
        kept if full else {},
        {**DEFINITIONS, **_WORDS},
    )


def _numbers(limit: object) -> tuple[str, ...]:
    values = (limit.misalignment, limit.global_misalignment, limit.plateau)  # pyright: ignore
    return tuple(Shown(value, ".6g") for value in values)


def _paths(lines: list) -> Figure:
    curves = []
    for case, one, reference, limit in lines:
        curves.append(
            Line(
                f"{case}: to W_mm",
                one.steps[1:],
                np.array([misalignment(one.weight(k), reference.weight) for k in range(1, len(one))]),
            )
        )
        if limit.kind == "local":
            target = limit.reached.solution.weight
            curves.append(
                Line(
                    f"{case}: to the reached selection",
                    one.steps[1:],
                    np.array([misalignment(one.weight(k), target) for k in range(1, len(one))]),
                    "prediction",
                )
            )
    return Figure(
        "paths",
        "Normalised descent from zero",
        "step",
        "1 - corr",
        tuple(curves),
        "A run that leaves W_mm for good is on its way to the direction of other tokens.",
        "log",
        "log",
    )


def _random_tokens(full: bool) -> tuple[Figure, Table]:
    """Share of runs that end globally, for tokens N(0, I/d), n = 5, T = 4."""
    dimensions, seeds = (3, 4, 6, 12), 16 if full else 8
    rows, shares = [], {True: [], False: []}
    for equal in (True, False):
        for d in dimensions:
            kinds = [_random_run(d, seed, equal) for seed in range(seeds)]
            feasible = [kind for kind in kinds if kind is not None]
            count = sum(kind == "global" for kind in feasible)
            shares[equal].append(count / max(len(feasible), 1))
            rows.append(("equal" if equal else "random", d, f"{count}/{len(feasible)}"))
    lines = tuple(
        Line(f"{'equal' if equal else 'random'} scores", np.array(dimensions, float), np.array(share))
        for equal, share in shares.items()
    )
    figure = Figure(
        "share",
        "Share of runs that reach the optimal tokens",
        "dimension",
        "share of feasible data sets",
        lines,
        f"Tokens N(0, I/d), n = 5, T = 4, {seeds} seeds, 20 000 normalised steps of length 0.05 from zero.",
    )
    return figure, Table(
        "share",
        "Global runs among feasible data sets",
        ("scores", "d", "global / feasible"),
        tuple(rows),
        "Infeasible data sets have no direction to compare with.",
    )


def _random_run(d: int, seed: int, equal: bool) -> str | None:
    from ....errors import InfeasibleSVM

    data = random_tokens(5, 4, d, seed, equal_scores=equal)
    try:
        max_margin(data)
    except InfeasibleSVM:
        return None
    run = train(Setting(data, Direct(), Exponential()), normalised_descent(0.05), steps=20_000, recorder=LogSpaced(10))
    return detect_limit(run).kind


STUDIES = (Study("local-directions", "Local directions: when global convergence fails", run),)
