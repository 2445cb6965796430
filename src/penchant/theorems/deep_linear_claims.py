"""Claims of the deep linear paper: Theorems 1 to 4, its lemmas and its appendix example, on two strips in the plane."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import exp1, expi

from ..diagnostics.alignment import alignment_floor, conservation_drift, imbalance_constant, imbalances, sandwich, sine
from ..optimisers.layerwise import BallStep, ConstantStep, LayerDescent, SharpStep, sharp_smoothness, smoothness
from ..optimisers.memory import Adam
from ..reading import read
from ..references.euclidean_margin import max_margin
from ..references.support_geometry import SupportGeometry, support_geometry
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import DeepLinear
from ..settings.generators import teacher
from ..settings.losses import Exponential
from ..settings.network_starts import balanced
from ..settings.parametrisations import Direct
from ..training.events import LogExcessBelow, LogTimeAbove
from ..training.recorders import LogSpaced
from ..training.train import train
from ..training.trajectory import Trajectory
from ..verdict import Verdict, all_of, at_least, at_most, close
from . import deep_linear_laws
from .base import Claim, judge_direction
from .deep_linear import JI, DeepLinearMaxMargin, start_below_zero
from .deep_linear_problems import EXACT, PRECISE, descent, flow, geometry, layers, levels, problem, slow_tail

PAPER = "deep_linear"


@cache
def mirrored(perturbation: float = 0.0) -> tuple[Setting, tuple]:
    """One sample, risk e^-<w1, w2>, and the start w1 = -w2 with |w1|^2 = 1.3, moved by `perturbation` along (w1, w1)/|w1|."""
    setting = Setting(Classification([[1.0]], [1]), DeepLinear((3,)), Exponential())
    unit = np.array([2.0, -1.0, 0.5]) / np.linalg.norm([2.0, -1.0, 0.5])
    first, second = np.sqrt(1.3) * unit + perturbation * unit, -np.sqrt(1.3) * unit + perturbation * unit
    return setting, (jnp.asarray(first[:, None]), jnp.asarray(second[None]))


@cache
def _mirrored_flow(log_time: float) -> Trajectory:
    setting, start = mirrored()
    return train(setting, EXACT, start, until=LogTimeAbove(log_time), steps=20_000)


def risk_vanishes(planted: bool) -> Verdict:
    """The risk and every layer's norm, on the strips; the planted run starts on the stable manifold of the saddle."""
    if planted:
        run = _mirrored_flow(float(np.log(10.0)))
        return at_least(
            float(levels(run)[-1]),
            1.0,
            "-log R after time 10",
            f"start: {start_below_zero(run.setting, run.at(0)).slack:.2g} above the risk of zero",
        )
    run, growth = flow(4), layers(4).frobenius
    return all_of(
        at_least(float(levels(run)[-1]), 1e6 * (1 - 1e-12), "-log R, to the rounding of the last step"),
        at_least(float((growth[-1] / growth[0]).min()), 10.0, "smallest growth of a Frobenius norm"),
        at_most(float(np.diff(run.log_excess).max()), 0.0, "largest rise of log R"),
    )


def layers_align(planted: bool) -> Verdict:
    record = 0 if planted else -1
    found = layers(4)
    return all_of(
        at_most(float(found.deficit[record].max()), 2e-3, "largest 1 - spectral/Frobenius"),
        at_most(float(found.misfit[record].max()), 1e-6, "largest 1 - |<v, u>| of adjacent layers"),
        at_most(float(found.product[record]), 5e-3, "1 - |w| / product of the Frobenius norms"),
    )


def max_margin_direction(planted: bool) -> Verdict:
    setting, _ = problem(4)
    prediction = DeepLinearMaxMargin().predict(setting, PRECISE)
    weight = prediction.rivals[-1].weight if planted else flow(4).weight()
    first = at_most(
        sine(layers(4).first[-1], geometry().direction), 1e-6, "sine of the angle of v_1 to the maximum margin"
    )
    return all_of(judge_direction(prediction, weight), first)


