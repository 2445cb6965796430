"""Claims on maximum margin, with evidence on a small separable data set (30 samples, 4 dimensions, 4 support vectors)."""

from collections.abc import Iterator

import numpy as np

from ...diagnostics.direction import smooth_margins
from ...flow.flow import GradientFlow
from ...lab import Lab, claim, recipe
from ...optimisers.base import gradient_descent
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.generators import separable
from ...settings.losses import Exponential, Logistic
from ...settings.parametrisations import Direct
from ...training.events import LogExcessBelow, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import ROUNDING, Outcome, Verdict, all_of, at_least, at_most
from .evidence import DERIVED
from .theorems import NOTES, SOUDRY

LOSSES = {"exponential": False, "logistic": True}
_COARSE = 1e-2  # what flows on drawn data may do to a margin
_SAMPLES = 30  # of the data set of the figures and of those that are drawn: one compiled program serves both


@recipe
def problem(lab: Lab, logistic: bool = False) -> tuple[Setting, Solution]:
    data = separable(*((200, 20) if lab.full else (_SAMPLES, 4)), seed=5 + lab.seed)
    return Setting(data, Direct(), Logistic() if logistic else Exponential(), "sum"), max_margin(data)


@recipe
def flow_run(lab: Lab, logistic: bool = False) -> Trajectory:
    """The flow until the loss is e^-100000."""
    return train(problem(lab, logistic)[0], GradientFlow(), until=LogExcessBelow(-1e5))


def entropy(reference: Solution) -> tuple[float, float]:
    """Entropy of the normalised dual weights, and the largest of them."""
    shares = reference.dual[reference.support] / reference.dual[reference.support].sum()
    return float(-(shares * np.log(shares)).sum()), float(shares.max())


def deficits(margins: np.ndarray, run: Trajectory, reference: Solution) -> np.ndarray:
    """(best margin - margin) |w| along a run, without its start."""
    return (reference.margin - margins[1:]) * run.norm[1:]


@recipe
def _drawn_runs(lab: Lab, logistic: bool, flow: bool = True, moved: bool = False) -> list[tuple[Trajectory, Solution]]:
    """Twenty drawn separable data sets, trained from 0: by the flow until the loss is e^-1000, or by 20 000 steps of descent, at most 1 / (L(0) max|z|^2) long. Flows also from drawn starts."""
    data = [separable(_SAMPLES, 4, 1000 * lab.seed + seed) for seed in range(20)]
    settings = [Setting(one, Direct(), Logistic() if logistic else Exponential(), "sum") for one in data]
    if flow:
        coarse, rng = GradientFlow(tolerance=1e-5, margin_tolerance=_COARSE), np.random.default_rng(lab.seed)
        starts = rng.standard_normal((20, 4)) * rng.uniform(0.0, 10.0, (20, 1)) * moved
        pairs = zip(settings, starts, strict=True)
        runs = [train(one, coarse, start, until=LogExcessBelow(-1e3)) for one, start in pairs]
    else:
        longest = max(float((np.asarray(one.signed) ** 2).sum(axis=1).max()) for one in data)
        runs = train(settings, gradient_descent(1 / (_SAMPLES * longest)), steps=20_000, recorder=LogSpaced(40))
    return [(run, max_margin(one)) for run, one in zip(runs, data, strict=True)]


def _allowed(logistic: bool, flow: bool) -> float:
    """What bounds (best margin - smooth margin) |w| from w = 0.

    log L(0) for the exponential flow, (9.174). The logistic |l'| = 1 - e^-l >= k l, k = (1 - e^-L(0))/L(0), and >= l - l^2/2, which costs L(0)/(2k); steps
    1 / (L(0) max|z|^2) cost a factor 1 - step max|z|^2 L/2 of the path, and with it twice that and 1/k more."""
    first = _SAMPLES * (np.log(2.0) if logistic else 1.0)
    share = -np.expm1(-first) / first if logistic else 1.0
    curved = first / (2 * share) if logistic else 0.0
    return float(np.log(first) + curved * (1 if flow else 2) + (0 if flow else 1 / share))


