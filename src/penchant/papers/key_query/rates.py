"""What the run's own certificates say, and how fast: bounds, rates and exact identities beyond the key-query paper."""

from collections.abc import Iterator

import numpy as np

from ...lab import Lab, derived
from ...norms import L1, Nuclear
from ...theory.certificates import certificates
from ...verdict import Verdict, at_most
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
