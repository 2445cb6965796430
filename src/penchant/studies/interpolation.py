"""Which interpolant: least norm, sparse recovery, and the way from the kernel regime to the sparse one."""

from collections.abc import Callable

import numpy as np

from ..diagnostics.restricted_isometry import restricted_isometry
from ..flow.flow import GradientFlow
from ..flow.mirror import follow_dual
from ..optimisers.adam import Adam
from ..optimisers.base import Descent, gradient_descent
from ..optimisers.geometry import L2
from ..optimisers.memory import HeavyBall
from ..optimisers.step_rules import Constant
from ..references.interpolation import basis_pursuit, minimum_norm, minimum_potential, potential_path
from ..references.l1_uniqueness import strict_dual
from ..settings.base import Setting
from ..settings.generators import sparse_regression
from ..settings.losses import Squared
from ..settings.parametrisations import Direct
from ..settings.potentials import Entropy, q_alpha
from ..settings.regression import Regression
from ..theorems import depth_claims
from ..theorems.catalogue import judge, predict
from ..theorems.interpolation import distance
from ..theorems.interpolation_problems import ADAM, DERIVED
from ..theorems.linear_models import NOTES
from ..theorems.q_alpha_claims import kernel_deviation, kernel_limit, sparse_rate, three_routes
from ..theorems.sparse_recovery_claims import noise_growth
from ..theorems.time_window_claims import beyond_window, error_at, recovery, square_setting, time_window, window_bound
from ..training.noise import sample_noise
from ..training.recorders import LogSpaced
from ..training.train import train
from ..verdict import at_most
from .base import DEFINITIONS, Figure, Finding, Line, Result, Shown, Study, Table
from .interpolation_depth import depth_parts

_ALPHA = {**DEFINITIONS, "alpha": "size of the start of every parameter"}
_STEPS, _DRAWS = 20_000, 200_000
_SINGLE = "single-sample SGD"


def _single_samples(data: Regression, start: np.ndarray, seed: int) -> np.ndarray:
    """Where SGD with the step size 0.5/|x_i|^2 ends: the same steps as of step size 0.5 on samples divided by |x_i|."""
    lengths = np.linalg.norm(np.asarray(data.inputs), axis=1)
    inputs, targets = np.asarray(data.inputs) / lengths[:, None], np.asarray(data.targets) / lengths
    return sample_noise(inputs, targets, 0.5, _DRAWS, 1, seed, start)[0]


def _interpolant_table(data: Regression, ends: dict[str, tuple], sizes: dict[str, str]) -> Table:
    """Where each rule ends from each start, measured against the projection of that start on the solutions."""
    right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[2]
    least, rows = float(np.linalg.norm(minimum_norm(data).weight)), []
    for name, (rule, start, weight) in ends.items():
        target, moved = minimum_norm(data, start).weight, weight - start
        gap = float(np.linalg.norm(weight - target))
        values = (gap, gap / np.linalg.norm(target), float(np.linalg.norm(moved - right.T @ (right @ moved))))
        rows.append((name, sizes[rule], *(Shown(value, ".3g") for value in values), _ratio(weight, least)))
    columns = (
        "run",
        "step size",
        "distance to the projection",
        "relative distance",
        "off-span part",
        "norm / least norm",
    )
    caption = (
        f"Least norm {least:.7g}. The projection is the solution nearest to the start, from 0 the one of least norm."
    )
    return Table("ends", "Where each rule ends", columns, tuple(rows), caption)


def _ratio(weight: np.ndarray, least: float) -> Shown:
    return Shown(np.linalg.norm(weight) / least, ".5g")


