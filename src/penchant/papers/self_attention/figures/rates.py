"""Rates of token selection with confidence: proved, sharp and measured exponents side by side, and two ways to be faster."""

from typing import Any

import numpy as np

from ....diagnostics.direction import misalignments
from ....diagnostics.joint import joint_misalignments
from ....diagnostics.rates import Rate, Settling, linear_slope, log_log_slope, rate, settling
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....lab import Lab, Study
from ....optimisers.base import Accelerated, gradient_descent, momentum, normalised_descent, polyak
from ....optimisers.joint import BlockNormalised, JointAccelerated, JointHeavyBall
from ....references.base import Solution
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....settings.generators import signal_tokens
from ....settings.joint import marked_tokens
from ....settings.losses import Exponential
from ....settings.parametrisations import Gram
from ....theory.joint_limits import joint_references
from ....training.joint import train_joint
from ....training.recorders import At
from ....training.train import train
from ....training.trajectory import Trajectory
from ....verdict import at_most, covers
from ..evidence import sharp_constant
from ..joint_theorems import longest_token

_WINDOW = (1e3, 1e4)
_RECORDS = At(tuple(np.unique(np.append([10, 30, 100, 300], np.geomspace(*_WINDOW, 60).round()).astype(int)).tolist()))
_LATER = {("H", "NGD"): (1e4, 1e5)}  # where the limit is judged if the first window is not in the regime of powers yet
# Exponents of |W| and of 1 - corr: proved by the paper, and ours, sharp in the limit. None: only a power of log t.
_KNOWN = {
    "GD": (None, None),
    "NGD": (-1.0, -2.0),
    "NGD, momentum 0.9": (None, -2.0),
    "Polyak": (-1.0, -2.0),
    "dual acceleration": (None, -4.0),
}


_PAPER = "Vasudeva, Deora, Thrampoulidis, Implicit bias and fast convergence rates for self-attention, 2024, arXiv 2402.05738"
_DUAL = "Ji, Srebro, Telgarsky, Fast margin maximization via dual acceleration, 2021; exponents derived"
_SHARP = f"derived; the rule is of {_PAPER}"
_WORDS = {
    **DEFINITIONS,
    "W_mm": "shortest W that gives the optimal token of every sample a logit larger by 1 than all others; 1 - corr is to its direction",
    "preset E": "signal_tokens(): Example 1 of the paper, which satisfies the condition on pairs of tokens",
    "preset H": "signal_tokens(20, 5, 50, 1.0, 0.1): Example 1 with more noise than that condition allows",
    "GD, NGD, Polyak": "gradient descent of step size 1; normalised steps of fixed length (0.05 on preset E, 0.1 on H); steps (L - L*) / |gradient|^2 times the gradient, without a cap",
    "momentum, heavy ball": "NGD that keeps the share beta of its last step",
    "dual acceleration": "weighted average of all gradients of log(L - L*), by which W moves; step size half of 1 over the largest squared feature",
    "proved, sharp": "exponent p of 1 - corr ~ t^p: what the paper proves (up to powers of log t), and what theory beyond the paper predicts",
    "drift": "difference of the exponents fitted to the earlier and to the later half of the window: how much a fit may still change",
}


def _settings(preset: str, seeds: range) -> tuple[list[Setting], list[Solution], float]:
    make = (
        (lambda seed: signal_tokens(seed=seed))
        if preset == "E"
        else (lambda seed: signal_tokens(20, 5, 50, 1.0, 0.1, seed))
    )
    sets = [make(seed) for seed in seeds]
    return (
        [Setting(data, Gram(data), Exponential()) for data in sets],
        [max_margin(data) for data in sets],
        0.05 if preset == "E" else 0.1,
    )


def _rules(settings: list[Setting], length: float) -> dict[str, Any]:
    steps = np.array([0.5 / float(np.diag(np.asarray(one.parametrisation.matrix)).max()) for one in settings])
    return {
        "GD": gradient_descent(1.0),
        "NGD": normalised_descent(length),
        "NGD, momentum 0.9": momentum(length),
        "Polyak": polyak(),
        "dual acceleration": Accelerated(steps),
    }


def _measured(runs: list[Trajectory], references: list[Solution]) -> tuple[Rate, Rate]:
    pairs = list(zip(runs, references, strict=True))
    growth = rate([log_log_slope(run.steps, run.norm, _WINDOW) for run in runs])
    return growth, rate([log_log_slope(run.steps, misalignments(run, found), _WINDOW) for run, found in pairs])


def _settled(runs: list[Trajectory], references: list[Solution], window: tuple[float, float] = _WINDOW) -> Settling:
    """Where the exponent of 1 - corr tends to."""
    pairs = zip(runs, references, strict=True)
    return settling([(one.steps, misalignments(one, found)) for one, found in pairs], window)


def _records(last: float) -> At:
    """Those of the first window, and as many of a later one."""
    more = () if last <= _WINDOW[1] else tuple(np.geomspace(_WINDOW[1], last, 60).round().astype(int).tolist())
    return At(tuple(sorted({*_RECORDS.steps, *more})))


