"""The pages on interpolation show the numbers that are known: where each rule ends, and how lazy large starts are."""

import numpy as np
import pytest

from penchant.papers import new_lab
from penchant.papers.notes.figures import max_margin
from penchant.papers.notes.figures.sparse_recovery import flow_errors, lasso_errors, path_of_minimisers
from penchant.papers.notes.q_alpha import kernel_deviation, noisy_targets
from penchant.references.interpolation import minimum_norm
from penchant.settings.generators import sparse_regression


def test_single_samples_end_at_the_projection_of_their_start(rng):
    data, _ = sparse_regression(6, 12, 2, 1)
    start = rng.standard_normal(12)
    target = minimum_norm(data, start).weight
    assert np.abs(max_margin.single_samples(data, start, 0) - target).max() < 1e-12
    assert np.abs(minimum_norm(data).weight - target).max() > 0.1


@pytest.mark.parametrize(("alpha", "deviation"), [(1.0, 1.8e-3), (10.0, 1.8e-7)])
def test_large_starts_follow_their_tangent_kernel(alpha, deviation):
    assert kernel_deviation(sparse_regression()[0], alpha)[1] == pytest.approx(deviation, rel=0.03)


@pytest.mark.slow
def test_the_table_of_ends_has_the_known_numbers():
    table, runs = max_margin.ends(new_lab())
    rows = {row[0]: [cell.value for cell in row[2:6]] for row in table.rows}
    assert rows["Adam from 0"] == pytest.approx([0.269, 0.45, 0.269, 1.096], rel=2e-3)
    for name in ("gradient descent", "heavy ball", "single-sample SGD"):
        assert rows[f"{name} from a random start"][3] == pytest.approx(9.3047, abs=5e-5)
        assert rows[f"{name} from 0"][0] < 1e-13
    assert [row[0] for row in table.rows if row[6] == "refuted"] == ["Adam from 0", "Adam from a random start"]
    assert len(runs) == 8


def test_stopping_early_pays_on_noisy_targets():
    """One draw of the map: the best time lies inside, and there is less error than the flow or the lasso have later."""
    data, truth = noisy_targets(80, 100, 5, 0.5, 0)
    times, errors = flow_errors(data, truth, 1e-3)
    best = int(errors.argmin())
    assert 5 < best < len(times) - 5
    assert errors[best] < 0.1 * errors[-1]
    penalties, lasso = lasso_errors(data, truth)
    assert errors[best] < lasso.min() < lasso[-1]
    assert times[best] * penalties[int(lasso.argmin())] == pytest.approx(np.log(1e6) / 4, rel=1.0)


@pytest.mark.slow
def test_the_path_of_q_alpha_shows_all_eight_starts():
    _, norms = path_of_minimisers(new_lab())
    assert [row[0].value for row in norms.rows] == pytest.approx([1e3, 1, 0.1, 0.01, 1e-3, 1e-4, 1e-6, 1e-8])
    assert norms.rows[2][1].value == pytest.approx(7.1254335601, abs=1e-9)
