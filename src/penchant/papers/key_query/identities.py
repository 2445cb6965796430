"""Exact identities of the key-query flows: equalities at every record, not rates."""

import numpy as np

from ...lab import Lab, claim
from ...norms import L1, L2
from ...theory.certificates import brackets, certificates
from ...verdict import Verdict, all_of, at_most
from .evidence import UNEVEN, direct_run, precise_diagonal_run, uneven_run

PAPER = "kq_attention"


@claim(
    "key-query/gap-decomposition",
    "The gap of the diagonal flow is (|w|_1 - <w, u>/|u|_inf + sum phi_k (m_k - margin)/|u|_inf)/margin, u = arcsinh(w/w_0^2).",
    "derived for penchant",
    kind="ours",
    slow=True,
)
def gap_decomposition(lab: Lab, planted: bool) -> Verdict:
    """The accumulated gap is a part of the weight's spread and a part of the slack. Planted: the slack left out."""
    checks = []
    for run, scales in ((precise_diagonal_run(lab), np.ones(12)), (uneven_run(lab), UNEVEN)):
        bounds = certificates(run, L1())
        for record in range(1, len(run)):
            weight, margin = run.weight(record), float(run.margins[record].min())
            pull = np.arcsinh(weight / scales**2)  # of the weight alone: that it is B phi is Lemma A.1
            top = np.abs(pull).max()
            slack = 2 * run.dual[record] @ (run.margins[record] - margin)
            predicted = np.abs(weight).sum() - weight @ pull / top + (0.0 if planted else slack / top)
            error = abs(bounds.upper[record] - bounds.accumulated[record] - predicted / margin) / bounds.upper[record]
            checks.append(
                at_most(float(error), 1e-11, f"error of the gap relative to the upper bound, margin {margin:.0e}")
            )
    return all_of(*checks)


@claim(
    "key-query/largest-pull",
    "The gathered multipliers of the diagonal flow pull at most max arcsinh(|w|/w_0^2).",
    "derived for penchant",
    kind="ours",
    slow=True,
)
def largest_pull(lab: Lab, planted: bool) -> Verdict:
    """|B phi|_inf = max arcsinh(|w| / w_0^2). Planted: its leading order log(2 |w| / w_0^2)."""
    checks = []
    for run, scales in ((precise_diagonal_run(lab), np.ones(12)), (uneven_run(lab), UNEVEN)):
        features = np.asarray(run.setting.data.features())
        for record in range(1, len(run)):
            ratio = np.abs(run.weight(record)) / scales**2
            gathered = np.abs(2 * run.dual[record] @ features).max()
            predicted = (np.log(2 * ratio) if planted else np.arcsinh(ratio)).max()
            what = f"relative error of |B phi|_inf, margin {run.margins[record].min():.0e}"
            checks.append(at_most(float(abs(gathered / predicted - 1)), 1e-11, what))
    return all_of(*checks)


@claim(
    "key-query/direct-ratio",
    "Training W from 0, upper over accumulated bound is the mean margin under the gathered multipliers over the smallest.",
    "derived for penchant",
    kind="ours",
    slow=True,
)
def direct_ratio(lab: Lab, planted: bool) -> Verdict:
    """Trained from W = 0, upper / accumulated is sum phi m / (margin sum phi). Planted: the multipliers of the moment for phi."""
    checks = []
    for seed in (0, 1):
        run, _ = direct_run(lab, seed)
        for record in range(1, len(run)):
            phi = run.weights[record] if planted else run.dual[record]
            margin = float(run.margins[record].min())
            above = phi @ (run.margins[record] - margin) / (margin * phi.sum())
            bounds = brackets(run, L2(), record)["accumulated"]
            error = abs(bounds.gap - bounds.rounding - above)
            checks.append(at_most(float(error), 1e-14, f"error of upper / accumulated, data {seed}, {margin:.0e}"))
    return all_of(*checks)
