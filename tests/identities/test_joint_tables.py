"""Printed numbers of joint training: crowded data, on which a sample does not support the decoder, and Lemmas 3 and 13."""

from functools import cache

import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.direction import joint_misalignments
from penchant.papers import new_lab
from penchant.papers.self_attention import joint_evidence as evidence

LAB = new_lab()

SEEDS = (0, 1, 2, 13, 15)


@cache
def crowded_runs():
    """60 000 block-normalised steps of length 0.02."""
    sets = [pt.settings.marked_tokens(10, 2, 14, 0.3, 3.0, seed) for seed in SEEDS]
    runs = pt.train(
        [*map(pt.settings.joint_setting, sets)],
        pt.optimisers.block_normalised(0.02),
        steps=60_000,
        recorder=pt.training.At(()),
    )
    return dict(zip(SEEDS, runs, strict=True))


# Correlation of W with W_mm and with the offset program, and the digits that were printed.
GLOBAL = {0: (0.99544, 5e-6, 0.9999998, 5e-8), 2: (0.97105, 5e-6, 0.99999996, 5e-9)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", GLOBAL)
def test_block_normalised_descent_solves_the_offset_program(seed):
    run, (wide, wide_digits, near, near_digits) = crowded_runs()[seed], GLOBAL[seed]
    limit, found = pt.theory.detect_limit(run), pt.theory.joint_references(run.data)
    assert limit.kind == "global"
    assert 1 - joint_misalignments(run, found.attention.weight)[-1] == pytest.approx(wide, abs=1.1 * wide_digits)
    assert 1 - limit.offset == pytest.approx(near, abs=1.1 * near_digits)


# Decoder margins of the reached and of the optimal selection, correlations of u and W with the programs of the reached one.
LOCAL = {
    1: (0.8079, 0.7688, 0.999996, 0.9999988),
    13: (0.9817, 0.9355, 0.999999, 0.9999998),
    15: (None, None, 0.999999, 0.9999996),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", LOCAL)
def test_another_token_may_have_the_larger_decoder_margin(seed):
    run, (reached, optimal, decoder, attention) = crowded_runs()[seed], LOCAL[seed]
    limit, best = pt.theory.detect_limit(run), pt.theory.joint_references(run.data).decoder.margin
    assert limit.kind == "local"
    if reached is None:
        assert limit.references.decoder.margin < best
    else:
        assert limit.references.decoder.margin == pytest.approx(reached, abs=5.5e-5)
        assert best == pytest.approx(optimal, abs=5.5e-5)
    assert 1 - limit.decoder == pytest.approx(decoder, abs=5.5e-7)
    assert 1 - limit.offset == pytest.approx(attention, abs=5.5e-8)


@pytest.mark.slow
def test_eq_13_leaves_the_maximum_margin():
    data = pt.settings.marked_tokens(10, 2, 14, 0.3, 3.0, 2)
    run = pt.train(
        pt.settings.joint_setting(data),
        pt.optimisers.scheduled_descent(0.3),
        steps=60_000,
        recorder=pt.training.At((100, 1000, 10_000)),
    )
    found = 1 - joint_misalignments(run, pt.theory.joint_references(data).attention.weight)[1:]
    assert found == pytest.approx([0.926, 0.916, 0.888, 0.866], abs=5.5e-4)


@pytest.mark.slow
def test_losses_of_samples_and_the_decoder_gradient_keep_their_bounds():
    """Figure 3, Eq. (13): largest log ratio of two losses over ten seeds, smallest |grad_u log L| |u_mm| of the first."""
    runs = evidence.every_step(LAB, "figure")
    ratio = max(float(np.ptp(run.margins, axis=1).max()) for run in runs)
    assert ratio == pytest.approx(1.43, abs=5.5e-3)
    slope = float(np.exp(runs[0].log_slope_u).min()) * pt.theory.joint_references(runs[0].data).decoder.value
    assert slope == pytest.approx(0.53, abs=5.5e-3)
