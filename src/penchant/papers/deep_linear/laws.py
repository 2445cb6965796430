"""Laws of deep linear networks that the paper leaves open: rates and constants, derived for penchant and checked to risk e^-1000000."""

from collections.abc import Callable

import numpy as np

from ...diagnostics.alignment import alignment_limits, sine
from ...diagnostics.rates import Settling, settling
from ...lab import Lab, claim, recipe
from ...verdict import Verdict, all_of, at_most, close, covers
from .evidence import DERIVED, across, few_supports, flow, geometry, layers, levels, size_law

DEPTHS = (2, 3, 4, 6)
STARTS = range(1, 7)
# Two decades: at depth 6 corrections fall like (-log R)^(-1/3), and only over a whole decade to less than half.
WINDOW = (1e4, 1e6)
# The first layer has terms (-log R)^-1 next to (-log R)^(-3/L): at depth 4 their ratio falls to less than half over two decades only.
FIRST_LAYER = (1e2, 1e6)


@claim("deep-linear/offset", DERIVED, "ours", slow=True)
def offset(lab: Lab, planted: bool) -> Verdict:
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
    checks = []
    for name, run in runs.items():
        miss = float(np.linalg.norm(across(run.weight(), found) - wanted) / np.linalg.norm(found.offset))
        checks.append(at_most(miss, 1e-4, f"{name}: |offset - predicted| / |predicted| at risk e^-1e6"))
    return all_of(*checks)


@claim("deep-linear/size", DERIVED, "ours", slow=True)
def size(lab: Lab, planted: bool) -> Verdict:
    """margin <w, u> + log R + log n tends to the entropy H(p) of the dual weights."""
    found, checks = geometry(lab), []
    for depth, logistic in ((4, False), (4, True), (2, False)):
        run = flow(lab, depth, logistic, 1 + lab.seed)
        miss = abs(size_law(found, run, 1 if planted else run.setting.samples) - found.entropy)
        checks.append(at_most(miss, 1e-6, f"depth {depth}: |margin <w, u> + log R + log n - H(p)|"))
    return all_of(*checks)


@claim("deep-linear/gradient", DERIVED, "ours", slow=True)
def gradient(lab: Lab, planted: bool) -> Verdict:
    """|grad log R|^2 ~ L margin^(2/L) (-log R)^(2-2/L)."""
    found, checks = geometry(lab), []
    for depth in DEPTHS:
        run = flow(lab, depth, seed=1 + lab.seed)
        exponent = 2.0 if planted else 2 - 2 / depth
        predicted = depth * found.margin ** (2 / depth) * levels(run)[-1] ** exponent
        what = f"depth {depth}: |grad log R|^2 against L g^(2/L) (-log R)^{exponent:.3g}"
        checks.append(close(float(np.exp(2 * run.log_slope[-1])), predicted, 1e-3, what))
    return all_of(*checks)


@claim("deep-linear/time", DERIVED, "ours", slow=True)
def time(lab: Lab, planted: bool) -> Verdict:
    """The risk falls like 1/(L margin^(2/L) t log^(2-2/L) t).
    log t = Lambda - log N + log(1 + dlog N/dLambda), Lambda = -log R: the risk falls like 1/(t log^(2-2/L) t)."""
    checks = []
    for depth in DEPTHS:
        run = flow(lab, depth, seed=1 + lab.seed)
        level = levels(run)
        late = (level > 1e3) & (level < 1e6)
        power = 2.0 if planted else 2 - 2 / depth
        worst = np.abs(run.log_time - (level - 2 * run.log_slope + np.log1p(power / level)))[late].max()
        checks.append(at_most(float(worst), 1e-5, f"depth {depth}: |log t - predicted| past risk e^-1000"))
    return all_of(*checks)


@claim("deep-linear/excess-limit", DERIVED, "ours", slow=True)
def excess_limit(lab: Lab, planted: bool) -> Verdict:
    """The excess of layer k tends to the sum over j >= k of tr A_j - u_j' A_j u_j, with A_j the conserved imbalances."""
    checks = []
    for logistic in (False, True):
        run = flow(lab, 4, logistic)
        predicted = alignment_limits(run.at(0), run.at()).excess
        predicted = predicted[::-1] if planted else predicted
        measured = layers(lab, 4, logistic).excess[-1, :-1]
        checks += [
            close(float(m), float(p), 2e-2, f"excess of layer {k}{', logistic' if logistic else ''}")
            for k, (m, p) in enumerate(zip(measured, predicted, strict=True), 1)
        ]
    return all_of(*checks)


