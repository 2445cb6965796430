"""Deep linear networks: how the layers align, the laws measured next to their predictions, what flow and descent keep."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from ...case import Case
from ...diagnostics import alignment
from ...diagnostics.alignment import Alignment, clock_error, conservation_drift, sine
from ...errors import ArgumentError
from ...exhibits import Figure, Line, Table
from ...flow.integrator import clock_bound, drift_bound
from ...settings.deep_linear import imbalance_constant
from ...theory.describe import vector
from ...theory.families.layers import NetworkConstants, network_constants, tail_rate
from ...training.trajectory import Trajectory
from ..panel import Panel
from .selection import is_deep, is_layered, slope

_WORDS = {
    "ratio": "spectral over Frobenius norm of a layer; 1 means rank one",
    "excess": "squared Frobenius minus squared spectral norm of a layer",
    "<v, u>": "inner product of the top right singular vector of a layer and the top left one of the layer before it",
    "offset": "part of the network's weight orthogonal to the maximum-margin direction",
    "conservation drift": "change of W_k W_k' - W_{k+1}' W_{k+1} since the start; 0 for the exact flow",
    "margin sandwich": "smallest margin per norm of the weight, and |sum of q_i z_i| with the run's own weights q: they enclose the best margin",
    "D": "largest squared Frobenius norm of a layer minus that of the last layer, plus the spectral norms of the conserved matrices, at the start: 0 for a balanced start",
    "p, H(p)": "dual weights of the support vectors, sum 1, and their entropy, minus the sum of p log p",
    "traces": "of a layer of descent: sum over the steps of the squared step size times the squared gradient norm",
    "violation": "log R after a step minus the log of what the descent inequality promises, the largest so far; negative means that every step kept it",
}
_DESCENT = ("traces", "violation")
_NO_TAIL = "unknown: needs a loss with an exponential tail"
_NO_SPAN = "unknown: the support vectors do not span"


def words(case: Case) -> dict[str, str]:
    """Definitions, with the risk as it is reduced here; those of descent only where there are steps."""
    descent = "traces" in (case.run.account or {})
    found = {name: meaning for name, meaning in _WORDS.items() if descent or name not in _DESCENT}
    risk = f"risk level: minus the natural logarithm of R, the {case.run.setting.reduction} of the losses"
    return {"-log R": risk, **found}


def draw(case: Case) -> Iterator[Figure | Table]:
    """The layers one by one, the laws of the whole network, and everything that the laws speak about along the run."""
    run, found = case.run, alignment.alignments(case.run)
    constants = network_constants(run.setting, run.at(0), case.foreseen.reference)
    yield _layers(run, found, constants)
    yield _laws(run, found, constants)
    curves = _by_layer(found.deficit)
    yield _falling(run, "ratios", "Layers tend to rank one", "1 - ratio", curves, "One line per layer.")
    if found.misfit.shape[1]:
        curves = {f"layers {k + 1}, {k + 2}": values for k, values in enumerate(found.misfit.T)}
        caption = "Of the top singular vectors of adjacent layers."
        yield _falling(run, "alignment", "Adjacent layers align", "1 - |<v, u>|", curves, caption)
    yield _offset(run, constants)
    lower, upper = alignment.sandwich(run)
    curves = {"lower": lower, "upper": upper}
    best, caption = {"best possible": case.foreseen.reference.margin}, "Of the product of the layers."
    yield _falling(run, "sandwich", "Margin sandwich", "margin / norm", curves, caption, "linear", best)
    if constants.depth > 1:
        curves = {"run": conservation_drift(run)}
        yield _falling(run, "drift", "Conservation drift", "spectral norm", curves, "0 for the exact flow.")
    yield from _times(run, found, constants)
    yield from _steps(run)


def _by_layer(values: np.ndarray) -> dict[str, np.ndarray]:
    return {f"layer {k + 1}": series for k, series in enumerate(values.T)}


def _falling(
    run: Trajectory,
    name: str,
    title: str,
    label: str,
    curves: dict[str, np.ndarray],
    caption: str,
    scale: str = "log",
    predicted: Mapping[str, float] = MappingProxyType({}),
) -> Figure:
    """Curves against the risk level, on a logarithmic axis that begins where the risk is below 1."""
    level = -run.log_excess
    x = level[level > 0]
    lines = [Line(one, x, np.asarray(values)[level > 0]) for one, values in curves.items()]
    lines += [Line(one, x, np.full(len(x), value), "prediction") for one, value in predicted.items()]
    return Figure(name, title, "-log R", label, tuple(lines), caption, "log", scale)


def _layers(run: Trajectory, found: Alignment, constants: NetworkConstants) -> Table:
    level, depth = -run.log_excess, constants.depth
    limits = alignment.alignment_limits(run.at(0), run.at())
    rows = []
    for k in range(depth):
        inner = k < depth - 1
        misfit = found.misfit[:, k] * (2 - found.misfit[:, k]) if inner else np.zeros(len(level))
        scaled = found.spectral[-1, k + 1] ** 4 * misfit[-1] if inner else np.nan
        pair = (f"{scaled:.5g}", f"{limits.misfit[k]:.5g}", slope(level, misfit)) if inner else ("", "", "")
        expected = f"{limits.excess[k]:.5g}" if inner else ""
        ratio = slope(level, found.deficit[:, k]) if found.deficit[-1, k] > 0 else "rank one"
        sizes = (f"{found.frobenius[-1, k]:.6g}", f"{found.deficit[-1, k]:.3e}", ratio, f"{found.excess[-1, k]:.5g}")
        rows.append((k + 1, *sizes, expected, *pair))
    sizes = ("layer", "Frobenius norm", "1 - ratio", "its slope", "excess", "limit")
    columns = (*sizes, "spectral^4 (1 - <v, u>^2)", "limit", "slope")
    theory = f"theory -{2 / depth:.4g} for 1 - ratio, -{4 / depth:.4g} for 1 - <v, u>^2 with the next layer"
    if np.isnan(constants.tail):
        theory = "no theory, which needs a loss with an exponential tail"
    caption = f"At the end. Slopes in -log R over its last decade: {theory}. Limits from the conserved matrices of the start, for the flow."
    return Table("layers", "Layers", columns, tuple(rows), caption)


def _laws(run: Trajectory, found: Alignment, constants: NetworkConstants) -> Table:
    geometry, level, weight = constants.geometry, float(-run.log_excess[-1]), run.weight()
    along = float(weight @ geometry.direction)
    across = float(np.linalg.norm(weight - along * geometry.direction))
    first = np.array([sine(vector, geometry.direction) for vector in found.first])
    shares = ", ".join(f"{share:.4g}" for share in geometry.shares)
    squared = float(np.exp(2 * run.log_slope[-1]))
    count = "log n + " if constants.log_count else ""
    tail = tail_rate(run.setting.loss, geometry.margin * along) if along > 0 else constants.tail
    offset, entropy = float(np.linalg.norm(geometry.offset)) / tail, np.nan if np.isnan(tail) else geometry.entropy
    turned = _NO_TAIL if np.isnan(tail) else f"{constants.first_layer:.4f}" if geometry.spans else _NO_SPAN
    rows = [
        ("support vectors", ", ".join(str(k) for k in geometry.support), "", ""),
        ("their dual weights p", shares, "", ""),
        ("a = -l'/l, the rate of the loss's tail", "none" if np.isnan(tail) else f"{tail:.6g}", "", ""),
        _law(f"size law: {count}log R - log l(margin <w, u>)", constants.size(run), entropy),
        _law("offset |w - <w, u> u|", across, offset, "" if geometry.spans else " inside the span of the support"),
        _law("gradient law: |grad log R|^2", squared, constants.gradient(level) if level > 0 else np.nan),
        ("first layer: slope of sin(angle of v_1)", slope(-run.log_excess, first), turned, ""),
        _law("|w| / product of Frobenius norms", float(1 - found.product[-1]), 1.0),
        *_bounds(run, found),
        ("conservation drift", f"{conservation_drift(run).max():.3g}", "0 for the exact flow", ""),
    ]
    with suppress(ArgumentError):  # only a clock of risk levels can be wrong
        rows.append(("clock error of -log R", f"{clock_error(run):.3g}", "0", ""))
    caption = f"At the end of the run; R is the {run.setting.reduction} of the losses l. The bounds are the worst along the run."
    columns = ("what", "measured", "predicted", "measured / predicted")
    return Table("laws", "Laws of the whole network", columns, tuple(rows), caption)


def _law(what: str, measured: float, predicted: float, where: str = "") -> tuple[str, str, str, str]:
    """A row with its ratio; a prediction that is not a number is one that needs the tail, and 0 has no ratio."""
    if np.isnan(predicted):
        return what, f"{measured:.6g}", _NO_TAIL, ""
    ratio = f"{measured / predicted:.6g}" if abs(predicted) > 1e-12 and not where else ""
    return what, f"{measured:.6g}", f"{predicted:.6g}{where}", ratio


def _bounds(run: Trajectory, found: Alignment) -> list[tuple[str, str, str, str]]:
    """Lemmas 2 and 8, for the two kinds of training that have them, and what descent keeps of its steps."""
    kind, account = run.header["optimiser"].get("kind"), run.account or {}
    if kind not in ("GradientFlow", "LayerDescent"):
        return []
    lemma, slack = ("Lemma 2" if kind == "GradientFlow" else "Lemma 8"), alignment.bound_slack(run, found)
    bound = "D" if kind == "GradientFlow" else "D + traces of k to L - 1"
    most = f"at most {bound}, D = {imbalance_constant(run.at(0)):.6g}"
    rows = [
        ("largest excess", f"{found.excess.max():.6g}", most, ""),
        (f"{lemma}: smallest slack of excess <= {bound}", f"{slack.excess.min():.6g}", "at least 0", ""),
    ]
    if np.isfinite(slack.alignment).all():
        name = f"{lemma}: smallest slack of the bound on <v, u>^2"
        rows.append((name, f"{slack.alignment.min():.6g}", "at least 0", ""))
    if "traces" in account:
        traces, risk = float(account["traces"][-1].sum()), float(np.exp(run.log_excess[0]))
        rows += [
            ("sum of the traces", f"{traces:.6g}", f"at most 2 R_0 = {2 * risk:.6g} for steps <= 1 that descend", ""),
            ("log of the last step", f"{account['log_step'][-1]:.6g}", "", ""),
            ("largest violation of descent", f"{account['violation'][-1]:.3g}", "at most 0", ""),
        ]
    return rows


def _offset(run: Trajectory, constants: NetworkConstants) -> Figure:
    """The length of the offset, and its limit where the loss has one."""
    unit = constants.geometry.direction
    weights = np.stack([run.weight(k) for k in range(len(run))])
    lengths = np.linalg.norm(weights - np.outer(weights @ unit, unit), axis=1)
    limit = float(np.linalg.norm(constants.offset))
    text = "Length of the part of the weight orthogonal to the maximum margin."
    if not constants.geometry.spans:
        text += " The support vectors do not span: the prediction is for the part inside their span, the rest grows."
    predicted = {"predicted": limit} if np.isfinite(limit) else {}
    return _falling(run, "offset", "Offset", "|w - <w, u> u|", {"run": lengths}, text, "linear", predicted)


def _times(run: Trajectory, found: Alignment, constants: NetworkConstants) -> tuple[Figure, ...]:
    """Risk level and ratios against log t; the law of time holds where the loss has an exponential tail."""
    late = np.isfinite(run.log_time) & (run.log_excess < 0)
    time, level = run.log_time[late], -run.log_excess[late]
    lines, text = [Line("run", time, level)], "Physical time; for descent, the sum of the step sizes."
    if np.isfinite(constants.tail):
        power = 2 - 2 / constants.depth
        lines.append(Line("law", level - 2 * run.log_slope[late] + np.log1p(power / level), level, "prediction"))
        text += " The law is t = (1 + (2 - 2/L) / (-log R)) / (R |grad log R|^2), exact as the risk falls."
    scale = "log" if len(time) and time[-1] > 100 else "linear"
    kept = time > (0 if scale == "log" else -np.inf)
    ratios = tuple(Line(one, time[kept], values[kept]) for one, values in _by_layer(found.deficit[late]).items())
    return (
        Figure("level-time", "Risk level against log time", "log t", "-log R", tuple(lines), text),
        Figure("ratios-time", "Ratios against log time", "log t", "1 - ratio", ratios, "As above.", scale, "log"),
    )


def _steps(run: Trajectory) -> tuple[Figure, ...]:
    """What descent keeps of its steps."""
    account = run.account or {}
    if "traces" not in account:
        return ()
    step = np.maximum(run.steps, 1)[1:]
    lines = tuple(Line(one, step, values) for one, values in _by_layer(account["traces"][1:]).items())
    series = lambda name: (Line("run", step, account[name][1:]),)
    kept = "In log R; negative means that every step descended more than promised."
    return (
        Figure("steps", "Step size", "step", "log of the step", series("log_step"), "Natural logarithm of eta.", "log"),
        Figure("traces", "Traces of the steps", "step", "trace", lines, "One line per layer.", "log", "log"),
        Figure("violation", "Descent inequality", "step", "largest violation so far", series("violation"), kept, "log"),
    )


def _accuracy(case: Case) -> dict:
    """What the flow of a deep linear network has lost of what the exact one keeps, and how much it may lose before it is stopped."""
    run, found = case.run, {}
    if run.header["optimiser"]["clock"]["kind"] == "RelativeDrop":
        found |= {"clock_error": clock_error(run), "clock_error_allowed": clock_bound(run.log_excess[-1])}
    if len(run.at(0)) > 1:
        drift = float(conservation_drift(run).max())
        found |= {"conservation_drift": drift, "conservation_drift_allowed": drift_bound(run.at(0))}
    return {"accuracy": found}


def _accuracy_lines(case: Case, content: dict) -> Iterator[str]:
    found = content["accuracy"]
    names = [name for name in ("clock_error", "conservation_drift") if name in found]
    parts = [f"{name.replace('_', ' ')} {found[name]:.3g} (allowed {found[f'{name}_allowed']:.3g})" for name in names]
    if parts:
        yield f"accuracy   {', '.join(parts)}"


def _descent(case: Case) -> dict:
    """The account of layerwise descent at its end."""
    names = ("traces", "log_step", "log_step_sum", "violation")
    last = {name: (case.run.account or {})[name][-1].tolist() for name in names}
    return {"descent": last | {"violation": last["violation"] if math.isfinite(last["violation"]) else None}}


def _descent_lines(case: Case, content: dict) -> Iterator[str]:
    found = content["descent"]
    kept = "no step to check" if found["violation"] is None else f"largest violation {found['violation']:.3g} in log R"
    steps = f"log of the last step {found['log_step']:.6g}, of their sum {found['log_step_sum']:.6g}"
    yield f"descent    {steps}; traces {vector(found['traces'])}; descent inequality: {kept}"


ACCURACY = Panel(lambda case: is_layered(case) and "integrator" in case.run.header, _accuracy, _accuracy_lines)
DESCENT = Panel(lambda case: not case.joint and "traces" in (case.run.account or {}), _descent, _descent_lines)
LAWS = Panel(is_deep, draw=draw, words=words)