def tails_matter(planted: bool) -> Verdict:
    """Theorem 2 needs the exponential tail: its conclusion, tested on both losses."""
    run = slow_tail(3) if planted else flow(3)
    wanted = max_margin(run.setting.data).weight
    return at_most(
        sine(run.weight(), wanted / np.linalg.norm(wanted)),
        1e-3,
        "sine of the angle to the maximum margin",
        type(run.setting.loss).__name__,
    )


def descent_margin(planted: bool) -> Verdict:
    """250 steps of line search on the logistic risk, and 1 as the twin."""
    run, record = descent(), 1 if planted else -1
    lower, _ = sandwich(run)
    return all_of(
        at_most(
            float(np.degrees(np.arcsin(sine(run.weight(record), geometry().direction)))),
            0.01,
            "angle to the maximum margin in degrees",
        ),
        at_least(float(lower[record] / geometry().margin), 0.999, "margin over best margin"),
    )


def certificate(planted: bool) -> Verdict:
    lower, upper = sandwich(flow(4))
    best = geometry().margin * (1.001 if planted else 1.0)
    return all_of(
        at_most(float(np.nanmax(lower)), best * (1 + 1e-12), "largest margin along the run"),
        at_least(float(np.nanmin(upper)), best * (1 - 1e-12), "smallest |sum q z| along the run"),
        at_most(float(upper[-1] - lower[-1]), 2e-8, "width of the sandwich at risk e^-1e6"),
    )


def conservation(planted: bool) -> Verdict:
    """W_k W_k' - W_{k+1}' W_{k+1} along the flow; Adam, which is not a gradient flow in any limit, must break it."""
    setting, start = problem(4)
    run = train(setting, Adam(1e-3, 0.0), start, steps=2000, recorder=LogSpaced(10)) if planted else flow(4)
    scale = float(layers(4).frobenius[-1].max()) ** 2 if not planted else 1.0
    return at_most(
        float(conservation_drift(run).max()) / scale,
        1e-8,
        "drift of the imbalances over the squared norm of the layers",
    )


def descent_conservation(planted: bool) -> Verdict:
    """One step changes W_{k+1}' W_{k+1} - W_k W_k' by exactly eta^2 (G_{k+1}' G_{k+1} - G_k G_k')."""
    setting, start = problem(4, logistic=True)
    step, worst = 0.3, 0.0
    reading = read(setting, start)
    gradients = [np.asarray(jnp.exp(reading.log_scale) * leaf) for leaf in reading.slope]
    after = [np.asarray(layer) - step * gradient for layer, gradient in zip(start, gradients, strict=True)]
    for k, (now, then) in enumerate(zip(imbalances(after), imbalances(start), strict=True)):
        predicted = step ** (1 if planted else 2) * (
            gradients[k] @ gradients[k].T - gradients[k + 1].T @ gradients[k + 1]
        )
        worst = max(worst, float(np.abs(now - then - predicted).max()))
    return at_most(worst, 1e-14, "largest error of the predicted change")


def homogeneity(planted: bool) -> Verdict:
    """<W_k, grad_k R> is the same for every layer, and equals <w, grad_w R>."""
    setting, start = problem(4, logistic=True)
    reading, weight = read(setting, start), setting.weight(start)
    whole = float(jnp.vdot(weight, -setting.data.adjoint(reading.weights)))
    parts = [float(jnp.vdot(layer, slope)) for layer, slope in zip(start, reading.slope, strict=True)]
    parts = [sum(parts)] if planted else parts
    return at_most(max(abs(part / whole - 1) for part in parts), 1e-12, "largest |<W_k, grad_k> / <w, grad> - 1|")


