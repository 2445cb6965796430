"""Claims of the deep linear paper: its lemmas on conservation, bounds and descent."""

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.alignment import alignment_floor, conservation_drift
from ...lab import Lab, claim
from ...optimisers.base import Adam
from ...optimisers.layerwise import BallStep, ConstantStep, LayerDescent, SharpStep, sharp_smoothness, smoothness
from ...problem import read
from ...settings.deep_linear import imbalance_constant, imbalances
from ...training.recorders import LogSpaced
from ...training.train import train
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import BRIEF, brief_flow, descent, flow, geometry, layers, problem, tight_flow
from .theorems import JI


@claim("deep-linear/conservation", f"{JI}, Lemma 1; the twin is Adam", "proved", slow=True)
def conservation(lab: Lab, planted: bool) -> Verdict:
    """The flow conserves W_{k+1}' W_{k+1} - W_k W_k'.
    W_k W_k' - W_{k+1}' W_{k+1} along the flow; Adam, which is not a gradient flow in any limit, must break it."""
    setting, start = problem(lab, 4)
    run = train(setting, Adam(1e-3, 0.0), start, steps=2000, recorder=LogSpaced(10)) if planted else tight_flow(lab)
    what = "largest drift of an imbalance in spectral norm, to risk e^-1e6"
    return at_most(float(conservation_drift(run).max()), 6e-9, what, "Adam" if planted else "")


@claim("deep-linear/descent-conservation", f"{JI}, Lemma 7", "proved")
def descent_conservation(lab: Lab, planted: bool) -> Verdict:
    """A step of descent changes them by exactly eta^2 (G_{k+1}' G_{k+1} - G_k G_k').
    One step changes W_{k+1}' W_{k+1} - W_k W_k' by exactly eta^2 (G_{k+1}' G_{k+1} - G_k G_k')."""
    setting, start = problem(lab, 4, logistic=True)
    step, worst = 0.3, 0.0
    reading = read(setting, start)
    gradients = [np.asarray(jnp.exp(reading.log_scale) * leaf) for leaf in reading.slope]
    after = [np.asarray(layer) - step * gradient for layer, gradient in zip(start, gradients, strict=True)]
    for k, (now, then) in enumerate(zip(imbalances(after), imbalances(start), strict=True)):
        gap = gradients[k] @ gradients[k].T - gradients[k + 1].T @ gradients[k + 1]
        worst = max(worst, float(np.abs(now - then - step ** (1 if planted else 2) * gap).max()))
    return at_most(worst, 1e-14, "largest error of the predicted change")


@claim("deep-linear/homogeneity", f"{JI}, Lemma 3", "proved")
def homogeneity(lab: Lab, planted: bool) -> Verdict:
    """<W_k, grad_k R> = <w, grad R> for every layer.
    <W_k, grad_k R> is the same for every layer, and equals <w, grad_w R>."""
    setting, start = problem(lab, 4, logistic=True)
    reading, weight = read(setting, start), setting.weight(start)
    whole = float(jnp.vdot(weight, -setting.data.adjoint(reading.weights)))
    parts = [float(jnp.vdot(layer, slope)) for layer, slope in zip(start, reading.slope, strict=True)]
    parts = [sum(parts)] if planted else parts
    return at_most(max(abs(part / whole - 1) for part in parts), 1e-14, "largest |<W_k, grad_k> / <w, grad> - 1|")


@claim("deep-linear/norm-growth", f"{JI}, equation (20), with the factor 2 that it lacks", "repaired", slow=True)
def norm_growth(lab: Lab, planted: bool) -> Verdict:
    """d|W_1|^2/dt = -2 <w, grad R>.
    d|W_1|^2/dt = -2 <w, grad R> by central differences along the flow, and the same across the maximum margin; the source has lost the factor 2,
    which is the twin."""
    (before, here, after), h = (brief_flow(lab).at(k) for k in range(3)), BRIEF
    setting, unit = brief_flow(lab).setting, geometry(lab).direction
    reading, factor = read(setting, here), -(1 if planted else 2)
    gradient = np.exp(float(reading.log_scale)) * -np.asarray(setting.data.adjoint(reading.weights))
    weight, across = np.asarray(setting.weight(here)), np.eye(len(unit)) - np.outer(unit, unit)
    checks = []
    for what, part in (("|W_1|^2", np.eye(len(unit))), ("the part of |W_1|^2 across the maximum margin", across)):
        size = lambda layers, part=part: float(np.sum((np.asarray(layers[0]) @ part) ** 2))
        measured, predicted = (size(after) - size(before)) / (2 * h), factor * float(part @ weight @ gradient)
        checks.append(close(measured, predicted, 2e-9, f"derivative of {what} along the flow"))
    return all_of(*checks)