@claim("deep-linear/alignment-limit", DERIVED, "ours")
def misfit_limit(lab: Lab, planted: bool) -> Verdict:
    """spectral^4 (1 - <v_{k+1}, u_k>^2), with the spectral norm of layer k+1, tends to |(I - u u') A_k u|^2."""
    run, found = flow(lab, 4), layers(lab, 4)
    predicted = alignment_limits(run.at(0), run.at()).misfit
    power = 2 if planted else 4
    measured = found.spectral[-1, 1:] ** power * found.misfit[-1] * (2 - found.misfit[-1])
    what, pairs = f"spectral^{power} (1 - <v, u>^2) between layers", enumerate(zip(measured, predicted, strict=True), 1)
    return all_of(*(close(float(m), float(p), 1e-2, f"{what} {k} and {k + 1}") for k, (m, p) in pairs))


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


def _exponent(name: str, rival: Callable[[int], float]) -> Callable[..., Verdict]:
    def check(lab: Lab, planted: bool) -> Verdict:
        checks, starts = [], range(1 + lab.seed, 1 + lab.seed + len(STARTS))
        for depth, logistic in (*((depth, False) for depth in DEPTHS), (4, True), (6, True)):
            values = exponents(depth)[name], rival(depth)
            wanted, other = values[::-1] if planted else values
            if wanted == other:
                continue  # at this depth the two laws say the same
            what = f"depth {depth}{', logistic' if logistic else ''}: exponent"
            checks.append(covers(measured_exponents(lab, depth, logistic, starts)[name], wanted, what, rival=other))
        return all_of(*checks)

    return check


@claim("deep-linear/no-span", DERIVED, "ours", slow=True)
def no_span(lab: Lab, planted: bool) -> Verdict:
    """If the support vectors do not span, the direction turns like (-log R)^(-1/L).
    Without Assumption 3 the direction turns like (-log R)^(-1/L)."""
    checks = []
    for depth in (2, 3, 4):
        drawn = []
        for seed in range(3 + lab.seed, 6 + lab.seed):
            found, run = few_supports(lab, depth, seed)
            drawn.append((levels(run), np.array([sine(run.weight(k), found.direction) for k in range(len(run))])))
        values = (-1.0, -1 / depth) if planted else (-1 / depth, -1.0)
        checks.append(covers(settling(drawn, WINDOW), values[0], f"depth {depth}: exponent", rival=values[1]))
    return all_of(*checks)


@claim("deep-linear/no-span-inside", DERIVED, "ours", slow=True)
def no_span_inside(lab: Lab, planted: bool) -> Verdict:
    """If they do not span, offset and size laws still hold inside their span.
    Inside the span of the support vectors the offset and the size law hold all the same."""
    found, run = few_supports(lab, 3, 3 + lab.seed)
    part, outside = across(run.weight(), found), found.outside()
    inside = part if planted else part - outside.T @ (outside @ part)
    miss = float(np.linalg.norm(inside - found.offset) / np.linalg.norm(found.offset))
    law = size_law(found, run, run.setting.samples)
    return all_of(
        at_most(miss, 1e-3, "|offset inside the span - predicted| / |predicted|"),
        at_most(abs(law - found.entropy), 1e-5, "|margin <w, u> + log R + log n - H(p)|"),
    )


ratio_exponent = claim(
    "deep-linear/ratio-exponent", DERIVED, "ours", statement="1 - spectral/Frobenius ~ (-log R)^(-2/L).", slow=True
)(_exponent("ratio", lambda depth: -1 / depth))
alignment_exponent = claim(
    "deep-linear/alignment-exponent",
    DERIVED,
    "ours",
    statement="1 - |<v_{k+1}, u_k>| ~ (-log R)^(-4/L): twice the exponent of the paper's bound.",
    slow=True,
)(_exponent("alignment", lambda depth: -2 / depth))
direction_exponent = claim(
    "deep-linear/direction-exponent",
    DERIVED,
    "ours",
    statement="sin(angle of w to the maximum margin) ~ (-log R)^-1 at every depth.",
    slow=True,
)(_exponent("weight", lambda depth: -1 / depth))
first_layer_exponent = claim(
    "deep-linear/first-layer-exponent",
    DERIVED,
    "ours",
    statement="sin(angle of v_1 to the maximum margin) ~ (-log R)^-min(1, 3/L).",
    slow=True,
)(_exponent("first layer", lambda depth: -1.0))
