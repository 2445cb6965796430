"""Theorems 1 to 4 on two strips in the plane: along the flow and along descent the risk vanishes, the layers align and turn to the maximum margin."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from ...diagnostics.alignment import alignment_floor, alignments, sandwich, sine
from ...diagnostics.rates import log_log_slope
from ...lab import Lab, claim, recipe
from ...optimisers.layerwise import BallStep, ConstantStep, LayerDescent
from ...references.euclidean_margin import max_margin
from ...references.logistic import polynomial_direction
from ...theory.families.layers import start_below_zero
from ...theory.judge import judge_direction
from ...training.events import Every
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import ROUNDING, Verdict, at_least, at_most
from .drawn import turned
from .evidence import (
    DERIVED,
    FAR,
    PROVED,
    account,
    descent,
    eight_points,
    escaped,
    flow,
    geometry,
    layers,
    levels,
    mirrored_flow,
    problem,
    proved_descent,
    slow_tail,
)
from .theorems import JI, MAX_MARGIN


@claim("deep-linear/risk", f"{JI}, Theorem 1", "proved", slow=True)
def risk_vanishes(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Along the flow the risk tends to 0 and every layer grows without bound.
    The risk and every layer's norm, on the strips; the planted run starts on the stable manifold of the saddle."""
    if planted:
        run = mirrored_flow(lab, float(np.log(10.0)))
        above = f"start: {start_below_zero(run.setting, run.at(0)).slack:.2g} above the risk of zero"
        yield at_least(float(levels(run)[-1]), 1.0, "-log R after time 10", above)
        return
    run, growth = flow(lab, 4), layers(lab, 4).frobenius
    yield at_least(float(levels(run)[-1]), 1e6 * (1 - ROUNDING), "-log R, to the rounding of the last step")
    yield at_least(float((growth[-1] / growth[0]).min()), 10.0, "smallest growth of a Frobenius norm")
    yield at_most(float(np.diff(run.log_excess).max()), 0.0, "largest rise of log R")


