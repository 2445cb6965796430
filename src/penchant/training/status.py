"""Why a run ended, in prose."""

from enum import IntEnum


class Status(IntEnum):
    """The ending of a run. Only `out_of_steps` and `reached_target` are what the caller asked for."""

    running = 0
    out_of_steps = 1
    reached_target = 2
    diverging_step = 3
    zero_gradient = 4
    resolution_exhausted = 5
    coordinate_underflow = 6
    not_finite = 7
    step_failed = 8
    settled = 9
    stalled = 10
    inaccurate = 11

    @property
    def message(self) -> str:
        return _MESSAGES[self]

    @property
    def message_on_regression(self) -> str:
        """The same ending where there are targets instead of margins to grow."""
        return _ON_REGRESSION.get(self, self.message)


_MESSAGES = {
    Status.running: "The run has not ended.",
    Status.out_of_steps: "All steps were taken.",
    Status.reached_target: "The requested margin, norm, time or excess was reached.",
    Status.diverging_step: (
        "The next step would have left the region its rule describes (longer than 1e6 times the weights, taken from a plateau, or with margins beyond float64 "
        "at a loss above that of the start), so it was not taken. "
        "Usual causes: (a) a step size far too large; (b) for Polyak's rule, training that settled above the infimum, on data that no direction "
        "separates or on tokens that are not optimal (`detect_limit(run)` names them). Fix: a smaller step, or a cap (`polyak(cap=100)`)."
    ),
    Status.zero_gradient: (
        "The gradient is zero: the run sits on a critical point and no descent rule can leave it. "
        "Usual causes: (a) factors or layers that start at 0; (b) samples with the same tokens and opposite labels."
    ),
    Status.resolution_exhausted: (
        "Margins have grown so large that float64 no longer resolves their differences, or rounding keeps a flow from moving; anything later would be rounding noise."
    ),
    Status.coordinate_underflow: (
        "Some multipliers underflowed to 0, so coordinatewise rules (sign, Adam) no longer see the true gradient. "
        "Fix: stop earlier, or use a rule in the l2 geometry, for which the lost multipliers do not matter."
    ),
    Status.not_finite: "The next step was not finite and was not taken. Fix: a smaller step size.",
    Status.step_failed: (
        "The integrator could not meet its tolerance with any step length. Usual causes: (a) a tolerance near rounding; (b) the clock "
        "`LogExcessDrop` on a plateau, where log excess no longer drops. Fix: a larger `tolerance`, or the clock `RelativeArc()`."
    ),
    Status.settled: (
        "The gradient has vanished to the rounding of its terms at finite weights: as far as float64 can tell, the run stands at a minimum, and no larger margin can be reached. "
        "Usual cause: data that no direction separates. Where a part of them can be separated, its margins go on growing like log t, "
        "but their pull is now below the rounding of the rest."
    ),
    Status.stalled: (
        "Some samples attend to a token that is not their best one, and ever more firmly: the loss stands on a plateau above its infimum. "
        "Usual causes: (a) a large start; (b) a loss at the start above that of a single wrong token (`initial_loss` fails). "
        "`detect_limit(run)` names the tokens. Fix: for (a) a smaller start, such as the default `--scale 1e-3`; for (b) none, the data decide."
    ),
    Status.inaccurate: (
        "The integration has lost what the exact flow keeps (log R against the clock, or the conserved matrices of a deep linear network), so it was stopped; "
        "what was recorded before is within the bounds. Fix: a smaller `tolerance` of the flow (and `order=6`; `--tolerance` on the command line), or an earlier target: "
        "from risks of about e^-1e7 on, rounding alone leaves the bounds at depth 2, whatever the tolerance."
    ),
}
_ON_REGRESSION = {
    Status.reached_target: "The requested time or excess was reached.",
    Status.diverging_step: (
        "The next step would have left the region its rule describes, or the residual has grown to 1e12 times that of the start: the run diverges and was stopped. "
        "Usual cause: a step size beyond the edge of stability. Fix: a smaller step; the hypothesis `step_size` of `predict` has the bound."
    ),
    Status.zero_gradient: (
        "The gradient is exactly zero although the targets are not fitted: the run sits on a critical point and no descent rule can leave it. "
        "Usual causes: (a) square parameters that are 0; (b) inputs orthogonal to the residual. Fix: another start."
    ),
    Status.coordinate_underflow: (
        "A square parameter is about to underflow to 0, from where it never comes back. "
        "Usual cause: a start below 1e-145. Fix: a larger start, or `GradientFlow()`, which works in logarithms."
    ),
    Status.resolution_exhausted: (
        "What is left to move, coefficients or a residual below the rounding of the predictions, is no longer resolved by float64; "
        "anything later would be rounding noise. "
        "Usual causes: (a) a start far below the coefficients; (b) one so far above them that its rounding hides the targets. "
        "Fix: (a) a larger `alpha`, or for signed powers less depth; (b) a smaller `alpha`."
    ),
    Status.settled: "The loss is at its infimum to rounding and the run has stopped moving: it stands at a minimum.",
}
