"""What `predict` and `train` say of deep linear networks beyond other settings: the constants of the laws, the account of descent, the accuracy of the flow."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..diagnostics.alignment import clock_error, conservation_drift
from ..flow.accuracy import clock_bound, drift_bound
from ..optimisers.layerwise import risk_bounds, sharp_smoothness, smoothness
from ..settings.deep_linear import DeepLinear, layer_norms
from ..theory.base import Prediction
from ..theory.layer_constants import network_constants
from ..training.trajectory import Trajectory

_SHOWN = 6  # entries of a vector on one line


def describe_network(prediction: Prediction, start: Any) -> dict:
    """The constants under `network`; nothing for other settings. What theory does not know is null."""
    setting = prediction.setting
    deep = isinstance(getattr(setting, "parametrisation", None), DeepLinear)
    if not deep or prediction.reference.norm != "l2":  # the laws are those of the l2 maximum margin
        return {}
    found = network_constants(setting, start, prediction.reference)
    geometry, radius = found.geometry, max(1.0, float(layer_norms(start).max()))
    known, bounds = not math.isnan(found.tail), risk_bounds(setting, start)
    content = {
        "direction": geometry.direction.tolist(),
        "support": geometry.support.tolist(),
        "shares": geometry.shares.tolist(),
        "entropy": geometry.entropy,
        "tail": found.tail if known else None,
        "offset": found.offset.tolist() if known else None,
        "offset_norm": float(np.linalg.norm(found.offset)) if known else None,
        "critical_drop": found.critical_drop if known and math.isfinite(found.critical_drop) else None,
        "imbalance": found.imbalance,
        "hull_radius": geometry.radius if math.isfinite(geometry.radius) else None,
        "thresholds": {name: value if math.isfinite(value) else None for name, value in found.thresholds.items()},
        "radius": radius,
        "loss_bounds": None if bounds is None else list(bounds),
        "smoothness": None if bounds is None else float(smoothness(radius, found.depth, *bounds)),
        "sharp_smoothness": None if bounds is None else float(sharp_smoothness(radius, found.depth, *bounds)),
    }
    return {"network": content}


def print_network(content: dict) -> None:
    found = content.get("network")
    if found is None:
        return
    samples = ", ".join(str(sample) for sample in found["support"])
    print(f"network    direction u = {_vector(found['direction'])}; support vectors {samples}")
    print(f"           dual weights p = {_vector(found['shares'])}, entropy H(p) = {found['entropy']:.8g}")
    if found["offset"] is None:
        print("           offset unknown: the loss has no exponential tail")
    else:
        rate = f"tail rate a = {found['tail']:.6g}"
        print(f"           offset {_vector(found['offset'])}, length {found['offset_norm']:.8g} ({rate})")
    if found["critical_drop"] is not None:
        drop = found["critical_drop"]
        print(f"           descent settles with step sizes below {drop:.6g} R / |grad R|^2, beyond it alternates")
    thresholds = ", ".join(
        f"{'none' if value is None else f'{value:.6g}'} ({name})" for name, value in found["thresholds"].items()
    )
    hull = "infinite" if found["hull_radius"] is None else f"{found['hull_radius']:.8g}"
    lemma = f"; K of Lemma 4: {thresholds}" if thresholds else ""
    print(f"           D = {found['imbalance']:.8g} of the start; hull radius alpha = {hull}{lemma}")
    if found["loss_bounds"] is not None:
        curvature, slope = found["loss_bounds"]
        print(
            f"           smoothness beta(R) = {found['smoothness']:.6g}, sharp {found['sharp_smoothness']:.6g}, at R = {found['radius']:.6g} "
            f"with l'' <= {curvature:.6g}, |l'| <= {slope:.6g}"
        )


def describe_descent(run: Trajectory) -> dict:
    """The account of layerwise descent at its end, under `descent`; nothing for other training."""
    account = run.account or {}
    if "traces" not in account:
        return {}
    violation = float(account["violation"][-1])
    content = {
        "traces": account["traces"][-1].tolist(),
        "log_step": float(account["log_step"][-1]),
        "log_step_sum": float(account["log_step_sum"][-1]),
        "violation": violation if math.isfinite(violation) else None,
    }
    return {"descent": content}


def print_descent(content: dict) -> None:
    found = content.get("descent")
    if found is None:
        return
    kept = "no step to check" if found["violation"] is None else f"largest violation {found['violation']:.3g} in log R"
    print(
        f"descent    log of the last step {found['log_step']:.6g}, of their sum {found['log_step_sum']:.6g}; "
        f"traces {_vector(found['traces'])}; descent inequality: {kept}"
    )


def _vector(entries: Sequence[float]) -> str:
    shown = ", ".join(f"{entry:.6g}" for entry in entries[:_SHOWN])
    return f"({shown}{', ...' if len(entries) > _SHOWN else ''})"


def describe_accuracy(run: Trajectory) -> dict:
    """What the flow of a deep linear network has lost of what the exact one keeps, and how much it may lose before it is stopped."""
    if not isinstance(run.setting.parametrisation, DeepLinear) or "integrator" not in run.header:
        return {}
    found: dict[str, float] = {}
    if run.header["optimiser"]["clock"]["kind"] == "RelativeDrop":
        found |= {"clock_error": clock_error(run), "clock_error_allowed": clock_bound(run.log_excess[-1])}
    if len(run.at(0)) > 1:
        found |= {
            "conservation_drift": float(conservation_drift(run).max()),
            "conservation_drift_allowed": drift_bound(run.at(0)),
        }
    return {"accuracy": found}


def print_accuracy(found: dict[str, float]) -> None:
    names = [name for name in ("clock_error", "conservation_drift") if name in found]
    parts = [f"{name.replace('_', ' ')} {found[name]:.3g} (allowed {found[f'{name}_allowed']:.3g})" for name in names]
    if parts:
        print(f"accuracy   {', '.join(parts)}")