def run(lab: Lab) -> Result:
    """Exponents over ten seeds (four in the quick form) from one vectorised run per rule."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    seeds = range(seed, seed + (10 if full else 4))
    tables, findings, figures = [], [], []
    for preset in ("E", "H") if full else ("E",):
        settings, references, length = _settings(preset, seeds)
        rows, lines = [], []
        for name, rule in _rules(settings, length).items():
            progress(f"preset {preset}: {name}, {len(seeds)} seeds")
            window = _LATER.get((preset, name), _WINDOW)
            runs = train(settings, rule, steps=int(window[1]), recorder=_records(window[1]))
            growth, slope = _measured(runs, references)
            proved, sharp = _KNOWN[name]
            text = lambda value: "logarithmic" if value is None else f"{value:g}"
            rows.append((name, "none" if proved is None else Shown(proved, "g"), text(sharp), slope, growth))
            distance = np.mean(
                [np.log(misalignments(one, found)[1:]) for one, found in zip(runs, references, strict=True)], axis=0
            )
            lines.append(Line(name, runs[0].steps[1:], np.exp(distance)))
            if proved is not None:
                verdict = at_most(slope.high, proved, f"upper end of the exponent {slope} of 1 - corr")
                statement = f"Preset {preset}, {name}: 1 - corr falls at least like 1/t (up to logarithms)."
                findings.append(Finding(statement, verdict, _PAPER))
            if sharp is not None:
                text = f"exponent of 1 - corr over steps {window[0]:g} to {window[1]:g}, interval and drift"
                before = "" if window == _WINDOW else f"over steps 1000 to 10000 still {_settled(runs, references)}"
                verdict = covers(_settled(runs, references, window), sharp, text, before, rival=sharp / 2)
                statement = f"Preset {preset}, {name}: the sharp exponent of 1 - corr is {sharp:g}."
                findings.append(Finding(statement, verdict, _DUAL if "dual" in name else _SHARP))
        columns = ("rule", "proved exponent of 1 - corr", "sharp", "measured", "measured exponent of the norm")
        caption = f"Least squares of logarithms over steps 1e3 to 1e4; mean and 95 % Student interval over {len(seeds)} seeds."
        tables.append(
            Table(f"rates-{preset}", f"Preset {preset}: proved, sharp and measured", columns, tuple(rows), caption)
        )
        title = f"Preset {preset}: geometric mean over seeds"
        figures.append(
            Figure(
                f"rates-{preset}",
                title,
                "step",
                "1 - corr to W_mm",
                tuple(lines),
                "Slopes over steps 1e3 to 1e4 are the exponents of the table.",
                "log",
                "log",
            )
        )
    words = {name: text for name, text in _WORDS.items() if full or name != "preset H"}
    return Result(tuple(findings), tuple(figures), tuple(tables), {}, words)


def run_memory(lab: Lab) -> Result:
    """Heavy ball changes the constant by (1 - beta)^2, dual acceleration the exponent."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    seeds = range(seed, seed + (10 if full else 4))
    settings, references, length = _settings("E", seeds)
    constants = np.array([sharp_constant(one, found) for one, found in zip(settings, references, strict=True)])
    rows, lines, findings = [], [], []
    plain = None
    for beta in (0.0, 0.5, 0.9, 0.99):
        progress(f"heavy ball, beta = {beta}")
        rule = normalised_descent(length) if beta == 0 else momentum(length, beta)
        runs = train(settings, rule, steps=10_000, recorder=_RECORDS)
        distance = np.array([misalignments(one, found) for one, found in zip(runs, references, strict=True)])
        plain = distance if plain is None else plain
        _, slope = _measured(runs, references)
        gain = float(np.mean(distance[:, -1] / plain[:, -1]))
        scaled = float(
            np.mean([run.norm[-1] ** 2 * d[-1] / c for run, d, c in zip(runs, distance, constants, strict=True)])
        )
        rows.append(
            (
                f"heavy ball, beta = {beta:g}",
                slope,
                Shown(gain, ".4g"),
                Shown((1 - beta) ** 2, ".4g"),
                Shown(scaled, ".4f"),
            )
        )
        lines.append(Line(f"beta = {beta:g}", runs[0].steps[1:], distance[0, 1:]))
        if beta > 0:
            # The lag of the velocity, beta/(1-beta) steps, shows as a correction of that size over t.
            ratio = [
                (one.steps[1:], one.steps[1:] * d[1:] / p[1:]) for one, d, p in zip(runs, distance, plain, strict=True)
            ]
            found = settling(ratio, _WINDOW, linear_slope)
            text = "d (t times ratio to no momentum) / dt, interval and drift"
            verdict = covers(found, (1 - beta) ** 2, text, rival=1 - beta)
            findings.append(
                Finding(
                    f"Heavy ball with beta = {beta:g} keeps the exponent and lowers the constant by (1 - beta)^2.",
                    verdict,
                    _SHARP,
                )
            )
    progress("dual acceleration")
    runs = train(settings, _rules(settings, length)["dual acceleration"], steps=10_000, recorder=_RECORDS)
    _, slope = _measured(runs, references)
    ends = [run.norm[-1] ** 2 * misalignments(run, found)[-1] for run, found in zip(runs, references, strict=True)]
    rows.append(("dual acceleration", slope, "", "", Shown(np.mean(ends / constants), ".4f")))
    lines.append(Line("dual acceleration", runs[0].steps[1:], misalignments(runs[0], references[0])[1:]))
    findings.append(
        Finding(
            "Dual acceleration: 1 - corr falls like t^-4.",
            covers(_settled(runs, references), -4.0, "exponent of 1 - corr, interval and drift", rival=-2.0),
            _DUAL,
        )
    )
    findings.append(
        Finding(
            "Dual acceleration: the norm grows like t^2.",
            covers(settling([(one.steps, one.norm) for one in runs], _WINDOW), 2.0, "exponent of the norm", rival=1.0),
            _DUAL,
        )
    )
    columns = ("rule", "exponent of 1 - corr", "ratio to no momentum", "(1 - beta)^2", "norm^2 (1 - corr) / predicted")
    table = Table(
        "memory",
        "Momentum changes the constant, acceleration the exponent",
        columns,
        tuple(rows),
        "Preset E; steps of length 0.05; ratios at 10 000 steps, exponents over steps 1e3 to 1e4. An exponent beyond -2 is the lag of the "
        "velocity, beta/(1 - beta) steps: 1 - corr ~ (t - lag)^-2.",
    )
    figure = Figure(
        "memory",
        "Momentum and acceleration",
        "step",
        "1 - corr to W_mm",
        tuple(lines),
        f"Preset E, seed {seed}.",
        "log",
        "log",
    )
    progress("both blocks trained: heavy ball and acceleration")
    joint, more = _joint_memory(seeds)
    words = {
        **{name: text for name, text in _WORDS.items() if name not in ("preset H", "proved, sharp")},
        "predicted": "the constant to which norm^2 (1 - corr) tends, from the data alone",
        "block-normalised": "W and u each move by a step of length 0.05 along their own normalised gradient",
        "lag": "beta/(1 - beta), the number of steps by which the velocity of heavy ball trails behind",
    }
    return Result((*findings, *more), (figure,), (table, joint), {}, words)


