"""Laws of deep linear networks that the paper leaves open: rates and constants to risk e^-1000000, where the support vectors span, where they
do not (Assumption 3), where some have no dual weight, and where the dual has many solutions."""

from collections.abc import Callable, Iterator
from functools import partial

import jax.numpy as jnp
import numpy as np

from ...diagnostics.alignment import alignment_limits, sine
from ...diagnostics.rates import Settling, settling
from ...errors import quietly
from ...flow.flow import Levels
from ...lab import Lab, claim, recipe
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry, project_on_support, support_geometry
from ...settings.classification import Classification
from ...settings.generators import blobs, teacher
from ...settings.losses import Exponential
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_most, close, covers
from .evidence import DERIVED, FAR, across, few_supports, flow, geometry, kept, layers, levels, network, size_law

DEPTHS = (2, 3, 4, 6)
STARTS = range(1, 7)
# Two decades: at depth 6 corrections fall like (-log R)^(-1/3), and only over a whole decade to less than half.
WINDOW = (1e4, 1e6)
# The first layer has terms (-log R)^-1 next to (-log R)^(-3/L): at depth 4 their ratio falls to less than half over two decades only.
FIRST_LAYER = (1e2, 1e6)
DRAWS = 40
SIZES = ((2, 40), (5, 50), (10, 50), (20, 60))  # dimension, samples
KINDS = {"blobs": blobs, "teacher": teacher}
DECADE = (1e5, 1e6)  # of -log R, at whose ends the projected runs are recorded

law = partial(claim, citation=DERIVED, kind="ours", slow=True)


