"""Joint runs that end because float64 has no digits left."""

import numpy as np

import penchant as pt

DATA = pt.settings.marked_tokens()


def test_joint_runs_stop_where_float64_no_longer_resolves_the_logits():
    long = pt.JointTokens(200.0 * np.asarray(DATA.tokens), DATA.labels, DATA.optimal)
    run = pt.training.train_joint(long, pt.optimisers.BlockNormalised(9e5), steps=2000)
    assert run.status is pt.training.Status.resolution_exhausted
    assert run.steps[-1] < 200
    largest = max(np.abs(run.logits[-1]).max(), np.abs(run.outputs[-1]).max())
    assert 1e-3 < np.finfo(float).eps * largest < 1e-1  # one step beyond what is resolved, not thousands
    short = pt.training.train_joint(DATA, pt.optimisers.BlockNormalised(9e5), steps=2000)
    assert short.status is pt.training.Status.out_of_steps
