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

    @property
    def message(self) -> str:
        return _MESSAGES[self]


_MESSAGES = {
    Status.running: "The run has not ended.",
    Status.out_of_steps: "All requested steps were taken.",
    Status.reached_target: "The requested margin, norm, time or excess was reached.",
    Status.diverging_step: (
        "The next step would have left the region its rule describes (longer than 1e6 times the weights, or taken from a plateau), so it was not taken. "
        "Usual causes: (a) a step size far too large; (b) for Polyak's rule, training that settled above the infimum, on data that no direction "
        "separates or on tokens that are not optimal (`detect_limit(run)` names them). Fix: a smaller step, or a cap (`polyak(cap=100)`; of both blocks: `JointPolyak(cap=100)`)."
    ),
    Status.zero_gradient: (
        "The gradient is zero: the run sits on a critical point and no descent rule can leave it. "
        "Usual causes: (a) factors or layers that start at 0; (b) samples with the same tokens and opposite labels."
    ),
    Status.resolution_exhausted: (
        "Margins have grown so large that float64 no longer resolves their differences; anything later would be rounding noise."
    ),
    Status.coordinate_underflow: (
        "Some multipliers underflowed to 0, so coordinatewise rules (sign, Adam) no longer see the true gradient. "
        "Fix: stop earlier, or use a rule in the l2 geometry, for which the lost multipliers do not matter."
    ),
    Status.not_finite: "The next step was not finite and was not taken. Fix: a smaller step size.",
    Status.step_failed: "The integrator could not meet its tolerance with any step length. Fix: a larger `tolerance`.",
    Status.settled: (
        "The gradient has vanished to rounding at finite weights: the run stands at a minimum. "
        "Usual cause: an infimum that is attained, in regression or on data that no direction separates."
    ),
    Status.stalled: (
        "Some samples attend to a token that is not their best one, and ever more firmly: the loss stands on a plateau above its infimum. "
        "Usual causes: (a) a large start; (b) a loss at the start above that of a single wrong token (`initial_loss` fails). "
        "`detect_limit(run)` names the tokens. Fix: a smaller start."
    ),
}