def _joint_findings(name: str, runs: Any, distances: list[np.ndarray]) -> list[Finding]:
    """Whether W turns as fast as it does with a fixed decoder."""
    sharp, rival = (-4.0, -2.0) if "dual" in name else (-2.0, -1.0)
    found = settling([(one.steps, values) for one, values in zip(runs, distances, strict=True)], _WINDOW)
    verdict = covers(found, sharp, "exponent of 1 - corr of W, interval and drift", rival=rival)
    statement = f"Decoder trained as well, {name}: 1 - corr of W falls like t^{sharp:g}, as with a fixed decoder."
    return [Finding(statement, verdict, "conjecture")]


def _joint_memory(seeds: range) -> tuple[Table, list[Finding]]:
    """The same rules where the decoder is trained as well."""
    sets = [marked_tokens(seed=seed) for seed in seeds]
    references, longest = [joint_references(data) for data in sets], max(longest_token(data) for data in sets)
    rules = {
        "block-normalised": BlockNormalised(0.05),
        "block-normalised, heavy ball 0.9": JointHeavyBall(BlockNormalised(0.05)),
        "dual acceleration of log L": JointAccelerated(0.5 / longest**2),
    }
    rows, findings = [], []
    for name, rule in rules.items():
        runs = train_joint(sets, rule, steps=10_000, recorder=_RECORDS)
        distances = [
            joint_misalignments(one, found.attention.weight) for one, found in zip(runs, references, strict=True)
        ]
        exponents = (
            rate([log_log_slope(one.steps, values, _WINDOW) for one, values in zip(runs, series, strict=True)])
            for series in ([one.norm_W for one in runs], [one.norm_u for one in runs], distances)
        )
        ends = (Shown(distances[0][-1], ".3g"), Shown(runs[0].log_loss[-1], ".6g"))
        rows.append((name, *exponents, *ends))
        findings += _joint_findings(name, runs, distances)
    columns = ("rule", "exponent of |W|", "of |u|", "of 1 - corr of W", "1 - corr of W at 1e4", "log L at 1e4")
    caption = (
        f"Figure 3 data; exponents over steps 1e3 to 1e4 with 95 % Student interval over {len(seeds)} seeds, values of seed {seeds[0]}. "
        "Acceleration lowers the loss fastest, but |W| grows only like log t under it, and its direction stands still."
    )
    return Table("joint-memory", "Decoder trained as well", columns, tuple(rows), caption), findings


STUDIES = (
    Study("self-attention-rates", "Proved, sharp and measured exponents of token selection", run),
    Study(
        "momentum-and-acceleration",
        "Momentum and dual acceleration in token selection",
        run_memory,
    ),
)