@claim("deep-linear/aligned", f"{JI}, Theorem 1", "proved", slow=True)
def layers_align(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Every layer tends to rank one, and adjacent layers align."""
    record, found = 0 if planted else -1, layers(lab, 4)
    yield at_most(float(found.deficit[record].max()), 2e-3, "largest 1 - spectral/Frobenius")
    yield at_most(float(found.misfit[record].max()), 1e-6, "largest 1 - |<v, u>| of adjacent layers")
    yield at_most(float(found.product[record]), 5e-3, "1 - |w| / product of the Frobenius norms")


@claim("deep-linear/max-margin", f"{JI}, Theorem 2", "proved", slow=True)
def max_margin_direction(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Where the support vectors span, the flow turns v_1 and the network to the l2 maximum margin.
    To risk e^-1000000 on the strips at depth 4, and on 24 draws at depths 2 and 3 until what is across it is the offset. Planted: a rival of the prediction."""
    setting, _ = problem(lab, 4)
    prediction = MAX_MARGIN.predict(setting, FAR)
    yield judge_direction(prediction, prediction.rivals[-1].weight if planted else flow(lab, 4).weight())
    first = sine(layers(lab, 4).first[-1], geometry(lab).direction)
    yield at_most(first, 1e-6, "sine of the angle of v_1 to the maximum margin")
    yield from turned(lab)


@claim(
    "deep-linear/descent-max-margin", f"{JI}, Theorem 4; line search instead of Assumption 5", "sharpened", slow=True
)
def descent_margin(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Gradient descent on the logistic risk turns to the maximum margin.
    250 steps of line search on the logistic risk, and 1 as the twin."""
    run, record = descent(lab), 1 if planted else -1
    angle = float(np.degrees(np.arcsin(sine(run.weight(record), geometry(lab).direction))))
    yield at_most(angle, 0.01, "angle to the maximum margin in degrees")
    yield at_least(float(sandwich(run)[0][record] / geometry(lab).margin), 0.999, "margin over best margin")


@claim("deep-linear/other-starts", f"{JI}, open there: Assumption 2 is sufficient", "observed", slow=True)
def other_starts(lab: Lab, planted: bool) -> Verdict:
    """Starts above the risk of zero reach small risk too.
    Assumption 2 is far from necessary: all of 20 normal starts above the risk of zero reach risk 0.1. The antisymmetric ones do not."""
    if planted:
        level = float(levels(mirrored_flow(lab, float(np.log(10.0))))[-1])
        return at_least(level, np.log(10.0), "-log R after time 10 from w1 = -w2")
    reached = np.isfinite(escaped(lab, range(60), 20))
    return at_least(float(np.mean(reached)), 1.0, f"share of {len(reached)} starts that reach risk 0.1 before t = e^5")


@claim("deep-linear/polynomial-tail", DERIVED, "ours", slow=True)
def polynomial_tail(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Polynomial tails select the minimiser of sum <w, z_i>^-a on the sphere, not the maximum margin, at every depth.
    With the tail z^-2 the limit is the minimiser of sum <w, z_i>^-2, at every depth; the maximum margin is elsewhere."""
    data = eight_points()
    widest = max_margin(data).weight
    wanted = widest if planted else polynomial_direction(np.asarray(data.signed), 2.0, widest)
    for depth in (1, 3):
        found = sine(slow_tail(lab, depth).weight(), wanted / np.linalg.norm(wanted))
        yield at_most(found, 1e-5, f"depth {depth}: sine of the angle to the predicted direction")


@claim("deep-linear/polynomial-alignment", f"{JI}, Theorem 1", "proved")
def polynomial_alignment(lab: Lab, planted: bool) -> Verdict:
    """Layers align under polynomial tails too.
    Alignment does not need the exponential tail."""
    found, record = alignments(slow_tail(lab, 3)), 0 if planted else -1
    worst = float(max(found.deficit[record].max(), found.misfit[record].max()))
    return at_most(worst, 1e-3, "largest of 1 - spectral/Frobenius and 1 - |<v, u>|", "at the start" if planted else "")


@claim(
    "deep-linear/descent-risk",
    f"{JI}, Theorem 3",
    "proved",
    slow=True,
)
def descent_risk(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Descent with the steps of Assumption 5 sends the risk to 0.
    The risk falls as long as one follows it, at least like the inverse of the sum of the steps, and so the layers grow. Planted: like its inverse square."""
    for name, run in _proved(lab).items():
        total, risk = np.exp(account(run)["log_step_sum"][1:]), np.exp(run.log_excess[1:])
        slope = log_log_slope(total, risk, (total[-1] / 10, total[-1]))
        yield at_most(float(risk[-1]), 0.01, f"{name}: risk after {PROVED} steps")
        yield at_most(
            slope, -2.0 if planted else -1.0, f"{name}: slope of log R in the log of the sum of the steps, last decade"
        )
        yield at_most(float(np.diff(run.log_excess).max()), 0.0, f"{name}: largest rise of log R")


@claim("deep-linear/descent-aligns", f"{JI}, Theorems 3 and 4", "proved", slow=True)
def descent_aligns(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Descent with the steps of Assumption 5 aligns the layers and turns to the maximum margin.
    Ratios, alignments and direction at the end; the twin looks at the start."""
    record = 0 if planted else -1
    for name, run in _proved(lab).items():
        found = alignments(run)
        yield at_most(float(found.deficit[record].max()), 0.05, f"{name}: largest 1 - spectral/Frobenius")
        yield at_most(float(found.misfit[record].max()), 1e-2, f"{name}: largest 1 - |<v, u>|")
        prediction = MAX_MARGIN.predict(run.setting, LayerDescent(BallStep()))
        yield judge_direction(prediction, run.weight(record))


def _proved(lab: Lab) -> dict[str, Trajectory]:
    return {f"depth {depth}": proved_descent(lab, depth) for depth in (2, 3)}


@recipe
def _crossed(lab: Lab) -> Trajectory:
    """Two layers that have nothing in common and one long step, after which each has the other's direction: the traces are all that explains it."""
    setting, _ = problem(lab, 2, logistic=True)
    gradient = -np.asarray(setting.data.signed).mean(axis=0) / 2
    length = float(np.linalg.norm(gradient))
    first, last = np.zeros((8, 2)), np.zeros((1, 8))
    first[1], last[0, 0] = 0.1 * gradient / length, 0.05
    step = LayerDescent(ConstantStep(10.0 / length))
    return train(setting, step, (jnp.asarray(first), jnp.asarray(last)), steps=5, recorder=Every())


@claim(
    "deep-linear/descent-alignment-bound",
    f"{JI}, Lemma 8, with the traces themselves for 3 R_0; it holds for steps of any length",
    "sharpened",
    slow=True,
)
def alignment_bound(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Along descent <v_{k+1}, u_k>^2 is at least 1 - (D + traces of layers k and later + |W_{k+1}(0)|^2 + |W_k(0)|^2) / |W_{k+1}|^2.
    The alignment part of Lemma 8 at every step, whatever its length; the twin halves the traces."""
    start, share = 1 + lab.seed, 0.5 if planted else 1.0
    runs = {"eta <= 1": descent(lab, capped=True, seed=start), "line search": descent(lab, seed=start)}
    for name, run in (runs | {"long steps": _crossed(lab)}).items():
        traces = share * account(run)["traces"]
        floors = [alignment_floor(run.at(k), run.at(0), traces[k]) for k in range(len(run))]
        slack = float(np.min((1 - alignments(run).misfit) ** 2 - np.array(floors)))
        yield at_least(slack, 0.0, f"{name}: smallest <v, u>^2 minus its lower bound")