def min_norm(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    rng = np.random.default_rng(seed)
    n, d = (100, 400) if full else (20, 50)
    data = Regression(rng.standard_normal((n, d)), rng.standard_normal(n))
    begin = rng.standard_normal(d)
    setting = Setting(data, Direct(), Squared(), "sum")
    step = 1 / float(np.linalg.norm(np.asarray(data.inputs), 2) ** 2)
    rules = {
        "gradient flow": GradientFlow(),
        "gradient descent": gradient_descent(step),
        "heavy ball": Descent(Constant(step), L2(), HeavyBall(0.9)),
        "Adam": Adam(**ADAM),
    }
    sizes = dict.fromkeys(rules, f"{step:.4g}") | {"gradient flow": "none", "Adam": f"{ADAM['step']:g}"}
    sizes[_SINGLE] = "0.5 / |x_i|^2"
    runs, findings, ends = {}, [], {}
    for name, rule in rules.items():
        for label, start in (("0", np.zeros(d)), ("a random start", begin)):
            progress(f"{name} from {label}")
            flow = isinstance(rule, GradientFlow)
            run = (
                train(setting, rule, start)
                if flow
                else train(setting, rule, start, steps=_STEPS, recorder=LogSpaced(60))
            )
            prediction = predict(setting, rule, start)
            ends[f"{name} from {label}"] = name, start, run.weight()
            findings.append(
                Finding(
                    f"{name} from {label}: {prediction.theorem.statement}",
                    judge(prediction, run),
                    prediction.theorem.citation,
                )
            )
            runs[f"{name} from {label}"] = run
    for label, start in (("0", np.zeros(d)), ("a random start", begin)):
        progress(f"{_SINGLE} from {label}")
        weight = _single_samples(data, start, seed)
        ends[f"{_SINGLE} from {label}"] = _SINGLE, start, weight
        found = at_most(
            distance(weight, minimum_norm(data, start).weight), 1e-10, f"relative distance after {_DRAWS} steps"
        )
        statement = f"{_SINGLE} from {label}: converges to the projection of the start on the solutions."
        findings.append(Finding(statement, found, f"{NOTES}, section 9.1"))
    right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[2]
    off = lambda run: np.array(
        [np.linalg.norm(w - run.at(0) - right.T @ (right @ (w - run.at(0)))) for w in run.params[1:]]
    )
    least = float(np.linalg.norm(minimum_norm(data).weight))
    descents = {name: run for name, run in runs.items() if "flow" not in name}
    figures = (
        Figure(
            "off-span",
            "Combinations of gradients stay in the span of the inputs",
            "step",
            "off-span part",
            tuple(Line(name, run.steps[1:], np.maximum(off(run), 1e-18)) for name, run in descents.items()),
            "Adam leaves the span; all others stay in it to rounding.",
            "log",
            "log",
        ),
        Figure(
            "norm",
            "Norm of the weight over the least norm",
            "step",
            "norm / least norm",
            tuple(Line(name, run.steps[1:], run.norm[1:] / least) for name, run in descents.items()),
            "From 0 descent ends at 1; a start outside the span keeps its part there.",
            "log",
            "log",
        ),
    )
    table = _interpolant_table(data, ends, sizes)
    words = {
        **DEFINITIONS,
        "off-span part": "norm of the component of weight - start orthogonal to all inputs; 0 for combinations of gradients",
        "projection (of a start)": "the weight nearest to the start among those that fit all targets: what the theorem says is selected",
        "heavy ball, Adam": f"momentum 0.9 of the same step size; Adam with step size {ADAM['step']:g}, epsilon {ADAM['eps']:g}; both, and descent, for {_STEPS} steps",
    }
    kept = {name.replace(" ", "-"): run for name, run in runs.items()}
    return Result(tuple(findings), figures, (table,), kept, words)


def sparse_recovery(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    data, weight = recovery(seed)
    alphas, step = (1e-2, 1e-4, 1e-6), 0.05
    descents, flows, rows = [], [], []
    for alpha in alphas:
        progress(f"alpha = {alpha:g}")
        begin = round(np.log(200 / alpha) / step)
        run = train(square_setting(data, alpha), gradient_descent(step), steps=10 * begin, recorder=LogSpaced(80))
        errors = np.array([error_at(run, k, weight) for k in range(len(run))])
        descents.append(Line(f"descent, alpha = {alpha:g}", run.steps[1:] * step, errors[1:], "points"))
        program = minimum_potential(data, Entropy(np.full(200, 2 * np.log(alpha)))).weight
        limit = float(((program - weight) ** 2).sum())
        if alpha >= (1e-6 if full else 1e-4):
            path = follow_dual(square_setting(data, alpha), until=float(np.log(1e13 if full else 1e11)))
            weights = np.exp(2 * np.log(alpha) + path.dual[1:] @ np.asarray(data.inputs))
            flows.append(
                Line(f"flow, alpha = {alpha:g}", np.exp(path.log_time[1:]), ((weights - weight) ** 2).sum(axis=1))
            )
            flows.append(
                Line(
                    f"limit program, alpha = {alpha:g}",
                    np.exp(path.log_time[1:]),
                    np.full(len(weights), limit),
                    "prediction",
                )
            )
        window = time_window(200, alpha, step)
        rows.append(
            (
                Shown(alpha, "g"),
                Shown(errors[-1], ".4g"),
                Shown(alpha * np.sqrt(200), ".4g"),
                Shown(limit, ".4g"),
                f"[{window[0]:.0f}, {window[1]:.0f}]" if window[0] < window[1] else "empty",
            )
        )
    isometry = tuple(
        (str(s), Shown(found.lower, ".4g"), Shown(found.upper, ".4g"), "yes" if found.exact else "no")
        for s, found in ((s, restricted_isometry(np.asarray(data.inputs), s)) for s in (1, 2, 4, 6))
    )
    n, d = data.inputs.shape
    findings = (
        Finding(
            "Inside the time window the squared error is at most alpha sqrt(d).",
            window_bound(False, seed),
            f"{NOTES}, Theorem 9.4",
        ),
        Finding("Where the window is empty the same bound holds.", beyond_window(False, seed), "measured, no theorem"),
        Finding("When the signal is learned the noise is alpha^(1 - A_j1/A_11).", noise_growth(False, seed), DERIVED),
    )
    figures = (
        Figure(
            "error",
            "Recovery of a sparse weight: a fast phase, a shelf, a limit",
            "time (step size * iterations)",
            "squared error",
            (*flows, *descents),
            "The flow is integrated in log t; dashed, the interpolant of least KL divergence.",
            "log",
            "log",
        ),
    )
    tables = (
        Table(
            "alpha",
            "Error against alpha",
            (
                "alpha",
                "squared error of descent at the end",
                "bound alpha sqrt(d)",
                "limit program",
                "time window in iterations",
            ),
            tuple(rows),
            f"c_n = n/(r^2 log^2 d) = {n / (9 * np.log(d) ** 2):.3g}; the theorem asks for an unspecified large constant.",
        ),
        Table(
            "isometry",
            "Restricted isometry of these inputs",
            ("s", "lower bound on delta_s", "upper bound", "exact"),
            isometry,
            "Values near or above 1: the sufficient condition of the theory fails, and recovery works all the same. Bounds prove nothing about recovery.",
        ),
    )
    terms = {
        "limit program": "the nonnegative interpolant of least KL divergence from the start alpha^2: where the flow ends",
        "time window": "iterations from log(d/alpha)/step to 1/(step sqrt(d alpha)), between which the theorem speaks; empty if they are in the wrong order",
        "n, d, r": "samples, coefficients, and how many of these are not 0",
        "c_n": "n/(r^2 log^2 d): the theorem needs more samples than some constant times r^2 log^2 d",
        "delta_s": "largest |A_TT - 1| over the sets T of s columns, A = X'X/n: how far any s columns are from orthonormal",
        "A_ij": "entries of X'X/n; the signal is column 1",
    }
    terms["squared error"] = "squared l2 distance to the sparse weight that made the targets"
    return Result(findings, figures, tables, {}, {**_ALPHA, **terms})


def kernel_to_rich(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    data, weight = sparse_regression(seed=seed)
    alphas = np.geomspace(1e3, 1e-14, 69)
    progress("the path of minimisers from alpha = 1000 to 1e-14")
    path = [found for found in potential_path(data, q_alpha(1.0, 100), tuple(np.log(alphas))) if found.resolved]
    alphas = alphas[: len(path)]
    least, short = basis_pursuit(data).value, float(np.linalg.norm(minimum_norm(data).weight))
    l1 = np.array([np.abs(found.weight).sum() for found in path]) - least
    l2 = np.array([np.linalg.norm(found.weight) for found in path]) - short
    error = np.array([np.linalg.norm(found.weight - weight) for found in path])
    exponent = 2 * (1 - strict_dual(data, weight))
    guide = l1[-10] * (alphas / alphas[-10]) ** exponent
    low = alphas < 1e-3
    curves = Figure(
        "phase",
        "From the kernel regime to the sparse one",
        "alpha",
        "excess over the minimum",
        (
            Line("l1 norm over its minimum", alphas, np.maximum(l1, 1e-16)),
            Line("l2 norm over its minimum", alphas, np.maximum(l2, 1e-16)),
            Line("distance to the sparse weight", alphas, error),
            Line("predicted slope 2(1 - rho)", alphas[low], guide[low], "prediction"),
        ),
        f"Minimisers of Q_alpha on {data.inputs.shape[0]} samples in {data.inputs.shape[1]} dimensions; every point is certified.",
        "log",
        "log",
    )
    draws, ratios = (10 if full else 3), (20, 40, 80)
    grid = np.array([1.0, 0.1, 0.03, 0.01, 1e-3])
    lines = []
    for n in ratios:
        progress(f"sample-size map: n = {n}")
        errors = np.zeros((draws, len(grid)))
        for draw in range(draws):
            sample, truth = sparse_regression(n, 100, 5, 100 + 10 * seed + draw)
            found = potential_path(sample, q_alpha(1.0, 100), tuple(np.log(grid)))
            errors[draw] = [np.linalg.norm(one.weight - truth) ** 2 / 5 for one in found]
        lines.append(Line(f"n = {n}", grid, np.maximum(errors.mean(axis=0), 1e-12)))
    map_ = Figure(
        "sample-size",
        "Relative population error against alpha",
        "alpha",
        "relative squared error",
        tuple(lines),
        f"Mean over {draws} draws, five signals in 100 dimensions.",
        "log",
        "log",
    )
    picked = [
        int(np.argmin(np.abs(np.log(alphas / alpha))))
        for alpha in (1e3, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
        if alpha >= alphas[-1]
    ]
    rows = tuple(
        (
            Shown(alphas[k], ".3g"),
            Shown(l1[k] + least, ".10g"),
            Shown(l2[k] + short, ".10g"),
            Shown(path[k].bracket.gap, ".1e"),
        )
        for k in picked
    )
    table = Table(
        "norms",
        "Norms of the selected interpolant",
        ("alpha", "l1 norm", "l2 norm", "certified gap"),
        rows,
        f"Least l1 norm {least:.10g}, least l2 norm {short:.10g}.",
    )
    findings = (
        Finding(
            "The flow on w+^2 - w-^2 converges to the minimiser of Q_alpha.",
            three_routes(False, seed),
            f"{NOTES}, Theorem 9.18",
        ),
        Finding("Off-support coefficients vanish like alpha^(2(1 - rho)).", sparse_rate(False, seed), DERIVED),
        Finding(
            "For large alpha the flow follows its tangent kernel, with a deviation of order alpha^-4.",
            kernel_limit(False),
            f"{NOTES}, section 9.3; exponent {DERIVED}",
        ),
    )
    progress("depths 2, 3 and 4")
    deeper, exponents = depth_parts(data, weight)
    findings += (
        Finding(
            "The flow on w+^D - w-^D converges to the minimiser of Q_alpha of depth D, for D = 3 and 4.",
            depth_claims.three_routes(False),
            DERIVED,
        ),
        Finding(
            "At depths 3 and 4 off-support coefficients vanish like alpha^D.", depth_claims.sparse_rate(False), DERIVED
        ),
    )
    return Result(
        findings,
        (curves, map_, deeper),
        (table, exponents, _kernel_table(data)),
        {},
        {
            **_ALPHA,
            "w+, w-": "the two squared parameters of each coefficient; at depth D they are raised to the power D",
            "off-support coefficient": "a coefficient of the selected interpolant that is 0 in the sparse weight",
            "Q_alpha of depth D": "what the flow on w+^D - w-^D minimises from the start alpha; Q_alpha itself at depth 2",
            "tangent kernel": "the flow of the model linearised at its start, which is known in closed form",
            "excess over the minimum": "a norm of the selected interpolant minus the least such norm of any interpolant",
            "relative squared error": "squared l2 distance to the sparse weight over its squared norm: the error on fresh samples",
            "rho": "smallest largest off-support entry of X' mu among mu with X_S' mu = signs; below 1 the l1 solution is unique",
        },
    )


def _kernel_table(data: Regression) -> Table:
    """How far the flow is from its tangent kernel halfway through the relaxation of the slowest direction."""
    rows = tuple(
        (Shown(alpha, "g"), Shown(time, ".3g"), Shown(gap, ".3g"))
        for alpha, time, gap in ((alpha, *kernel_deviation(data, alpha)) for alpha in (1.0, 10.0, 100.0))
    )
    columns = ("alpha", "time", "relative distance of flow and tangent kernel")
    caption = (
        "At the time 0.5 / (8 alpha^2 s^2), s the smallest singular value of the inputs; loss |X theta - y|^2 / 2."
    )
    return Table("kernel", "Deviation from the tangent kernel", columns, rows, caption)


STUDIES = (
    Study("min-norm", "Least-norm interpolation from zero and non-zero starts", "linear_models", min_norm),
    Study("sparse-recovery", "Sparse recovery by squared parameters", "linear_models", sparse_recovery),
    Study("kernel-to-rich", "From the kernel regime to the sparse one: Q_alpha", "linear_models", kernel_to_rich),
)