def norm_growth(planted: bool) -> Verdict:
    """d|W_1|^2/dt = -2 <w, grad R>; the source has lost the factor 2, which is the twin."""
    setting, start = problem(4, logistic=True)
    h, reading = 1e-4, read(setting, start)
    flow_to = lambda sign: tuple(
        layer - sign * h * jnp.exp(reading.log_scale) * slope for layer, slope in zip(start, reading.slope, strict=True)
    )
    measured = float(sum(sign * jnp.sum(flow_to(sign)[0] ** 2) for sign in (1, -1)) / (2 * h))
    gradient = -jnp.exp(reading.log_scale) * setting.data.adjoint(reading.weights)
    return close(
        measured,
        -(1 if planted else 2) * float(jnp.vdot(setting.weight(start), gradient)),
        1e-8,
        "d|W_1|^2/dt against -2 <w, grad R>",
    )


def flow_bounds(planted: bool) -> Verdict:
    """Lemma 2 at every record of the flow; the twin believes the start balanced to a tenth."""
    run, found = flow(4), layers(4)
    bound = imbalance_constant(run.at(0)) * (0.1 if planted else 1.0)
    slack = [(1 - found.misfit[k]) ** 2 - alignment_floor(run.at(k), run.at(0)) for k in range(len(run))]
    return all_of(
        at_most(float(found.excess.max()), bound, "largest excess along the flow, against D"),
        at_least(float(np.min(slack)), 0.0, "smallest slack of the alignment bound"),
    )


def descent_bounds(planted: bool) -> Verdict:
    """Lemma 8 with eta <= 1; without the cap its trace sum breaks the bound."""
    run = descent(capped=not planted)
    assert run.account is not None
    traces, risk = run.account["traces"], float(np.exp(run.log_excess[0]))
    constant, excess = imbalance_constant(run.at(0)), []
    for k in range(len(run)):
        later = np.append(np.cumsum(traces[k][::-1])[::-1][1:], 0.0)
        squares = [np.linalg.svd(layer, compute_uv=False)[1:] ** 2 for layer in run.at(k)]
        excess.append(max(float(square.sum()) - constant - later[j] for j, square in enumerate(squares)))
    return all_of(
        at_most(
            float(traces[-1].sum()),
            2 * risk,
            "sum of the traces against 2 R_0",
            "line search without the cap" if planted else "eta <= 1",
        ),
        at_most(max(excess), 0.0, "largest excess minus (D + later traces)"),
        at_most(float(run.account["violation"][-1]), 1e-12, "largest violation of the descent inequality, in log R"),
    )


@cache
def _spanned(d: int) -> tuple[Classification, SupportGeometry]:
    """The first of a sequence of data sets whose support vectors span, as the lemma asks."""
    for seed in range(100):
        data = teacher(20, d, seed, push=0.2)
        found = support_geometry(data, max_margin(data))
        if found.radius > 0:
            return data, found
    raise LookupError(f"no data set in dimension {d} has spanning support vectors")


def pull_back(planted: bool) -> Verdict:
    """Lemma 4 sampled: beyond K the gradient never pushes the orthogonal part outwards (2000 weights per data set)."""
    worst = np.inf
    for d in (2, 3, 4):
        data, found = _spanned(d)
        signed, rng = np.asarray(data.signed), np.random.default_rng(d)
        threshold = found.thresholds(20)["sharp"] / (1000 if planted else 1)
        for _ in range(2000):
            across = rng.standard_normal(d)
            across -= (across @ found.direction) * found.direction
            across *= threshold * rng.uniform(1, 3) / np.linalg.norm(across)
            weight = across + abs(rng.normal(0, 10)) * found.direction
            shares = np.exp(-signed @ weight + (signed @ weight).min())
            worst = min(worst, -float(shares @ (signed @ across)) / float(shares.sum() * np.linalg.norm(across)))
    return at_least(
        worst,
        0.0,
        "smallest <w_perp, grad log R> / |w_perp| beyond the threshold",
        "threshold divided by 1000" if planted else "",
    )


