"""How far a network is from a Karush-Kuhn-Tucker point of its margin problem: min |theta|^2 / 2 with all margins at least 1.

Nothing here trusts a solver: multipliers come from nonnegative least squares, and every number that is reported is a bound that any
multipliers would give, from products with the gradients of the margins alone. A network is whatever gives those products (`Gradients`):
`torch_kkt.kkt` makes one of a PyTorch module, `jax_kkt.function_kkt` of a JAX function.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from ..errors import ArgumentError, PenchantError
from ..verdict import Outcome, Verdict
from .kkt_cone import Cone, Gradients, Kinks, generated

RADII = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
HOMOGENEOUS = 1e-10  # relative defect below which a function in float64 is homogeneous
_THEOREM = "Lyu and Li 2020; Ji and Telgarsky 2020: directions of gradient flow on the summed exponential or logistic loss converge to KKT points"
_NEAR_THEOREM = "Cai et al. 2025: directions of gradient flow on a near-homogeneous network converge to KKT points of its homogenisation, which is what is read here"
_PLATEAU = (3.0, 0.02)  # a stretch of radii by this factor on which the gap changes by less than this share


@dataclass(frozen=True)
class Homogeneity:
    """Degree and relative defect by Euler's identity, whole and by samples, the worst of three finite scalings, and at growing weights the degree as a whole number and the defect."""

    degree: float
    defect: float
    scaling_defect: float
    defects: np.ndarray
    limit: int
    near: tuple[float, ...]

    @property
    def holds(self) -> bool:
        return max(self.defect, self.scaling_defect) <= HOMOGENEOUS

    @property
    def nearly(self) -> bool:
        """Whether the defect falls at least like 1/s over the last three octaves of s = 1, 4, ..., 4096, or is gone."""
        first, last = self.near[-4], self.near[-1]
        return last <= HOMOGENEOUS or last * 4**3 <= 2 * first


@dataclass(frozen=True)
class Radius:
    """The distance and the gap with all kinks within `rho` free: how many those are, how far a sample moves for them, and the bounds."""

    rho: float
    free: int
    radius: float
    distance: float
    lower: float
    upper: float
    control: float
    exact: bool


@dataclass(frozen=True)
class Reading:
    """What the meter says of one network; `verdict` is of the gap T, which is 0 exactly at a KKT point."""

    homogeneity: Homogeneity
    log_norm: float
    margins: np.ndarray
    instant: float
    distance: float
    distance_lower: float
    lower: float
    upper: float
    eps: float
    delta: float
    multipliers: np.ndarray
    curve: tuple[Radius, ...]
    resolved: bool
    theorem: str
    hypotheses: Mapping[str, tuple[bool, str]]
    verdict: Verdict
    cost: str = ""

    @property
    def normalised_margin(self) -> float:
        return float(self.margins.min())

    @property
    def log_margin(self) -> float:
        """Logarithm of the smallest margin at the scale of the weights, which may be beyond every float."""
        return self.homogeneity.limit * self.log_norm + math.log(self.normalised_margin)

    def content(self) -> dict:
        """For JSON."""
        return {
            "degree": self.homogeneity.degree,
            "defect": max(self.homogeneity.defect, self.homogeneity.scaling_defect),
            "defects": self.homogeneity.defects,
            "log_norm": self.log_norm,
            "margins": self.margins,
            "normalised_margin": self.normalised_margin,
            "log_margin": self.log_margin,
            "distance": {"instant": self.instant, "nnls": self.distance, "lower": self.distance_lower},
            "curve": [vars(one) for one in self.curve],
            "gap": {"lower": self.lower, "upper": self.upper, "eps": self.eps, "delta": self.delta},
            "theorem": self.theorem,
            "hypotheses": {name: {"holds": ok, "slack": text} for name, (ok, text) in self.hypotheses.items()},
            "verdict": self.verdict.headline,
            "why": self.verdict.inequality,
        }

    def lines(self) -> list[str]:
        """For the terminal."""
        told = self.homogeneity
        found = [
            f"degree     {told.degree:.6g}, defect {told.defect:.2g} (Euler), {told.scaling_defect:.2g} (scaling)",
            f"margin     {self.normalised_margin:.6g} normalised, log of the margin itself {self.log_margin:.6g}, log |theta| {self.log_norm:.6g}",
            f"distance   instant {self.instant:.4g}{'' if self.resolved else ' (beyond the resolution of float64)'}, best multipliers {self.distance:.4g} (at least {self.distance_lower:.4g})",
            f"gap        T in [{self.lower:.4g}, {self.upper:.4g}], of it eps {self.eps:.4g}, delta {self.delta:.4g}; {np.count_nonzero(self.multipliers)} margins carry it",
        ]
        found += [
            f"  rho {one.rho:.0e}  free {one.free:5}  R {one.radius:.1e}  distance {one.distance:.4g}  T [{one.lower:.4g}, {one.upper:.4g}]  control {one.control:.4g}"
            for one in self.curve
        ]
        found += [f"theorem    {self.theorem}"]
        found += [f"  {name}: {'holds' if ok else 'fails'}, {text}" for name, (ok, text) in self.hypotheses.items()]
        return [*found, *self.verdict.lines()]


