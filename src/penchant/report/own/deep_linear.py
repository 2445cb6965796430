"""What the page of the user's own data adds for deep linear networks: how the layers align, and the laws measured next to their predictions."""

from typing import Any

import numpy as np

from ...diagnostics.alignment import (
    Alignment,
    alignment_limits,
    alignments,
    bound_slack,
    clock_error,
    conservation_drift,
    sine,
)
from ...diagnostics.rates import log_log_slope
from ...errors import ArgumentError
from ...exhibits import Table
from ...settings.base import Setting
from ...settings.deep_linear import imbalance_constant
from ...theory.base import Prediction
from ...theory.layer_constants import NetworkConstants, network_constants, tail_rate
from ...training.trajectory import Trajectory

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


def words(run: Trajectory) -> dict[str, str]:
    """Definitions, with the risk as it is reduced here; those of descent only where there are steps."""
    descent = "traces" in (run.account or {})
    found = {name: meaning for name, meaning in _WORDS.items() if descent or name not in _DESCENT}
    return {
        "-log R": f"risk level: minus the natural logarithm of R, the {_reduced(run.setting)} of the losses",
        **found,
    }


def _reduced(setting: Setting) -> str:
    return "mean" if setting.reduction == "mean" else "sum"


def _slope(level: np.ndarray, values: np.ndarray) -> str:
    """Slope over the last decade of the risk level, or why there is none."""
    try:
        return f"{log_log_slope(level, values, (level[-1] / 10, level[-1])):.4f}"
    except ArgumentError:
        return "too short a run"


def _sines(run: Trajectory, unit: np.ndarray) -> np.ndarray:
    weights = [run.weight(k) for k in range(len(run))]
    return np.array([sine(weight, unit) if weight.any() else np.nan for weight in weights])


def measured_rate(run: Trajectory, prediction: Prediction) -> str:
    """Slope of the sine of the angle to the maximum margin over the last decade of the risk level."""
    unit = prediction.reference.weight / np.linalg.norm(prediction.reference.weight)
    found = _slope(-run.log_excess, _sines(run, unit))
    return f"sin(angle) ~ (-log R)^{found} over the last decade of -log R" if found[-1].isdigit() else found


def tables(run: Trajectory, prediction: Prediction) -> tuple[Table, ...]:
    """The layers one by one, and the laws of the whole network."""
    found, constants = alignments(run), network_constants(run.setting, run.at(0), prediction.reference)
    return _layers(run, found, constants), _laws(run, found, constants)


def _layers(run: Trajectory, found: Alignment, constants: NetworkConstants) -> Table:
    level, depth = -run.log_excess, constants.depth
    limits = alignment_limits(run.at(0), run.at())
    rows = []
    for k in range(depth):
        inner = k < depth - 1
        misfit = found.misfit[:, k] * (2 - found.misfit[:, k]) if inner else np.zeros(len(level))
        scaled = found.spectral[-1, k + 1] ** 4 * misfit[-1] if inner else np.nan
        pair = (f"{scaled:.5g}", f"{limits.misfit[k]:.5g}", _slope(level, misfit)) if inner else ("", "", "")
        expected = f"{limits.excess[k]:.5g}" if inner else ""
        ratio = _slope(level, found.deficit[:, k]) if found.deficit[-1, k] > 0 else "rank one"
        sizes = (f"{found.frobenius[-1, k]:.6g}", f"{found.deficit[-1, k]:.3e}", ratio, f"{found.excess[-1, k]:.5g}")
        rows.append((k + 1, *sizes, expected, *pair))
    columns = (
        "layer",
        "Frobenius norm",
        "1 - ratio",
        "its slope",
        "excess",
        "limit",
        "spectral^4 (1 - <v, u>^2)",
        "limit",
        "slope",
    )
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
    offset = float(np.linalg.norm(geometry.offset)) / tail
    rows = [
        ("support vectors", ", ".join(str(k) for k in geometry.support), "", ""),
        ("their dual weights p", shares, "", ""),
        ("a = -l'/l, the rate of the loss's tail", "none" if np.isnan(tail) else f"{tail:.6g}", "", ""),
        _law(
            f"size law: {count}log R - log l(margin <w, u>)",
            constants.size(run),
            np.nan if np.isnan(tail) else geometry.entropy,
        ),
        _law("offset |w - <w, u> u|", across, offset, "" if geometry.spans else " inside the span of the support"),
        _law("gradient law: |grad log R|^2", squared, constants.gradient(level) if level > 0 else np.nan),
        (
            "first layer: slope of sin(angle of v_1)",
            _slope(-run.log_excess, first),
            _NO_TAIL if np.isnan(tail) else f"{constants.first_layer:.4f}" if geometry.spans else _NO_SPAN,
            "",
        ),
        _law("|w| / product of Frobenius norms", float(1 - found.product[-1]), 1.0),
        *_bounds(run, found),
        ("conservation drift", f"{conservation_drift(run).max():.3g}", "0 for the exact flow", ""),
    ]
    error = _clock(run)
    if error is not None:
        rows.append(("clock error of -log R", f"{error:.3g}", "0", ""))
    caption = f"At the end of the run; R is the {_reduced(run.setting)} of the losses l. The bounds are the worst along the run."
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
    lemma, slack = ("Lemma 2" if kind == "GradientFlow" else "Lemma 8"), bound_slack(run, found)
    bound = "D" if kind == "GradientFlow" else "D + later traces"
    rows = [
        (
            "largest excess",
            f"{found.excess.max():.6g}",
            f"at most {bound}, D = {imbalance_constant(run.at(0)):.6g}",
            "",
        ),
        (f"{lemma}: smallest slack of excess <= {bound}", f"{slack.excess.min():.6g}", "at least 0", ""),
    ]
    if np.isfinite(slack.alignment).all():
        rows.append(
            (f"{lemma}: smallest slack of the bound on <v, u>^2", f"{slack.alignment.min():.6g}", "at least 0", "")
        )
    if "traces" in account:
        traces, risk = float(account["traces"][-1].sum()), float(np.exp(run.log_excess[0]))
        rows += [
            ("sum of the traces", f"{traces:.6g}", f"at most 2 R_0 = {2 * risk:.6g} for steps <= 1 that descend", ""),
            ("log of the last step", f"{account['log_step'][-1]:.6g}", "", ""),
            ("largest violation of descent", f"{account['violation'][-1]:.3g}", "at most 0", ""),
        ]
    return rows


def _clock(run: Any) -> float | None:
    try:
        return clock_error(run)
    except ArgumentError:
        return None