@claim("deep-linear/flow-bounds", f"{JI}, Lemma 2", "proved")
def flow_bounds(lab: Lab, planted: bool) -> Verdict:
    """Along the flow every excess is at most D, and <v, u>^2 has the stated lower bound.
    Lemma 2 at every record of the flow; the twin believes the start balanced to a tenth."""
    run, found = flow(lab, 4), layers(lab, 4)
    bound = imbalance_constant(run.at(0)) * (0.1 if planted else 1.0)
    slack = [(1 - found.misfit[k]) ** 2 - alignment_floor(run.at(k), run.at(0)) for k in range(len(run))]
    return all_of(
        at_most(float(found.excess.max()), bound, "largest excess along the flow, against D"),
        at_least(float(np.min(slack)), 0.0, "smallest slack of the alignment bound"),
    )


@claim("deep-linear/descent-bounds", f"{JI}, Lemma 8; 3 R_0 there", "sharpened")
def descent_bounds(lab: Lab, planted: bool) -> Verdict:
    """With steps at most 1 the trace sums of descent are at most 2 R_0, and excesses at most D plus later traces.
    Lemma 8 with eta <= 1; without the cap its trace sum breaks the bound."""
    run = descent(lab, capped=not planted, seed=1 + lab.seed)
    assert run.account is not None
    traces, risk = run.account["traces"], float(np.exp(run.log_excess[0]))
    constant, excess = imbalance_constant(run.at(0)), []
    for k in range(len(run)):
        later = np.append(np.cumsum(traces[k][::-1])[::-1][1:], 0.0)
        squares = [np.linalg.svd(layer, compute_uv=False)[1:] ** 2 for layer in run.at(k)]
        excess.append(max(float(square.sum()) - constant - later[j] for j, square in enumerate(squares)))
    rule = "line search without the cap" if planted else "eta <= 1"
    return all_of(
        at_most(float(traces[-1].sum()), 2 * risk, "sum of the traces against 2 R_0", rule),
        at_most(max(excess), 0.0, "largest excess minus (D + later traces)"),
        at_most(float(run.account["violation"][-1]), 1e-12, "largest violation of the descent inequality, in log R"),
    )


@claim("deep-linear/smoothness", f"{JI}, Lemma 6, and the sharp bound derived for penchant", "sharpened")
def smooth_risk(lab: Lab, planted: bool) -> Verdict:
    """On layers of norm at most R the risk has curvature at most beta(R).
    Largest Hessian eigenvalue over 60 points of the unit ball, against the sharp bound and the paper's."""
    setting, _ = problem(lab, 3, logistic=True, width=3)
    shapes = setting.parametrisation.shapes(setting.data)
    sizes = [rows * columns for rows, columns in shapes]

    def risk(flat: jax.Array) -> jax.Array:
        pieces = zip(jnp.split(flat, np.cumsum(sizes)[:-1].tolist()), shapes, strict=True)
        return jnp.exp(setting.weigh(setting.margins(tuple(p.reshape(s) for p, s in pieces))).log_excess)

    hessian, rng, largest = jax.jit(jax.hessian(risk)), np.random.default_rng(0), 0.0
    for _ in range(60):
        pieces = [rng.standard_normal(size) for size in sizes]
        flat = np.concatenate([piece / np.linalg.norm(piece) for piece in pieces])
        largest = max(largest, float(np.abs(np.linalg.eigvalsh(np.asarray(hessian(flat)))).max()))
    sharp, paper = sharp_smoothness(1.0, 3), smoothness(1.0, 3)
    return all_of(
        at_most(largest, sharp * (0.05 if planted else 1.0), "largest curvature in the unit ball"),
        at_most(sharp, paper, "sharp bound against the paper's"),
    )


@claim("deep-linear/descent", f"{JI}, Lemma 5 and Theorem 3", "repaired", slow=True)
def steady_descent(lab: Lab, planted: bool) -> Verdict:
    """Under Assumption 5, with the clearance it lacks in print, every step descends as promised.
    The descent inequality at every step under Assumption 5 and the sharp rule; a constant step of 20 breaks it."""
    setting, start = problem(lab, 2, logistic=True)
    rules = (ConstantStep(20.0),) if planted else (BallStep(), BallStep(tight=True), SharpStep())
    checks = []
    for rule in rules:
        run = train(setting, LayerDescent(rule), start, steps=200 if planted else 6000, recorder=LogSpaced(10))
        assert run.account is not None
        what = f"{type(rule).__name__}: largest violation, in log R"
        checks.append(at_most(float(run.account["violation"][-1]), 0.0, what))
    return all_of(*checks)