def homogeneity(network: Gradients) -> Homogeneity:
    """Measured on the parameters as they are and on a copy whose zeros are filled: biases start at 0 and hide until they move."""
    theta = network.start
    filled = np.where(theta == 0, 0.1 * np.random.default_rng(0).normal(size=theta.shape), theta)
    found = [_measured(network, point) for point in ([theta] if theta.all() else [theta, filled])]
    return max(found, key=lambda one: max(one.defect, one.scaling_defect))


def _measured(network: Gradients, theta: np.ndarray) -> Homogeneity:
    value, slope = _shrunk(*network.outputs(theta))
    size = float(np.sum(value**2))
    degree = float(np.sum(slope * value)) / size
    off = np.linalg.norm(slope - degree * value, axis=1)
    defect = float(np.linalg.norm(off)) / max(float(np.linalg.norm(slope)), math.sqrt(size))
    scaled = [_scaled(_shrunk(*network.outputs(s * theta))[0], value) for s in (0.5, 2.0, 4.0)]
    near = [_shrunk(*network.outputs(2.0**power * theta)) for power in range(0, 13, 2)]
    whole = round(float(np.sum(near[-1][0] * near[-1][1]) / np.sum(near[-1][0] ** 2)))
    curve = tuple(float(np.linalg.norm(e - whole * f) / np.linalg.norm(f)) for f, e in near)
    shares = off / max(float(np.linalg.norm(slope)), math.sqrt(size))
    return Homogeneity(degree, defect, max(scaled), shares, whole, curve)


