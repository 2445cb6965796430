"""The offset program against CVXPY, against its certificate, and against the maximum margin for equal offsets."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

from penchant.diagnostics.direction import misalignment
from penchant.errors import ArgumentError
from penchant.references.euclidean_margin import max_margin
from penchant.references.offset_margin import certify_offset, offset_margin
from penchant.settings.joint import marked_tokens
from penchant.settings.tokens import TokenSelection
from penchant.theory.joint import joint_references


@pytest.mark.parametrize("seed", range(4))
def test_a_cone_solver_finds_the_same_optimum(seed, rng):
    data = marked_tokens(6, 3, 9, 0.4, 2.0, seed=seed).attention()
    offsets = rng.uniform(0, 0.5, len(data.constrained()))
    found = offset_margin(data, offsets)
    features = np.stack([np.asarray(data.adjoint(jnp.asarray(unit))).ravel() for unit in np.eye(len(offsets))])
    weight = cp.Variable(features.shape[1])
    problem = cp.Problem(cp.Maximize(cp.min(features @ weight + offsets)), [cp.norm(weight) <= 1])
    problem.solve(solver=cp.CLARABEL)
    assert found.gap < 1e-12
    assert found.lower - 1e-8 <= problem.value <= found.upper + 1e-8


def test_equal_offsets_give_the_maximum_margin():
    data = marked_tokens(seed=1).attention()
    found, plain = offset_margin(data, np.full(10, 0.7)), max_margin(data)
    assert found.lower - 0.7 == pytest.approx(plain.margin, rel=1e-11)
    assert misalignment(found.weight, plain.weight) < 1e-20


def test_any_weight_and_any_multipliers_bracket_the_optimum(rng):
    data = marked_tokens(6, 3, 9, 0.4, 2.0, seed=0).attention()
    offsets = rng.uniform(0, 0.5, 12)
    best = offset_margin(data, offsets)
    for _ in range(20):
        rough = certify_offset(data, offsets, rng.standard_normal((9, 9)), rng.uniform(0, 1, 12))
        assert rough.lower <= best.upper
        assert rough.upper >= best.lower


def test_a_large_offset_takes_its_sample_out_of_the_program():
    data = marked_tokens(seed=2)
    offsets = np.zeros(10)
    offsets[3] = 100.0
    found = offset_margin(data.attention(), offsets)
    rest = max_margin(data.attention(samples=[k for k in range(10) if k != 3]))
    assert misalignment(found.weight, rest.weight) < 1e-18


def test_the_programs_agree_exactly_when_every_sample_supports_the_decoder():
    full = joint_references(marked_tokens(seed=4))
    assert full.all_support
    assert misalignment(full.support_only.weight, full.attention.weight) < 1e-20
    crowded = joint_references(marked_tokens(10, 2, 14, 0.3, 3.0, 2))
    assert not crowded.all_support
    assert misalignment(crowded.offset.weight, crowded.attention.weight) > 1e-2


def test_a_single_margin_has_its_own_direction(rng):
    """One margin: the optimum mu + |Z| is the upper end of the search, on whichever side of it rounding falls."""
    for _ in range(40):
        data = TokenSelection(rng.standard_normal((1, 2, 4)), scores=[[1.0, 0.0]])
        offset = rng.standard_normal(1)
        found, feature = offset_margin(data, offset), np.asarray(data.adjoint(jnp.ones(1)))
        assert found.lower == pytest.approx(offset[0] + np.linalg.norm(feature), rel=1e-13)
        assert misalignment(found.weight, feature) < 1e-25


def test_bad_offsets_are_named():
    with pytest.raises(ArgumentError, match="offsets"):
        offset_margin(marked_tokens().attention(), np.zeros(3))
