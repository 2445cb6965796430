"""The norm of sign products, its dual and its maximum margin, against linear programs over all sign products."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import penchant as pt
from penchant.errors import ArgumentError
from penchant.norms import SignProduct, largest_products
from penchant.references.bracket import margins
from penchant.references.linear_programs import sign_product_margin


def all_products(rows, columns):
    left = np.array(list(itertools.product([1.0, -1.0], repeat=rows)))[: 2 ** (rows - 1)]
    right = np.array(list(itertools.product([1.0, -1.0], repeat=columns)))
    return np.einsum("ka,lb->klab", left, right).reshape(-1, rows, columns)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (1, 3), (3, 1)])
def test_norm_and_dual_norm_over_all_sign_products(shape, rng):
    weight, products = rng.standard_normal(shape), all_products(*shape)
    flat = products.reshape(len(products), -1).T
    least = linprog(np.ones(len(products)), A_eq=flat, b_eq=weight.ravel(), method="highs").fun
    assert SignProduct().value(weight) == pytest.approx(least, rel=1e-8)
    assert SignProduct().value(1e-30 * weight) == pytest.approx(1e-30 * least, rel=1e-8)
    assert SignProduct().dual(weight) == pytest.approx(np.tensordot(products, weight, 2).max(), rel=1e-12)
    assert np.vdot(largest_products(weight)[0], weight) == pytest.approx(SignProduct().dual(weight), rel=1e-12)


def test_nothing_has_norm_zero():
    assert SignProduct().value(np.zeros((2, 2))) == 0.0


@pytest.mark.parametrize("seed", [0, 1])
def test_the_margin_program_over_all_sign_products(seed):
    data = pt.settings.equal_score_tokens(2, 3, 4, seed)
    found, products = sign_product_margin(data), all_products(4, 4)
    rows = np.stack([np.asarray(margins(data, one)) for one in products], axis=1)
    least = linprog(np.ones(len(products)), A_ub=-rows, b_ub=-np.ones(len(rows)), method="highs").fun
    assert found.value == pytest.approx(least, rel=1e-9)
    assert found.bracket.gap <= 1e-9
    assert np.asarray(margins(data, found.weight)).min() == pytest.approx(1.0, rel=1e-12)


def test_data_whose_signs_are_too_many_are_refused():
    with pytest.raises(ArgumentError, match="at most 8"):
        sign_product_margin(pt.settings.equal_score_tokens(3, 4, 9, 0))