def smooth_risk(planted: bool) -> Verdict:
    """Largest Hessian eigenvalue over 60 points of the unit ball, against the sharp bound and the paper's."""
    setting, _ = problem(3, logistic=True, width=3)
    shapes = setting.parametrisation.shapes(setting.data)
    sizes = [rows * columns for rows, columns in shapes]

    def risk(flat: jax.Array) -> jax.Array:
        pieces = jnp.split(flat, np.cumsum(sizes)[:-1].tolist())
        return jnp.exp(
            setting.weigh(setting.margins(tuple(p.reshape(s) for p, s in zip(pieces, shapes, strict=True)))).log_excess
        )

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


def steady_descent(planted: bool) -> Verdict:
    """The descent inequality at every step under Assumption 5 and the sharp rule; a constant step of 20 breaks it."""
    setting, start = problem(2, logistic=True)
    rules = (ConstantStep(20.0),) if planted else (BallStep(), BallStep(tight=True), SharpStep())
    checks = []
    for rule in rules:
        run = train(setting, LayerDescent(rule), start, steps=200 if planted else 6000, recorder=LogSpaced(10))
        assert run.account is not None
        checks.append(
            at_most(float(run.account["violation"][-1]), 0.0, f"{type(rule).__name__}: largest violation, in log R")
        )
    return all_of(*checks)


def appendix(planted: bool) -> Verdict:
    """w1(0) = -w2(0): q = |w1|^2 obeys E1(q) = E1(q0) + 2t, and the risk e^q stays above 1."""
    checks = []
    for time in (0.1, 1.0):
        run = _mirrored_flow(float(np.log(time)))
        square = float(np.sum(run.at()[0] ** 2))
        checks.append(
            at_most(
                abs(float(exp1(square)) - float(exp1(1.3)) - (1 if planted else 2) * time),
                1e-6,
                f"|E1(q) - E1(q0) - 2t| at t = {time}",
            )
        )
        checks.append(at_least(float(run.log_excess[-1]), 0.0, "log R"))
    return all_of(*checks)


def balanced_rank_one(planted: bool) -> Verdict:
    """From a balanced start every layer keeps rank one."""
    setting, start = problem(3)
    start = start if planted else balanced(setting, 0, np.array([0.3, 0.2]))
    run = train(setting, PRECISE, start, until=LogExcessBelow(-1e3), steps=20_000)
    seconds = max(float(np.linalg.svd(layer, compute_uv=False)[1]) for layer in run.at()[:-1])
    return at_most(seconds, 1e-9, "largest second singular value at risk e^-1000")


def single_sample(planted: bool) -> Verdict:
    """One sample, depth 2, balanced: t = (Ei(m) - Ei(m0)) / (2 gamma)."""
    setting = Setting(Classification([[0.6, 0.0]], [1]), DeepLinear((2,)), Exponential())
    start = balanced(setting, 0, np.array([0.5, 0.0]))
    run = train(setting, EXACT, start, until=LogExcessBelow(-20.0), steps=20_000)
    predicted = (expi(run.margins[-1, 0]) - expi(run.margins[0, 0])) / ((1 if planted else 2) * 0.6)
    return close(float(np.exp(run.log_time[-1])), float(predicted), 1e-6, "time to margin 20")


def one_layer(planted: bool) -> Verdict:
    """Depth 1 is the plain linear model, to the last digits."""
    setting, start = problem(2 if planted else 1)
    plain = Setting(setting.data, Direct(), setting.loss)
    deep, linear = (
        train(s, PRECISE, w, until=LogExcessBelow(-5.0), steps=20_000)
        for s, w in ((setting, start), (plain, setting.weight(start)))
    )
    return at_most(
        float(np.abs(deep.weight() / linear.weight() - 1).max()),
        1e-9,
        "largest relative difference of the weights at risk e^-5",
    )


