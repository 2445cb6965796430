"""Norms: duality, the steepest step, and references that carry the norm they minimise."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.norms import L1, L2, Linf, Nuclear, SignProduct, Spectral
from penchant.references.linear_programs import polyhedral_margin, sign_product_margin
from penchant.references.norm_margin import nuclear_margin
from penchant.theory.judge import excess

NORMS = (L1(), L2(), Linf(), Nuclear(), Spectral(), SignProduct())
PULL = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])
TOKENS = pt.settings.signal_tokens(3, 3, 4, seed=0)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
def test_the_touching_weight_has_norm_1_and_reaches_the_dual_norm(norm):
    weight = norm.touching(PULL)
    assert norm.value(weight) == pytest.approx(1.0, rel=1e-9)
    assert np.vdot(weight, PULL) == pytest.approx(norm.dual(PULL), rel=1e-12)
    others = np.random.default_rng(0).standard_normal((50, *PULL.shape))
    assert all(np.vdot(one, PULL) <= norm.value(one) * norm.dual(PULL) * (1 + 1e-9) for one in others)


@pytest.mark.parametrize("norm", [L2(), Linf(), Spectral()], ids=lambda norm: norm.name)
def test_the_steepest_direction_is_the_touching_weight_times_the_dual_norm(norm):
    slope = jnp.asarray(PULL)
    size = norm.dual_norm(slope, jnp.log(jnp.linalg.norm(slope)))
    assert float(size) == pytest.approx(norm.dual(PULL), rel=1e-12)
    assert np.allclose(norm.direction(slope, size), norm.dual(PULL) * norm.touching(PULL), rtol=1e-12)


def test_spectral_descent_turns_every_singular_direction_alike():
    setting = pt.Setting(TOKENS, pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.optimisers.Descent(pt.optimisers.step_rules.Normalised(0.1), Spectral()), steps=1)
    sizes = np.linalg.svd(run.weight(), compute_uv=False)
    assert sizes[:2] == pytest.approx(0.1, rel=1e-9)  # two class means: the gradient has rank 2
    assert sizes[2:].max() < 1e-15  # and rounding is no direction


@pytest.mark.parametrize(
    ("solve", "norm"),
    [
        (pt.references.max_margin, L2()),
        (nuclear_margin, Nuclear()),
        (sign_product_margin, SignProduct()),
        (lambda data: polyhedral_margin(data, L1()), L1()),
        (lambda data: polyhedral_margin(data, Linf()), Linf()),
    ],
)
def test_a_reference_carries_the_norm_it_minimises(solve, norm):
    found = solve(TOKENS)
    assert found.measure == norm
    assert excess(TOKENS, found.weight, found) == pytest.approx(0.0, abs=1e-6)


def test_a_program_of_another_norm_is_refused():
    with pytest.raises(ArgumentError, match="L1\\(\\) or Linf\\(\\)"):
        polyhedral_margin(TOKENS, Nuclear())
