"""What the run's own certificates say, and how fast: bounds, rates and exact identities beyond the key-query paper."""

import numpy as np

from ...diagnostics.direction import misalignment
from ...diagnostics.rates import log_log_slope
from ...lab import Lab, claim
from ...norms import L1, L2, Nuclear
from ...references.bracket import adjoint, bracket, margins
from ...references.euclidean_margin import max_margin
from ...references.finite_margin import finite_margin, potential
from ...theory.certificate_mix import mixture
from ...theory.certificates import certificates
from ...theory.uniqueness import certified_rank
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import diagonal_run, direct_run, drifting_run, far_run, matrix_run, nuclear

PAPER = "kq_attention"


@claim(
    "key-query/weak-duality",
    "The run's own bounds enclose the optimum at every record.",
    "weak duality",
    kind="ours",
    slow=True,
)
def weak_duality(lab: Lab, planted: bool) -> Verdict:
    """The run's own bounds enclose the optimum at every record. Planted: the optimum of queries twice as long."""
    checks = []
    for run, reference, norm in ((*matrix_run(lab), Nuclear()), (*diagonal_run(lab), L1())):
        bounds, value = certificates(run, norm), reference.value * (0.5 if planted else 1.0)
        late = bounds.margin > 0
        checks.append(
            at_most(
                float((bounds.lower[late] / value).max()), 1 + 1e-6, f"largest lower bound over the {norm.name} optimum"
            )
        )
        checks.append(
            at_least(
                float((bounds.upper[late] / value).min()),
                1 - 1e-6,
                f"smallest upper bound over the {norm.name} optimum",
            )
        )
    return all_of(*checks)


@claim(
    "key-query/accumulated-rate",
    "The gap certified by accumulated multipliers closes like 1/log margin.",
    "derived for penchant",
    kind="ours",
)
def accumulated_rate(lab: Lab, planted: bool) -> Verdict:
    """1 / (certified relative gap) is linear in log margin for accumulated multipliers. Planted: linear in the margin."""
    checks = []
    for seed in (0, 1):
        run, reference = matrix_run(lab, seed)
        bounds = certificates(run, Nuclear())
        late = bounds.margin >= 99
        inverse = reference.value / (bounds.upper - bounds.accumulated)[late]
        x = bounds.margin[late] if planted else np.log(bounds.margin[late])
        line = np.polyfit(x, inverse, 1)
        residual = float(np.abs(np.polyval(line, x) / inverse - 1).max())
        checks.append(
            at_most(residual, 2e-2, f"data {seed}: largest relative residual of the line", f"slope {line[0]:.4g}")
        )
    return all_of(*checks)


@claim(
    "key-query/mixed-certificate",
    "Mixing the dual points of a diagonal run proves at least twice as much as the best of them.",
    "derived for penchant",
    kind="ours",
    slow=True,
)
def mixed_certificate(lab: Lab, planted: bool) -> Verdict:
    """A mixture of all dual points of a run halves the error of its best single one. Planted: of the gathered ones only."""
    checks = []
    for number in (5, 6):
        run, reference = diagonal_run(lab, number)
        data, single = run.setting.data, certificates(run, L1()).best_lower[-1]
        offered = run.dual[-1] if planted else mixture(run, L1())
        found = bracket(data, run.weight(), offered, L1()).lower
        checks.append(at_most(found / reference.value, 1 + 1e-9, f"mixed bound over the optimum, data {number}"))
        what = f"1 - mixed bound / optimum over that of the best single bound, margin 1e6, data {number}"
        checks.append(at_most(float((1 - found / reference.value) / (1 - single / reference.value)), 0.5, what))
    return all_of(*checks)


@claim(
    "key-query/rank-one-rate",
    "On rank-one data s_2(W)/margin falls like margin^-(1 - s_2 of the dual).",
    "derived for penchant",
    kind="ours",
    slow=True,
)
def rank_one_rate(lab: Lab, planted: bool) -> Verdict:
    """With one unit singular value in the dual, s_2(W)/margin falls like margin^-(1 - s_2(dual)). Planted: like 1/margin."""
    checks = []
    for seed in (0, 5, 6):
        run, reference = far_run(lab, seed), nuclear(lab, seed)
        data = run.setting.data
        sizes = np.linalg.svd(np.asarray(adjoint(data, reference.dual)), compute_uv=False)
        second = np.array([np.linalg.svd(run.weight(k), compute_uv=False)[1] for k in range(1, len(run))])
        margin = run.smallest_margin()[1:]
        slope = log_log_slope(margin, second / margin, (1e7, 1e8))
        predicted = -1.0 if planted else float(sizes[1] / sizes[0] - 1)
        checks.append(close(float(certified_rank(data, reference)), 1.0, 0.0, f"certified rank of data {seed}"))
        checks.append(close(slope, predicted, 2e-2, f"exponent of s_2(W)/margin, data {seed}"))
    return all_of(*checks)


@claim(
    "key-query/direct-rate",
    "Training W, the gap closes like 1/margin.",
    "derived for penchant",
    kind="ours",
    slow=True,
)
def direct_rate(lab: Lab, planted: bool) -> Verdict:
    """Direct weights: the certified gap times the margin settles. Planted: times log margin, the rate of the products."""
    checks = []
    for seed in (0, 1):
        run, _ = direct_run(lab, seed)
        found = certificates(run, L2())
        scale = np.log(found.margin[3:]) if planted else found.margin[3:]
        products = (found.upper - found.accumulated)[3:] * scale
        checks.append(close(float(products[0]), float(products[-1]), 1e-2, f"gap * margin at 1e4 and 1e6, data {seed}"))
    return all_of(*checks)