def _shrunk(value: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and their derivative over the largest output, whose square need not be a float."""
    top = float(np.abs(value).max())
    if not 0 < top < math.inf:
        raise ArgumentError("model", "kkt", "a network of finite outputs that are not all 0", f"{top:g} at most")
    return value / top, slope / top


def _scaled(other: np.ndarray, value: np.ndarray) -> float:
    factor = np.sum(other * value) / np.sum(value**2)
    return float(np.linalg.norm(other - factor * value) / np.linalg.norm(other))


def instant_weights(margins: np.ndarray, degree: int, log_norm: float) -> np.ndarray:
    """Weights of the exponential loss at the scale of the parameters: the difference first, the scale second, so that nothing overflows."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.exp(-np.exp(degree * log_norm + np.log(margins - margins.min())))


def read(network: Gradients, *, tolerance: float = 1e-2, radii: Sequence[float] = RADII, cost: str = "") -> Reading:
    """The meter: homogeneity, margins, distances, the gap with its certificate, and the curve over the radius within which kinks are free."""
    theta = network.start
    size = float(np.linalg.norm(theta))
    if not 0 < tolerance < 1:
        raise ArgumentError("tolerance", "kkt", "between 0 and 1, as the distance is", tolerance)
    if not 0 < size < math.inf:
        found = f"{int((~np.isfinite(theta)).sum())} that are not, and a norm of {size:g}"
        required = "a network of finite weights that are not all 0"
        raise ArgumentError("model", "kkt", required, found, "a checkpoint from before")
    told = homogeneity(network)
    unit, degree = theta / size, told.limit
    if not told.holds and degree >= 1 and told.nearly:
        network = network.homogenised(degree)
    if degree < 1 or not (told.holds or homogeneity(network).holds):
        raise NotHomogeneous(told)
    margins = network.margins(unit)
    _check_separated(margins, network.samples)
    cone = Cone(network, unit, degree, margins)
    near = np.flatnonzero(margins <= 1.1 * margins.min())
    first = near, network.rows(unit, near)
    rows, found, lower, upper, which = generated(cone, first, True)
    _, _, below, distance, _ = generated(cone, first, False)
    multipliers = np.bincount(which, found, len(margins))
    pulled = network.pull(unit, multipliers)
    instant = _sine(unit, network.pull(unit, instant_weights(margins, degree, math.log(size))))
    delta = degree * float(multipliers @ (margins - margins.min()))
    curve, kinks = _curve(cone, (rows, which), radii)
    resolved = 5 * np.finfo(float).eps * math.exp(min(700.0, degree * math.log(size))) * margins.min() < 1e-3
    hypotheses = _hypotheses(told, margins, network, kinks, degree * math.log(size))
    verdict = _verdict(upper, curve, tolerance)
    theorem = _THEOREM if told.holds else _NEAR_THEOREM
    eps = float(np.linalg.norm(unit - pulled))
    return Reading(
        told, math.log(size), margins, instant, distance, below, max(lower, 0.0), upper, eps, delta, multipliers, curve, bool(resolved), theorem, hypotheses, verdict, cost
    )  # fmt: skip


class NotHomogeneous(PenchantError):
    """A network for which no theorem about margins speaks: neither homogeneous nor near to it at large weights."""

    def __init__(self, found: Homogeneity):
        self.homogeneity = found
        worst = max(found.defect, found.scaling_defect)
        text = f"The network is not homogeneous: degree {found.degree:.4g} with a relative defect of {worst:.2g} (sample {found.defects.argmax()} is worst)"
        near = f"nor near it at 4096 times the weights: degree {found.limit}, defect {found.near[-1]:.2g}"
        causes = "activations that are bounded or periodic at the output, a normalisation after the last layer"
        super().__init__(
            f"{text}, {near}.\n  Usual causes: {causes}.\n  Fix: remove them; the theorems about KKT points need f(s theta) = s^L f(theta), exactly or for large s."
        )


def _check_separated(margins: np.ndarray, samples: np.ndarray) -> None:
    if bad := int(np.sum(~(margins > 0))):
        worst = int(np.argmin(np.where(np.isnan(margins), -np.inf, margins)))
        text = f"The network does not separate the data: {bad} of {len(margins)} margins are not positive, the smallest is {margins[worst] + 0.0:.3g} (normalised) on sample {samples[worst]}."
        causes = "(a) training has not got there yet; (b) labels in another order or of other values; (c) label noise"
        raise PenchantError(
            f"{text}\n  Usual causes: {causes}.\n  Fix: train until every sample is classified; before that there is no KKT problem."
        )


def _sine(unit: np.ndarray, other: np.ndarray) -> float:
    other = other / np.linalg.norm(other)
    return float(np.linalg.norm(unit - (unit @ other) * other))


def _curve(cone: Cone, first: tuple, radii: Sequence[float]) -> tuple[tuple[Radius, ...], Kinks | None]:
    """The readings with all kinks within each radius free, and with as many random ones of the same samples for control."""
    kinks = cone.network.kinks(cone.unit)
    if kinks is None:
        return (), None
    rng, found, rows = np.random.default_rng(0), [], (first[1], first[0])
    for rho in radii:
        free = kinks.free(rho)
        wider = Cone(cone.network, cone.unit, cone.degree, cone.margins, kinks, free)
        best, weights, lower, upper, which = generated(wider, rows, True)
        distance = generated(wider, rows, False)[3]
        drawn = [rng.permuted(one, axis=1) for one in free]
        control = Cone(cone.network, cone.unit, cone.degree, cone.margins, kinks, drawn)
        nearby = np.where(np.hstack(free), np.hstack(kinks.distances), 0.0)
        far = float(np.linalg.norm(nearby, axis=1).max())
        rows = which[weights > 0], best[weights > 0]
        exact = sum(bool(one.any()) for one in free) <= 1 and not cone.network.unseen
        count = sum(int(one.sum()) for one in free)
        other = generated(control, (first[1], first[0]), False)[3] if count else math.nan
        below = max(lower, 0.0) if exact else 0.0
        found.append(Radius(rho, count, far, distance, below, max(upper, 0.0), other, exact))
    return tuple(found), kinks


def plateau(curve: Sequence[Radius]) -> tuple[Radius, ...]:
    """The longest stretch of radii, by a factor of at least 3, on which the gap changes by less than 2 %; empty if there is none."""
    found: tuple[Radius, ...] = ()
    for i, j in combinations(range(len(curve) + 1), 2):
        part = curve[i:j]
        tops = [one.upper for one in part]
        long = part[-1].rho / part[0].rho >= 0.99 * _PLATEAU[0]
        if long and max(tops) - min(tops) <= _PLATEAU[1] * max(tops) and len(part) > len(found):
            found = tuple(part)
    return found


def _hypotheses(told: Homogeneity, margins: np.ndarray, network: Gradients, kinks: Kinks | None, shift: float) -> dict:
    with np.errstate(over="ignore"):
        log_loss = -np.exp(shift) * margins.min() + math.log(instant_weights(margins, 1, shift).sum())
    nearest = math.inf if kinks is None else min(float(one.min()) for one in kinks.distances)
    known = f"nearest kink at {nearest:.2g} > 1e-6 (else Clarke's derivatives, and the curve)"
    unknown = "smooth units such as GELU have kinks in the limit, which are not looked for"
    smooth = (nearest > 1e-6, known) if told.holds or kinks else (False, unknown)
    smooth = (False, f"{network.unseen} may have kinks, which are not looked for") if network.unseen else smooth
    worst = int(network.samples[margins.argmin()])
    return {
        "homogeneous": (told.holds, f"defect {max(told.defect, told.scaling_defect):.2g} <= {HOMOGENEOUS:g}"),
        "near-homogeneous": (
            told.nearly,
            f"defect {told.near[0]:.2g}, and {told.near[-1]:.2g} at 4096 times the weights (to fall at least like 1/s), degree {told.limit}",
        ),
        "separated": (True, f"smallest normalised margin {margins.min():.4g}, sample {worst}"),
        "small loss": (bool(log_loss < 0), f"log of the summed exponential loss {log_loss:.4g} < 0"),
        "smooth margins": smooth,
    }


def _verdict(upper: float, curve: Sequence[Radius], tolerance: float) -> Verdict:
    """Confirmed by a gap below the square of the tolerance, on a plateau where there are kinks; never refuted by a finite residual: the theorem allows any."""
    flat = plateau(curve)
    if curve and curve[-1].free and not flat:
        return Verdict(Outcome.undecided, "the gap has no plateau over the radius within which kinks are free")
    best = min((one.upper for one in flat), default=upper)
    text = f"T = {best:.3g}" + (f" at rho = {flat[0].rho:.0e} to {flat[-1].rho:.0e}" if flat else "")
    if best <= tolerance**2:
        return Verdict(Outcome.confirmed, f"{text} <= {tolerance:g}^2: a KKT point within the tolerance")
    return Verdict(Outcome.undecided, f"{text} > {tolerance:g}^2: not there, which no finite time refutes")


def smoothed_margin(reading: Reading) -> tuple[float, float]:
    """log(1/L)/|theta|^degree of the summed exponential loss L, and by how much that of the logistic loss may be smaller, which is infinite until L < 1."""
    degree = reading.homogeneity.limit
    weights = instant_weights(reading.margins, degree, reading.log_norm)
    with np.errstate(over="ignore", divide="ignore"):
        scale = np.exp(-degree * reading.log_norm)
        smoothed = reading.normalised_margin - scale * np.log(weights.sum())
        return smoothed, scale * np.exp(-smoothed / scale) if smoothed > 0 else math.inf


def trend(readings: Sequence[Reading]) -> Verdict:
    """Whether the gap falls from each checkpoint of one run to the next; `measured` has the decades of margin and the slope of log T per decade.

    A gap that rises decides nothing: it may, on the way past a saddle. A smoothed margin that falls says that the run is no gradient flow.
    """
    gaps = [min((part.upper for part in plateau(one.curve)), default=one.upper) for one in readings]
    decades = (readings[-1].log_margin - readings[0].log_margin) / math.log(10)
    slope = math.log10(gaps[-1] / gaps[0]) / decades if decades > 0 and gaps[0] and gaps[-1] else math.nan
    known = [smoothed_margin(one) for one in readings]
    fell = [k for k, ((a, slack), (b, _)) in enumerate(pairwise(known)) if b < a * (1 - 1e-9) - slack]
    lost = fell if all(one.homogeneity.holds for one in readings) else []
    down, long = all(b < a for a, b in pairwise(gaps)), decades >= 1
    text = f"T = {', '.join(f'{one:.3g}' for one in gaps)} over {decades:.2g} decades of margin, slope {slope:.3g}"
    text += "" if long else "; less than one decade decides nothing"
    if lost:
        text += f"; no gradient flow, whose smoothed margin cannot fall: it does after checkpoint {lost[0]}, from {known[lost[0]][0]:.6g} to {known[lost[0] + 1][0]:.6g}"
    outcome = Outcome.confirmed if down else Outcome.refuted if lost else Outcome.undecided
    measured, hypotheses = {"decades": decades, "slope": slope}, "fail" if lost else "hold"
    return Verdict(outcome if long else Outcome.undecided, text, measured=measured, hypotheses=hypotheses)