@law("deep-linear/offset")
def offset(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The part of the network orthogonal to the maximum margin tends to one vector, the same for every depth, loss and start.
    The part of the weight orthogonal to the maximum margin, for two depths, both losses and another start."""
    start, found = 1 + lab.seed, geometry(lab)
    wanted = 0 * found.offset if planted else found.offset
    runs = {
        "depth 4": flow(lab, 4, seed=start),
        "depth 4, logistic": flow(lab, 4, True, start),
        "depth 2": flow(lab, 2, seed=start),
        "another start": flow(lab, 4, seed=start + 1),
    }
    for name, run in runs.items():
        miss = float(np.linalg.norm(across(run.weight(), found) - wanted) / np.linalg.norm(found.offset))
        yield at_most(miss, 1e-4, f"{name}: |offset - predicted| / |predicted| at risk e^-1e6")


@law("deep-linear/size")
def size(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """margin <w, u> + log R + log n tends to the entropy H(p) of the dual weights."""
    found = geometry(lab)
    for depth, logistic in ((4, False), (4, True), (2, False)):
        run = flow(lab, depth, logistic, 1 + lab.seed)
        miss = abs(size_law(found, run, 1 if planted else run.setting.samples) - found.entropy)
        yield at_most(miss, 1e-6, f"depth {depth}: |margin <w, u> + log R + log n - H(p)|")


@law("deep-linear/gradient")
def gradient(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """|grad log R|^2 ~ L margin^(2/L) (-log R)^(2-2/L)."""
    for depth in DEPTHS:
        run = flow(lab, depth, seed=1 + lab.seed)
        exponent = 2.0 if planted else 2 - 2 / depth
        predicted = depth * geometry(lab).margin ** (2 / depth) * levels(run)[-1] ** exponent
        what = f"depth {depth}: |grad log R|^2 against L g^(2/L) (-log R)^{exponent:.3g}"
        yield close(float(np.exp(2 * run.log_slope[-1])), predicted, 1e-3, what)


@law("deep-linear/time")
def time(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The risk falls like 1/(L margin^(2/L) t log^(2-2/L) t).
    log t = Lambda - log N + log(1 + dlog N/dLambda), Lambda = -log R: the risk falls like 1/(t log^(2-2/L) t)."""
    for depth in DEPTHS:
        run = flow(lab, depth, seed=1 + lab.seed)
        level = levels(run)
        late = (level > 1e3) & (level < 1e6)
        power = 2.0 if planted else 2 - 2 / depth
        worst = np.abs(run.log_time - (level - 2 * run.log_slope + np.log1p(power / level)))[late].max()
        yield at_most(float(worst), 1e-5, f"depth {depth}: |log t - predicted| past risk e^-1000")


@law("deep-linear/excess-limit")
def excess_limit(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The excess of layer k tends to the sum over j >= k of tr A_j - u_j' A_j u_j, with A_j the conserved imbalances."""
    for logistic in (False, True):
        run = flow(lab, 4, logistic)
        predicted = alignment_limits(run.at(0), run.at()).excess
        measured = layers(lab, 4, logistic).excess[-1, :-1]
        pairs = zip(measured, predicted[::-1] if planted else predicted, strict=True)
        for k, (m, p) in enumerate(pairs, 1):
            yield close(float(m), float(p), 2e-2, f"excess of layer {k}{', logistic' if logistic else ''}")


@law("deep-linear/alignment-limit", slow=False)
def misfit_limit(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """spectral^4 (1 - <v_{k+1}, u_k>^2), with the spectral norm of layer k+1, tends to |(I - u u') A_k u|^2."""
    run, found, power = flow(lab, 4), layers(lab, 4), 2 if planted else 4
    measured = found.spectral[-1, 1:] ** power * found.misfit[-1] * (2 - found.misfit[-1])
    pairs = zip(measured, alignment_limits(run.at(0), run.at()).misfit, strict=True)
    for k, (m, p) in enumerate(pairs, 1):
        yield close(float(m), float(p), 1e-2, f"spectral^{power} (1 - <v, u>^2) between layers {k} and {k + 1}")


@recipe
def series(lab: Lab, depth: int, logistic: bool = False, seed: int = 1) -> dict[str, np.ndarray]:
    """The quantities that have an exponent in -log R: layer 2 (or 1 of 2), the pair above the first, the weight, the first layer."""
    run, found, unit = flow(lab, depth, logistic, seed), layers(lab, depth, logistic, seed), geometry(lab).direction
    middle = min(2, depth - 1) - 1
    return {
        "ratio": found.deficit[:, middle],
        "alignment": found.misfit[:, middle],
        "weight": np.array([sine(run.weight(k), unit) for k in range(len(run))]),
        "first layer": np.array([sine(vector, unit) for vector in found.first]),
    }


def exponents(depth: int) -> dict[str, float]:
    """The predicted exponents."""
    return {"ratio": -2 / depth, "alignment": -4 / depth, "weight": -1.0, "first layer": -min(1.0, 3 / depth)}


@recipe
def measured_exponents(lab: Lab, depth: int, logistic: bool = False, starts: range = STARTS) -> dict[str, Settling]:
    """Slopes of log-log fits over the last decades of -log R, with their drift and their interval over starts.

    The constant of the first layer is a signed number that some starts nearly lack, which then show the next term of the expansion: there
    the root mean square over the starts has the slope.
    """
    at = [levels(flow(lab, depth, logistic, seed)) for seed in starts]
    found = [series(lab, depth, logistic, seed) for seed in starts]
    drawn = lambda name: [(x[x > 1], one[name][x > 1]) for x, one in zip(at, found, strict=True)]
    slopes = {name: settling(drawn(name), WINDOW) for name in exponents(depth)}
    return slopes | {"first layer": settling(drawn("first layer"), FIRST_LAYER, pool=True)}


def _exponent(name: str, rival: Callable[[int], float]) -> Callable[[Lab, bool], Iterator[Verdict]]:
    def check(lab: Lab, planted: bool) -> Iterator[Verdict]:
        starts = range(1 + lab.seed, 1 + lab.seed + len(STARTS))
        for depth, logistic in (*((depth, False) for depth in DEPTHS), (4, True), (6, True)):
            values = exponents(depth)[name], rival(depth)
            wanted, other = values[::-1] if planted else values
            if wanted == other:
                continue  # at this depth the two laws say the same
            what = f"depth {depth}{', logistic' if logistic else ''}: exponent"
            yield covers(measured_exponents(lab, depth, logistic, starts)[name], wanted, what, rival=other)

    return check


ratio_exponent = law("deep-linear/ratio-exponent", statement="1 - spectral/Frobenius ~ (-log R)^(-2/L).")(
    _exponent("ratio", lambda depth: -1 / depth)
)
alignment_exponent = law(
    "deep-linear/alignment-exponent",
    statement="1 - |<v_{k+1}, u_k>| ~ (-log R)^(-4/L): twice the exponent of the paper's bound.",
)(_exponent("alignment", lambda depth: -2 / depth))
direction_exponent = law(
    "deep-linear/direction-exponent",
    statement="sin(angle of w to the maximum margin) ~ (-log R)^-1 at every depth.",
)(_exponent("weight", lambda depth: -1 / depth))
first_layer_exponent = law(
    "deep-linear/first-layer-exponent",
    statement="sin(angle of v_1 to the maximum margin) ~ (-log R)^-min(1, 3/L).",
)(_exponent("first layer", lambda depth: -1.0))


@law("deep-linear/no-span")
def no_span(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """If the support vectors do not span, the direction turns like (-log R)^(-1/L).
    Without Assumption 3 the direction turns like (-log R)^(-1/L)."""
    for depth in (2, 3, 4):
        drawn = []
        for seed in range(3 + lab.seed, 6 + lab.seed):
            found, run = few_supports(lab, depth, seed)
            drawn.append((levels(run), np.array([sine(run.weight(k), found.direction) for k in range(len(run))])))
        values = (-1.0, -1 / depth) if planted else (-1 / depth, -1.0)
        yield covers(settling(drawn, WINDOW), values[0], f"depth {depth}: exponent", rival=values[1])


@law("deep-linear/no-span-inside")
def no_span_inside(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """If they do not span, offset and size laws still hold inside their span.
    Inside the span of the support vectors the offset and the size law hold all the same."""
    found, run = few_supports(lab, 3, 3 + lab.seed)
    part, outside = across(run.weight(), found), found.outside()
    inside = part if planted else part - outside.T @ (outside @ part)
    miss = float(np.linalg.norm(inside - found.offset) / np.linalg.norm(found.offset))
    yield at_most(miss, 1e-3, "|offset inside the span - predicted| / |predicted|")
    law_error = abs(size_law(found, run, run.setting.samples) - found.entropy)
    yield at_most(law_error, 1e-5, "|margin <w, u> + log R + log n - H(p)|")


@recipe
def spanning(lab: Lab, kind: str, d: int, n: int, first: int = 0) -> int:
    """Of `DRAWS` data sets, how many satisfy Assumption 3."""
    drawn = (KINDS[kind](n, d, seed) for seed in range(first, first + DRAWS))
    return sum(support_geometry(data, max_margin(data)).spans for data in drawn)


def _data(where: str) -> tuple[Classification, SupportGeometry]:
    """Blobs in ten dimensions with six support vectors: as they are, projected on the span of these, or in coordinates of that span."""
    data = blobs(50, 10, 3)
    found = max_margin(data)
    if where != "as they are":
        data = project_on_support(data, found, reduce=where == "reduced")
    return data, support_geometry(data, max_margin(data))


@recipe
def span_run(lab: Lab, where: str, depth: int, outside: float = 1.0) -> tuple[SupportGeometry, Trajectory]:
    """The flow to risk e^-1000000 from a start whose first layer is `outside` times as large outside the span of the support vectors."""
    data, found = _data(where)
    setting, start = network(data, depth, 6, Exponential(), 0, 0.3)
    if outside != 1:
        missing = found.outside()
        start = (start[0] + jnp.asarray((outside - 1) * np.asarray(start[0]) @ missing.T @ missing), *start[1:])
    recorder = Levels("log_excess", [-DECADE[0]])
    with quietly():  # a large outside part may lie above the risk of weight 0
        return found, train(setting, FAR, start, until=kept(DECADE[1]), steps=20_000, recorder=recorder)


@law("deep-linear/span-projected")
def projected(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """In coordinates of the span of the support vectors the margin is the same and the direction turns like 1/(-log R) again.
    In coordinates of the span of the support vectors the sine is margin |offset| / (-log R) again; the twin leaves the data as they are."""
    original = _data("as they are")[1]
    for depth in (2, 3):
        found, run = span_run(lab, "as they are" if planted else "reduced", depth)
        yield close(found.margin, original.margin, 1e-12, "maximum margin")
        yield close(found.entropy, original.entropy, 1e-8, "entropy of the dual weights")
        lead = found.margin * float(np.linalg.norm(found.offset)) / levels(run)[-1]
        yield close(sine(run.weight(), found.direction), lead, 1e-3, f"depth {depth}: sine at risk e^-1e6")


def outside_constant(found: SupportGeometry, run: Trajectory, depth: int) -> tuple[float, float]:
    """sin(angle) (-log R / margin)^(1/L) at the end of a run, and |u_1' W_1| outside the span, which it tends to."""
    first = np.asarray(run.at()[0])
    top = np.linalg.svd(first)[0][:, 0]
    measured = sine(run.weight(), found.direction) * (levels(run)[-1] / found.margin) ** (1 / depth)
    return float(measured), float(np.linalg.norm(found.outside() @ (top @ first)))


@law("deep-linear/outside-constant")
def constant(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """If the support vectors do not span, sin(angle) ~ |u_1' W_1 outside their span| (margin / (-log R))^(1/L).
    The constant of the slow turn, on data with parts outside the span; the twin forgets the margin."""
    for depth in (2, 3):
        for outside in (0.25, 1.0):
            found, run = span_run(lab, "as they are", depth, outside)
            measured, predicted = outside_constant(found, run, depth)
            predicted /= found.margin ** (1 / depth) if planted else 1.0
            name = f"depth {depth}, outside part times {outside:g}: sin(angle) (-log R / margin)^(1/L)"
            yield close(measured, predicted, 1e-3, name)


# The first point decides the margin, on which the next one or two lie by accident. All data have one shape, to be compiled once per depth.
_ONE_IDLE = ((0.5, 0.0, 0.0), (0.5, 0.3, 0.4), (0.8, 0.2, 0.1), (0.9, -0.1, 0.1))
_TWO_IDLE = ((0.5, 0.0, 0.0), (0.5, 0.2, 0.5), (0.5, 0.2, -0.3), (0.9, 0.1, 0.1))
_FOUR = ((0.5, 0.3, 0.1), (0.5, -0.3, 0.2), (0.5, 0.1, -0.3), (0.5, -0.2, -0.25))  # four support vectors in space


@recipe
def _run(lab: Lab, points: tuple, depth: int, seed: int = 0) -> tuple[SupportGeometry, Trajectory]:
    """The flow to risk e^-1000000, recorded there and a decade before."""
    data = Classification(points, np.ones(len(points)))
    setting, start = network(data, depth, 4, Exponential(), seed, 0.4)
    until, recorder = kept(1e6), Levels("log_excess", [-1e5])
    run = train(setting, FAR, start, until=until, steps=20_000, recorder=recorder)
    return support_geometry(data, max_margin(data)), run


def _sines(found: SupportGeometry, run: Trajectory) -> np.ndarray:
    return np.array([sine(run.weight(record), found.direction) for record in (-2, -1)])


idle = partial(law, citation=f"{DERIVED}; the paper excludes such data as a null set")


@idle("deep-linear/idle-support")
def idle_support(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """A support vector without dual weight slows the turn to the maximum margin to the power -1/L of -log R.
    Exponents over the last decade; the twin expects what holds where every support vector has weight."""
    for points, depth, seed in ((_ONE_IDLE, 2, 0), (_ONE_IDLE, 2, 1), (_TWO_IDLE, 2, 0), (_TWO_IDLE, 3, 0)):
        found, run = _run(lab, points, depth, seed)
        earlier, later = _sines(found, run)
        name = f"depth {depth}, {(~found.pulling).sum()} idle, start {seed}: exponent of sin(angle) in -log R"
        yield close(float(np.log10(later / earlier)), -1.0 if planted else -1 / depth, 1e-3, name)


@idle("deep-linear/idle-support-plain")
def idle_support_plain(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """At depth 1 a support vector without dual weight slows the turn to log(-log R) / (-log R), with a known constant.
    At depth 1, (-log R) sin(angle) grows by margin |escape| log 10 per decade; the twin expects it to stand still."""
    for points in (_ONE_IDLE, _TWO_IDLE):
        found, run = _run(lab, points, 1)
        grown = float(np.diff(_sines(found, run) * -run.log_excess[-2:])[0])
        lead = found.margin * float(np.linalg.norm(found.escape)) * np.log(10)
        name = f"{(~found.pulling).sum()} idle: growth of (-log R) sin(angle) per decade"
        yield close(grown, 1e-3 * lead if planted else lead, 1e-3, name)


@law("deep-linear/selected-dual", slow=False)
def selected_dual(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Where the dual has many solutions, the multipliers of training tend to the one of largest entropy.
    Four support vectors in space: the multipliers of the run, against the dual solution of largest entropy; the twin has the solver's."""
    found, run = _run(lab, _FOUR, 2)
    dual = max_margin(run.setting.data).dual
    wanted = dual / dual.sum() if planted else found.shares
    apart = np.abs(run.weights[-1] / run.weights[-1].sum() - wanted)
    yield at_most(float(apart.max()), 1e-4, "largest difference of the multipliers from the shares")
    gap = float(np.linalg.norm(across(run.weight(), found) - found.offset))
    yield at_most(gap, 1e-3, "distance of the offset from the predicted one")
