"""Words that several pages on attention regression explain."""

GAUGE = (
    "the rotation R of the balanced minima; numbers in the gauge identity depend on the sign convention of the singular vectors "
    "(here: the largest entry of each right one is positive), those in the gauges plus and minus do not"
)
