"""The saddle at zero of deep linear networks: how long perturbations of the start need to leave it, and rounding where there is none."""

from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from ....errors import quietly
from ....exhibits import Figure, Finding, Line, Result, Shown, Table
from ....lab import Lab, Study, claims_in
from ....optimisers.layerwise import ConstantStep, LayerDescent
from ....settings.base import Setting
from ....training.events import LogExcessBelow, LogTimeAbove
from ....training.train import train
from ....verdict import Verdict, all_of, at_least, at_most
from .. import exact
from ..evidence import FINEST, mirrored
from .alignment import words

_METHODS = ("DOP853", "RK45", "Radau", "LSODA")
_TOLERANCES = (1e-6, 1e-8, 1e-10)


def escape(setting: Setting, start: Any) -> float:
    with quietly():
        run = train(setting, FINEST, start, until=LogExcessBelow(float(np.log(0.5))), steps=20_000)
    return float(np.exp(run.log_time[-1]))


def run_saddle(lab: Lab) -> Result:
    """E5: the antisymmetric start, perturbations of it, and what rounding does to it."""
    full, progress = lab.full, lab.progress
    sizes = tuple(10.0**-k for k in range(2, 13, 1 if full else 2))
    times = []
    for size in sizes:
        progress(f"perturbation {size:.0e}")
        times.append(escape(*mirrored(lab, size)))
    slope = float(np.polyfit(np.log(1 / np.array(sizes[1:])), times[1:], 1)[0])
    claim = next(claim for claim in claims_in(exact) if claim.name == "deep-linear/saddle")
    verdict: Verdict = all_of(
        at_most(abs(slope - 1), 1e-3, f"|{slope:.6f} - 1|, slope of the escape time in log(1/perturbation)")
    )
    figure = Figure(
        "escape",
        "Escape from the saddle",
        "perturbation",
        "time to risk 1/2",
        (
            Line("flow", np.array(sizes), np.array(times)),
            Line(
                "log(1/e) + constant",
                np.array(sizes),
                times[-1] + np.log(1 / np.array(sizes)) - np.log(1 / sizes[-1]),
                "prediction",
            ),
        ),
        "Starts w1 = -w2 moved by e along (w, w).",
        "log",
    )
    rows = tuple((f"{size:.0e}", f"{time:.3f}") for size, time in zip(sizes, times, strict=True))
    progress("rounding")
    rounding, trap = _rounding(lab, times[-1] - float(np.log(1 / sizes[-1])), float(np.log(80.0)))
    table = Table(
        "escape",
        "Escape times",
        ("perturbation", "time to risk 1/2"),
        rows,
        "Rounding is a perturbation too: unperturbed runs must not be read beyond t = 20.",
    )
    findings = (
        Finding(claim.statement, claim(lab), claim.citation),
        Finding("The escape time is log(1/perturbation) plus a constant.", verdict, "stable manifold of the saddle"),
        trap,
    )
    meant = {
        **words(),
        "E1(q), q, q0": "the exponential integral, the integral of e^-s / s from q on, of q = |w_1|^2, which is q0 at the start; the risk is e^q",
        "e, perturbation": "length of what is added to both w_1 and w_2 = -w_1, along w_1",
    }
    return Result(findings, (figure,), (table, rounding), {}, meant)


def _field(_: float, flat: np.ndarray) -> np.ndarray:
    """The flow of e^-<w1, w2>, as anyone would write it down."""
    first, second = flat[:3], flat[3:]
    return np.exp(-first @ second) * np.concatenate([second, first])


def _integrated(lab: Lab, method: str, tolerance: float, end: float) -> float:
    """When an integration of the unperturbed start reaches risk 1/2; nan if not before `end`."""
    reached: Any = lambda t, flat: flat[:3] @ flat[3:] - np.log(2)
    reached.terminal = True
    flat = np.concatenate([np.ravel(layer) for layer in mirrored(lab)[1]])
    found = solve_ivp(_field, (0, end), flat, method=method, rtol=tolerance, atol=tolerance / 100, events=reached)
    return float(found.t_events[0][0]) if len(found.t_events[0]) else float("nan")


def _rounding(lab: Lab, constant: float, log_end: float) -> tuple[Table, Finding]:
    """Unperturbed runs: the time at which rounding lifts them off the stable manifold, and the perturbation that this time amounts to."""
    end, rows, times = float(np.exp(log_end)), [], {}
    for method in _METHODS:
        for tolerance in _TOLERANCES:
            times[method, tolerance] = time = _integrated(lab, method, tolerance, end)
            left = (Shown(time, ".1f"), Shown(np.exp(constant - time), ".0e")) if np.isfinite(time) else ("never", "0")
            rows.append((f"SciPy {method}", f"{tolerance:.0e}", *left))
    setting, start = mirrored(lab)
    with quietly():
        run = train(setting, LayerDescent(ConstantStep(0.01)), start, steps=8000, until=LogTimeAbove(log_end))
    apart = float(np.abs(run.at()[0][:, 0] + run.at()[1][0]).max())
    rows.append(("descent, step 0.01", "", "never" if apart == 0 else "drifts", f"{apart:.0e}"))
    table = Table(
        "rounding",
        "What rounding does to the start w1 = -w2",
        ("integration", "relative tolerance", "time to risk 1/2", "perturbation of that escape time"),
        tuple(rows),
        f"Unperturbed, to t = {end:.0f}; the exact flow never leaves. The time depends on the method and hardly on the tolerance, because it tells of rounding.",
    )
    held = [time for (method, _), time in times.items() if method == "LSODA" and np.isfinite(time)]
    verdict = all_of(
        at_least(float(np.nanmin(list(times.values()))), 20.0, "earliest escape"),
        at_most(float(len(held)), 0.0, "escapes of LSODA"),
        at_most(apart, 0.0, "largest |w1 + w2| of descent"),
    )
    statement = "Rounding alone leaves the saddle, after t = 20; LSODA and descent never do."
    return table, Finding(statement, verdict, "measured")


STUDIES = (Study("saddle-escape", "The saddle at zero (appendix A)", run_saddle, seeded=False),)
