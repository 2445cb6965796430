"""What the claims on joint training compute, against plain formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics import direction as diagnostics
from penchant.optimisers.base import block_normalised
from penchant.papers import new_lab
from penchant.papers.self_attention import joint_evidence as evidence
from penchant.papers.self_attention.joint import curvatures
from penchant.papers.self_attention.theorems import (
    decoder_support,
    long_optimal_tokens,
    near_orthogonal,
    short_joint_steps,
)
from penchant.settings.joint import marked_tokens
from penchant.training.events import Every

LAB = new_lab()


@pytest.mark.slow
def test_the_curvature_is_that_of_the_dense_hessian():
    data = marked_tokens(3, 2, 7, 0.5, seed=4)
    run = pt.train(pt.settings.joint_setting(data), block_normalised(0.2), steps=5, recorder=Every())

    def loss(both):
        u, W = both[:7], both[7:].reshape(7, 7)
        share = jax.nn.softmax(jnp.einsum("ntd,de,ne->nt", data.tokens, W, data.queries), axis=1)
        return jnp.mean(jnp.exp(-data.labels * (share * (data.tokens @ u)).sum(axis=1)))

    for record, found in zip((0, 5), curvatures(run, np.array([0, 5]))[0], strict=True):
        both = jnp.concatenate([jnp.asarray(run.named(record)["u"]), jnp.asarray(run.weight(record)).ravel()])
        dense = np.linalg.norm(np.asarray(jax.hessian(loss)(both)), 2) / float(loss(both))
        assert found == pytest.approx(dense, rel=1e-10)


def test_the_watched_data_meet_every_condition_and_those_of_the_figure_do_not():
    data, length = evidence.watched(LAB, "inside")
    for one, found in zip(data, evidence.watched_references(LAB, "inside"), strict=True):
        checks = (
            long_optimal_tokens(one),
            near_orthogonal(one),
            short_joint_steps(length, one),
            decoder_support(found),
        )
        assert all(check.holds for check in checks)
    assert evidence.circumstances(LAB, "inside").endswith("C3 holds, C4 holds")
    assert evidence.circumstances(LAB, "figure").count("is missed by a factor") == 2


@pytest.mark.slow
def test_a_million_steps_of_the_scheduled_rule():
    data = pt.settings.marked_tokens()
    found = pt.theory.joint_references(data)
    decades = tuple(10**k for k in range(2, 7))
    run = pt.train(
        pt.settings.joint_setting(data),
        pt.optimisers.scheduled_descent(0.3),
        steps=decades[-1],
        recorder=pt.training.At(decades),
    )
    at = np.searchsorted(run.steps, decades)
    distance = diagnostics.joint_misalignments(run, found.attention.weight)[at]
    np.testing.assert_allclose(distance, [2.94e-2, 1.21e-2, 6.48e-3, 4.00e-3, 2.72e-3], rtol=3e-3)
    slope = np.diff(run.log_excess[at]) / np.diff(np.cbrt(run.steps[at])) * found.decoder.value / 0.9
    np.testing.assert_allclose(slope, [-1.0094, -1.0017, -1.0003, -1.00004], atol=5.5e-5)
    np.testing.assert_allclose(
        diagnostics.decoder_margins(run)[at] * found.decoder.value, [0.952, 0.984, 0.994, 0.997, 0.999], atol=5.5e-4
    )
    assert np.log(distance[-1] / distance[-3]) / np.log(6 / 4) == pytest.approx(-2.14, abs=0.006)