def other_starts(planted: bool) -> Verdict:
    """Assumption 2 is far from necessary: all of 20 normal starts above the risk of zero reach risk 0.1. The antisymmetric ones do not."""
    if planted:
        return at_least(
            float(levels(_mirrored_flow(float(np.log(10.0))))[-1]), np.log(10.0), "-log R after time 10 from w1 = -w2"
        )
    setting, _ = problem(3, logistic=True, width=6)
    starts = [
        start
        for start in (setting.start(seed, 0.6) for seed in range(60))
        if not start_below_zero(setting, start).holds
    ][:20]
    runs = [
        train(setting, PRECISE, start, until=(LogExcessBelow(float(np.log(0.1))), LogTimeAbove(5.0)), steps=20_000)
        for start in starts
    ]
    reached = [run.log_excess[-1] <= np.log(0.1) + 1e-9 for run in runs]
    return at_least(float(np.mean(reached)), 1.0, f"share of {len(runs)} starts that reach risk 0.1 before t = e^5")


def _claim(name: str, statement: str, where: str, check) -> Claim:
    return Claim(f"deep-linear/{name}", PAPER, statement, f"{JI}, {where}", check)


CLAIMS = (
    _claim(
        "risk", "Along the flow the risk tends to 0 and every layer grows without bound.", "Theorem 1", risk_vanishes
    ),
    _claim("aligned", "Every layer tends to rank one, and adjacent layers align.", "Theorem 1", layers_align),
    _claim("max-margin", DeepLinearMaxMargin.statement, "Theorem 2", max_margin_direction),
    _claim(
        "tails",
        "The maximum margin needs the exponential tail of the loss.",
        "Theorem 2; the twin has a polynomial tail",
        tails_matter,
    ),
    _claim(
        "descent-max-margin",
        "Gradient descent on the logistic risk turns to the maximum margin.",
        "Theorem 4; line search instead of Assumption 5",
        descent_margin,
    ),
    _claim(
        "certificate",
        "A run brackets the best margin with its own weight and its own multipliers.",
        "weak duality",
        certificate,
    ),
    _claim(
        "conservation", "The flow conserves W_{k+1}' W_{k+1} - W_k W_k'.", "Lemma 1; the twin is Adam", conservation
    ),
    _claim(
        "descent-conservation",
        "A step of descent changes them by exactly eta^2 (G_{k+1}' G_{k+1} - G_k G_k').",
        "Lemma 7",
        descent_conservation,
    ),
    _claim("homogeneity", "<W_k, grad_k R> = <w, grad R> for every layer.", "Lemma 3", homogeneity),
    _claim(
        "norm-growth", "d|W_1|^2/dt = -2 <w, grad R>.", "equation (20), with the factor 2 that it lacks", norm_growth
    ),
    _claim(
        "flow-bounds",
        "Along the flow every excess is at most D, and <v, u>^2 has the stated lower bound.",
        "Lemma 2",
        flow_bounds,
    ),
    _claim(
        "descent-bounds",
        "With steps at most 1 the trace sums of descent are at most 2 R_0, and excesses at most D plus later traces.",
        "Lemma 8; 3 R_0 there",
        descent_bounds,
    ),
    _claim(
        "pull-back",
        "Where the orthogonal part is longer than K the gradient shortens it.",
        "Lemma 4, with the sharper K = W(n/e)/alpha",
        pull_back,
    ),
    _claim(
        "smoothness",
        "On layers of norm at most R the risk has curvature at most beta(R).",
        "Lemma 6, and the sharp bound derived for penchant",
        smooth_risk,
    ),
    _claim(
        "descent",
        "Under Assumption 5, with the clearance it lacks in print, every step descends as promised.",
        "Lemma 5 and Theorem 3",
        steady_descent,
    ),
    _claim("saddle", "From w1 = -w2 the risk e^-<w1, w2> falls to 1 and never below.", "appendix A", appendix),
    _claim("balanced", "Balanced starts keep every layer of rank one.", "consequence of Lemma 1", balanced_rank_one),
    _claim("single-sample", "One sample, depth 2: t = (Ei(m) - Ei(m_0)) / (2 gamma).", "closed form", single_sample),
    _claim("one-layer", "Depth 1 is the plain linear model.", "definition", one_layer),
    _claim(
        "other-starts",
        "Starts above the risk of zero reach small risk too.",
        "open there: Assumption 2 is sufficient",
        other_starts,
    ),
    *deep_linear_laws.CLAIMS,
)