@claim("max-margin/direction", f"{NOTES}, Theorem 9.25 and (9.174); {SOUDRY}", "proved", slow=True)
def direction(lab: Lab, planted: bool) -> Verdict:
    """On separable data gradient flow and descent on the logistic or exponential loss converge in direction to the l2 maximum margin.
    (best margin - smooth margin) |w| stays bounded, by log n along the exponential flow, and |w| grows like log t / best margin, on twenty drawn data sets each; how loose the bounds are is in the details, their sharp limit in max-margin/direction-constant. Planted: 0.9 of the bound, which the exponential flow attains at its start."""
    checks = []
    for loss, logistic in LOSSES.items():
        for flow in (True, False):
            found = _drawn_runs(lab, logistic, flow)
            bound = _allowed(logistic, flow) * (0.9 if planted else 1.0)
            worst = np.array([deficits(smooth_margins(run), run, best).max() for run, best in found]) / bound
            grown = [best.margin * run.norm[-1] / run.log_time[-1] for run, best in found]
            name = f"{loss} loss, {'flow' if flow else 'descent'}"
            above = f"{int((worst > 1).sum())} of {len(found)} above; loose by {1 / worst.max():.2g}"
            checks.append(
                at_most(float(worst.max()), 1.0, f"{name}: largest (margin deficit) |w| over its bound", above)
            )
            checks.append(at_least(float(min(grown)), 0.5, f"{name}: smallest best margin * |w| / log t"))
    return all_of(*checks)