@claim(
    "key-query/gradient-direction",
    "Training W, the gradient solves the program long before W does.",
    "derived for penchant",
    kind="ours",
)
def gradient_direction(lab: Lab, planted: bool) -> Verdict:
    """Direct weights: the gradient is a solution long before the weight is. Planted: the weight itself is offered."""
    checks = []
    for seed in (0, 1):
        run, reference = direct_run(lab, seed)
        record = 2  # margin 1e3
        offered = run.weight(record) if planted else np.asarray(adjoint(run.setting.data, run.weights[record]))
        margin = np.asarray(margins(run.setting.data, offered)).min()
        excess = float(np.linalg.norm(offered) / margin / reference.value - 1)
        checks.append(at_most(excess, 1e-6, f"Frobenius excess of the gradient at margin 1e3, data {seed}"))
    return all_of(*checks)


@claim(
    "key-query/late-clock",
    "Late physical time is N / (2 margin (L - L*)).",
    "derived for penchant",
    kind="ours",
)
def late_clock(lab: Lab, planted: bool) -> Verdict:
    """log t = -log(L - L*) - log(2 margin / N), with N the optimum. Planted: the clock of direct weights, 1/N^2."""
    checks = []
    for run, reference in (matrix_run(lab, 0), matrix_run(lab, 1), diagonal_run(lab)):
        rate = 1 / reference.value**2 if planted else 2 * run.smallest_margin()[-1] / reference.value
        error = abs(float(run.log_time[-1] + run.log_excess[-1] + np.log(rate)))
        checks.append(at_most(error, 5e-3, "|log t + log(L - L*) + log r| at margin 1e6"))
    return all_of(*checks)


@claim(
    "key-query/diagonal-constant",
    "The diagonal gap has the constant of its decomposition.",
    "derived for penchant",
    kind="ours",
)
def diagonal_constant(lab: Lab, planted: bool) -> Verdict:
    """The diagonal gap is C / log(2 margin max|w| / w_0^2), C from the solution and the multipliers of inactive margins.

    Planted: C without those multipliers.
    """
    run, reference = diagonal_run(lab)
    bounds, margin = certificates(run, L1()), run.smallest_margin()
    size = np.abs(reference.weight[np.abs(reference.weight) > 1e-9])
    slack = np.asarray(margins(run.setting.data, reference.weight)) - 1
    inactive = 2 * run.dual[-1] @ np.where(reference.support, 0.0, slack)
    predicted = float((size * np.log(size.max() / size)).sum() + (0.0 if planted else inactive))
    length = np.log(2 * np.abs(run.weight()).max())  # w_0 = 1
    measured = float((bounds.upper[-1] - bounds.accumulated[-1]) * length)
    return close(measured, predicted, 0.05, f"gap * log(2 max|w|) at margin {margin[-1]:.0e}")


@claim(
    "key-query/drift",
    "Wrong coordinates leave at the exponent that the multipliers give.",
    "derived for penchant",
    kind="ours",
)
def drift(lab: Lab, planted: bool) -> Verdict:
    """Coordinate j grows like margin^(N |B'weights|_j) however wrong it is. Planted: every one in proportion to the margin."""
    run = drifting_run(lab)
    first, middle, last = range(1, 4)
    total = run.weights[middle].sum()
    pull = np.abs(np.asarray(adjoint(run.setting.data, run.weights[middle] / total)))
    norm = np.abs(run.weight(middle)).sum() / run.smallest_margin()[middle]
    predicted = np.ones_like(pull) if planted else norm * pull
    change = np.log(np.abs(run.weight(last) / run.weight(first)))
    measured = change / np.log(run.smallest_margin()[last] / run.smallest_margin()[first])
    return at_most(float(np.abs(measured - predicted).max()), 2e-2, "largest error of an exponent, margins 1e5 to 1e6")


@claim(
    "key-query/finite-margin",
    "The diagonal flow minimises a potential at every margin.",
    "derived for penchant",
    kind="ours",
    slow=True,
)
def finite_margin_path(lab: Lab, planted: bool) -> Verdict:
    """From a large start the diagonal flow follows the weight of least potential at its margin. Planted: the l2 solution."""
    run, _ = diagonal_run(lab, scale=10.0)
    checks, data = [], run.setting.data
    for record in range(1, len(run)):
        margin = float(run.smallest_margin()[record])
        found = finite_margin(data, 10.0, margin)
        bound = float(2 * run.dual[record] @ (run.margins[record] - margin))
        above = potential(run.weight(record), np.full(12, 10.0)) - found.potential
        checks.append(
            at_most(
                abs(above),
                bound * (1 + 1e-9),
                f"potential above its minimum, at most the slack of the multipliers, margin {margin:.0e}",
            )
        )
    last = finite_margin(data, 10.0, float(run.smallest_margin()[-1]))
    offered = max_margin(data).weight if planted else last.weight
    checks.append(
        at_most(misalignment(run.weight(), offered), 1e-6, "1 - corr to the finite-margin solution at margin 1e6")
    )
    return all_of(*checks)
