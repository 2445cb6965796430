"""Which margins enter the systems of a step."""

import numpy as np

from penchant.flow.spaces import active


def test_margins_that_cannot_matter_are_left_out_and_come_back_for_longer_steps():
    each = np.exp(-np.arange(300.0))
    assert active(each, each, 1.0).tolist() == list(range(128))  # never fewer
    heavy = np.where(np.arange(1000) % 2 == 0, 1e-3, 1e-12)
    assert len(active(heavy, heavy, 1.0)) == 128  # together they move nothing by more than the largest
    assert len(active(heavy, heavy, 1e3)) == 512
    assert len(active(np.ones(5000), np.ones(5000), 1.0)) == 1024  # no more, whatever they weigh