@claim("max-margin/direction-constant", f"{NOTES}, Theorem 9.25; constants {DERIVED}", "sharpened", slow=True)
def direction_constant(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Along the flow best margin <w, u>, u the best direction, tends to -log L + H(p), to the margin + H(p) + log max p and to log t + log margin^2 + H(p), for both losses: the 1/log t rate with its constants.
    On every one of the drawn data sets, at loss e^-1000, to the 1e-2 that these coarse flows allow their margins. Planted: 1.05 H(p)."""
    for loss, logistic in LOSSES.items():
        apart = []
        for run, best in _drawn_runs(lab, logistic):
            along = best.margin * float(run.weight() @ best.weight) / best.value
            mean, top = entropy(best)
            reached = (
                -run.log_excess[-1],
                run.margins[-1].min() + np.log(top),
                run.log_time[-1] + 2 * np.log(best.margin),
            )
            apart.append(np.abs(along - np.array(reached) - mean * (1.05 if planted else 1.0)))
        for name, worst in zip(("-log L", "the margin", "log t"), np.max(apart, axis=0), strict=True):
            text = f"{loss} loss: largest distance of best margin <w, u> from {name} and its constant, {len(apart)} data sets"
            yield at_most(float(worst), _COARSE, text)


@claim(
    "max-margin/smooth-margin",
    f"{NOTES}, Section 9.4 and the proof of Theorem 9.25; logistic loss {DERIVED}",
    "sharpened",
    slow=True,
)
def smooth_margin(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The smooth margin never decreases along the flow once the loss is below 1; times |w| it is below the margin, by at most log n. With the logistic loss -log(e^L - 1) is what is below the margin.
    Along the flows on twenty drawn data sets. Planted: by at most 0.99 log n, which is attained at w = 0."""
    for loss, logistic in LOSSES.items():
        runs = [run for run, _ in _drawn_runs(lab, logistic)]
        falls = [np.diff(smooth_margins(run)[run.log_excess < 0]).min() for run in runs]
        yield at_least(float(min(falls)), -1e-12, f"{loss} loss: smallest increase of the smooth margin once L < 1")
        bounds = [
            np.log(np.expm1(size)) if logistic else np.log(size)
            for size in (np.exp(r.log_excess[r.log_excess > -700]) for r in runs)
        ]
        gaps = [run.margins[: len(bound)].min(axis=1) + bound for run, bound in zip(runs, bounds, strict=True)]
        yield at_least(
            min(float(gap.min()) for gap in gaps), -1e-10, f"{loss} loss: smallest margin minus what is below it"
        )
        if not logistic:
            largest = max(float(gap.max()) for gap in gaps)
            yield at_most(
                largest, np.log(_SAMPLES) * (0.99 if planted else 1 + ROUNDING), "largest (margin - smooth margin) |w|"
            )


@claim("max-margin/gradient-bound", f"{NOTES}, (9.165)", "proved", slow=True)
def gradient_bound(lab: Lab, planted: bool) -> Verdict:
    """|grad L| is at least the best margin times L.
    Along the exponential flows on twenty drawn data sets, which attain it in the end. Planted: one per cent more."""
    least = min(float(np.exp(run.log_slope).min()) / best.margin for run, best in _drawn_runs(lab, False))
    return at_least(least / (1.01 if planted else 1.0), 1 - 1e-10, "smallest |grad L| / (margin * L)")


@claim(
    "max-margin/any-start",
    f"repair of {NOTES}, (9.173), where the length of the path is at least |w(T)|",
    "repaired",
    slow=True,
)
def deficit_from_afar(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """From every start (best margin - smooth margin) |w| <= log L(0) + best margin |w(0)|, not log L(0) alone as printed: the path is at least |w(T)| - |w(0)| long.
    It starts there and never increases: exponential flows from a drawn start on each of twenty drawn data sets. Planted: as printed."""
    found = _drawn_runs(lab, False, moved=True)
    paths = [best.margin * run.norm + run.log_excess for run, best in found]
    rises = max(float(np.diff(path).max()) for path in paths)
    yield at_most(
        rises, 1e-9, f"largest rise of (best margin - smooth margin) |w| between records, {len(found)} starts"
    )
    bounds = [run.log_excess[0] + (0.0 if planted else best.margin * run.norm[0]) for run, best in found]
    worst = max(float(path.max() - bound) for path, bound in zip(paths, bounds, strict=True))
    yield at_most(worst, 1e-9, "largest excess over log L(0)" + " + best margin |w(0)|" * (not planted))


def _loss_floor(logistic: bool, as_printed: bool) -> float:
    """Smallest L(w) over the bound of (9.144) on twenty data sets, among a thousand w of drawn directions and lengths and one along the first input, for all samples and for the first alone; B = |w|."""
    loss, least = (lambda negative: np.logaddexp(0, negative)) if logistic else np.exp, []
    for seed in range(20):
        rng, signed = np.random.default_rng(seed), np.asarray(separable(6, 3, seed).signed)
        weights = np.concatenate([rng.standard_normal((1000, 3)), signed[:1]]) * rng.uniform(0.0, 3.0, (1001, 1))
        far = -np.linalg.norm(weights, axis=1)[:, None] * np.linalg.norm(signed, axis=1)
        losses, floors = loss(-weights @ signed.T), (np.exp if as_printed else loss)(far)
        least += [(losses.sum(axis=1) / floors.sum(axis=1)).min(), (losses / floors)[:, 0].min()]
    return float(min(least))


@claim(
    "max-margin/loss-floor-as-printed",
    f"{NOTES}, (9.144)",
    "proved",
    expected=Outcome.refuted,
    repair="max-margin/loss-floor",
)
def loss_floor_printed(lab: Lab, planted: bool) -> Verdict:
    """If |w| <= B the logistic loss is at least the sum of exp(-B |x|).
    One sample is enough, w along it: log(1 + e^-m) < e^-m. Planted: the sum of exp(-B |x|) less one per cent."""
    least = _loss_floor(True, True) / (0.99 if planted else 1.0)
    return at_least(least, 1.0, "smallest logistic loss over the sum of exp(-B |x|), 20 data sets and single samples")


@claim("max-margin/loss-floor", f"repair of {NOTES}, (9.143) and (9.144)", "repaired")
def loss_floor(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """If |w| <= B then |y w'x| <= B |x|, so the loss is at least the sum of l(B |x|): for l the exponential as printed, for the logistic with log(1 + exp(-B |x|)).
    Planted: 1 % more."""
    for loss, logistic in LOSSES.items():
        least = _loss_floor(logistic, False) / (1.01 if planted else 1.0)
        yield at_least(least, 1 - 1e-12, f"{loss}: smallest loss over its bound, 20 data sets and single samples")
