"""What the run's own certificates say, and how fast: bounds, rates and exact identities beyond the key-query paper."""

from collections.abc import Iterator

import numpy as np

from ...diagnostics.direction import misalignment
from ...diagnostics.rates import log_log_slope
from ...lab import Lab, derived
from ...norms import L1, L2, Nuclear
from ...references.base import Solution
from ...references.bracket import adjoint, margins
from ...references.euclidean_margin import max_margin
from ...references.finite_margin import finite_margin, potential
from ...theory.certificates import certificates
from ...theory.uniqueness import certified_rank
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_most, close
from . import evidence


@derived("key-query/accumulated-rate")
def accumulated_rate(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The gap certified by accumulated multipliers closes like 1/log margin.
    1 / (certified relative gap) is linear in log margin for accumulated multipliers. Planted: linear in the margin."""
    for seed in (0, 1):
        run, reference = evidence.matrix_run(lab, seed)
        bounds = certificates(run, Nuclear())
        late = bounds.margin >= 99
        inverse = reference.value / (bounds.upper - bounds.accumulated)[late]
        x = bounds.margin[late] if planted else np.log(bounds.margin[late])
        line = np.polyfit(x, inverse, 1)
        residual = float(np.abs(np.polyval(line, x) / inverse - 1).max())
        yield at_most(residual, 2e-2, f"data {seed}: largest relative residual of the line", f"slope {line[0]:.4g}")


@derived("key-query/rank-one-rate", slow=True)
def rank_one_rate(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """On rank-one data s_2(W)/margin falls like margin^-(1 - s_2 of the dual).
    With one unit singular value in the dual, s_2(W)/margin falls like margin^-(1 - s_2(dual)). Planted: like 1/margin."""
    for seed in (0, 5, 6):
        run, reference = evidence.far_run(lab, seed), evidence.nuclear(lab, seed)
        data = run.setting.data
        sizes = np.linalg.svd(np.asarray(adjoint(data, reference.dual)), compute_uv=False)
        second = np.array([np.linalg.svd(run.weight(k), compute_uv=False)[1] for k in range(1, len(run))])
        margin = run.smallest_margin()[1:]
        slope = log_log_slope(margin, second / margin, (1e7, 1e8))
        predicted = -1.0 if planted else float(sizes[1] / sizes[0] - 1)
        yield close(float(certified_rank(data, reference)), 1.0, 0.0, f"certified rank of data {seed}")
        yield close(slope, predicted, 2e-2, f"exponent of s_2(W)/margin, data {seed}")


@derived("key-query/direct-rate", slow=True)
def direct_rate(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Training W, the gap closes like 1/margin.
    Direct weights: the certified gap times the margin settles. Planted: times log margin, the rate of the products."""
    for seed in (0, 1):
        run, _ = evidence.direct_run(lab, seed)
        found = certificates(run, L2())
        scale = np.log(found.margin[3:]) if planted else found.margin[3:]
        products = (found.upper - found.accumulated)[3:] * scale
        yield close(float(products[0]), float(products[-1]), 1e-2, f"gap * margin at 1e4 and 1e6, data {seed}")


@derived("key-query/late-clock")
def late_clock(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Late physical time is N / (2 margin (L - L*)).
    log t = -log(L - L*) - log(2 margin / N), with N the optimum. Planted: the clock of direct weights, 1/N^2."""
    for run, reference in (evidence.matrix_run(lab, 0), evidence.matrix_run(lab, 1), evidence.diagonal_run(lab)):
        rate = 1 / reference.value**2 if planted else 2 * run.smallest_margin()[-1] / reference.value
        error = abs(float(run.log_time[-1] + run.log_excess[-1] + np.log(rate)))
        yield at_most(error, 5e-3, "|log t + log(L - L*) + log r| at margin 1e6")


def _gap_parts(run: Trajectory, reference: Solution, scale: float = 1.0) -> tuple[float, float, float]:
    """gap * log(2 max|w| / scale^2) at the end of a diagonal run, and the two parts of the constant that it should tend to.

    These are sum |w*| log(max|w*| / |w*|), and the slack that the solution leaves to the multipliers gathered off its support.
    """
    bounds = certificates(run, L1())
    size = np.abs(reference.weight[np.abs(reference.weight) > 1e-9])
    slack = np.asarray(margins(run.setting.data, reference.weight)) - 1
    idle = 2 * run.dual[-1] @ np.where(reference.support, 0.0, slack)
    measured = (bounds.upper[-1] - bounds.accumulated[-1]) * np.log(2 * np.abs(run.weight()).max() / scale**2)
    return float(measured), (size * np.log(size.max() / size)).sum(), idle


@derived("key-query/diagonal-constant")
def diagonal_constant(lab: Lab, planted: bool) -> Verdict:
    """The diagonal gap has the constant of its decomposition.
    The diagonal gap is C / log(2 margin max|w| / w_0^2), C from the solution and the multipliers of inactive margins.

    Planted: C without those multipliers."""
    run, reference = evidence.diagonal_run(lab)
    measured, solution, idle = _gap_parts(run, reference)
    predicted = float(solution + (0.0 if planted else idle))
    return close(measured, predicted, 0.05, f"gap * log(2 max|w|) at margin {run.smallest_margin()[-1]:.0e}")


@derived("key-query/drift")
def drift(lab: Lab, planted: bool) -> Verdict:
    """Wrong coordinates leave at the exponent that the multipliers give.
    Coordinate j grows like margin^(N |B'weights|_j) however wrong it is. Planted: every one in proportion to the margin."""
    run = evidence.drifting_run(lab)
    first, middle, last = range(1, 4)
    total = run.weights[middle].sum()
    pull = np.abs(np.asarray(adjoint(run.setting.data, run.weights[middle] / total)))
    norm = np.abs(run.weight(middle)).sum() / run.smallest_margin()[middle]
    predicted = np.ones_like(pull) if planted else norm * pull
    change = np.log(np.abs(run.weight(last) / run.weight(first)))
    measured = change / np.log(run.smallest_margin()[last] / run.smallest_margin()[first])
    return at_most(float(np.abs(measured - predicted).max()), 2e-2, "largest error of an exponent, margins 1e5 to 1e6")


@derived("key-query/finite-margin", slow=True)
def finite_margin_path(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The diagonal flow minimises a potential at every margin.
    From a large start the diagonal flow follows the weight of least potential at its margin. Planted: the l2 solution."""
    run, _ = evidence.diagonal_run(lab, scale=10.0)
    data = run.setting.data
    for record in range(1, len(run)):
        margin = float(run.smallest_margin()[record])
        bound = float(2 * run.dual[record] @ (run.margins[record] - margin))
        above = potential(run.weight(record), np.full(12, 10.0)) - finite_margin(data, 10.0, margin).potential
        what = f"potential above its minimum, at most the slack of the multipliers, margin {margin:.0e}"
        yield at_most(abs(above), bound * (1 + 1e-9), what)
    last = max_margin(data) if planted else finite_margin(data, 10.0, float(run.smallest_margin()[-1]))
    what = "1 - corr to the finite-margin solution at margin 1e6"
    yield at_most(misalignment(run.weight(), last.weight), 1e-6, what)


@derived("key-query/gap-decomposition", slow=True)
def gap_decomposition(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The gap of the diagonal flow is (|w|_1 - <w, u>/|u|_inf + sum phi_k (m_k - margin)/|u|_inf)/margin, u = arcsinh(w/w_0^2).
    The accumulated gap is a part of the weight's spread and a part of the slack. Planted: the slack left out."""
    for run, scales in ((evidence.precise_diagonal_run(lab), np.ones(12)), (evidence.uneven_run(lab), evidence.UNEVEN)):
        bounds = certificates(run, L1())
        for record in range(1, len(run)):
            weight, margin = run.weight(record), float(run.margins[record].min())
            pull = np.arcsinh(weight / scales**2)  # of the weight alone: that it is B phi is Lemma A.1
            top = np.abs(pull).max()
            slack = 2 * run.dual[record] @ (run.margins[record] - margin)
            predicted = np.abs(weight).sum() - weight @ pull / top + (0.0 if planted else slack / top)
            error = abs(bounds.upper[record] - bounds.accumulated[record] - predicted / margin) / bounds.upper[record]
            yield at_most(float(error), 1e-11, f"error of the gap relative to the upper bound, margin {margin:.0e}")
