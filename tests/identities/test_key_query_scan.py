"""The key-query scans number by number: slow data, finite limits, the gradient read as a solution, narrow heads."""

import numpy as np
import pytest

import penchant as pt
from penchant.papers import new_lab
from penchant.papers.key_query.evidence import diagonal_run, flow_to, matrix_run
from penchant.references.bracket import adjoint
from penchant.theory.judge import excess

LAB = new_lab()


def apart(run, record, target):
    return np.linalg.norm(run.weight(record) / run.smallest_margin()[record] - target) / np.linalg.norm(target)


@pytest.mark.slow
def test_the_slowest_data_of_the_diagonal_scan():
    run, reference = diagonal_run(LAB, 7, 0.1)
    assert reference.value == pytest.approx(1.747388, abs=5e-7)
    assert [round(apart(run, record, reference.weight), 2) for record in (1, -1)] == [0.69, 0.33]
    run, reference = diagonal_run(LAB, 7, 0.01)
    assert round(apart(run, -1, reference.weight), 2) == 0.77


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "size", "digit", "above"), [(9, 7.5, 0.1, 0.126), (15, 0.64, 0.01, 0.200), (21, 4.0, 0.1, 0.163)]
)
def test_finite_limits_where_no_diagonal_separates(seed, size, digit, above):
    data = pt.settings.DiagonalTokens(pt.settings.equal_score_tokens(4, 4, 5, seed))
    start = pt.Hadamard().one_sided(data, 0.1, np.random.default_rng(0))
    run = pt.train(pt.Setting(data, pt.Hadamard(), pt.Exponential()), pt.GradientFlow(), start, steps=5000)
    assert run.status.name == "settled"
    assert np.abs(run.weight()).sum() == pytest.approx(size, abs=0.55 * digit)
    assert np.exp(run.log_excess[-1]) == pytest.approx(above, abs=5.5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "printed"), [(0, (1.4e-2, 5.0e-4)), (1, (1.4e-2, 2.2e-4))])
def test_the_gradient_of_direct_training_read_as_a_solution(seed, printed):
    data = pt.settings.equal_score_tokens(3, 4, 5, seed)
    setting, reference = pt.Setting(data, pt.Direct(), pt.Exponential()), pt.references.max_margin(data)
    run = flow_to(setting, None, 1e4, (10.0, 1e2))
    found = [excess(data, np.asarray(adjoint(data, run.weights[k])), reference) for k in (1, 2, 3)]
    assert np.allclose(found[:2], printed, rtol=0.06)
    assert abs(found[2]) <= 1e-10  # at margin 1e4, where the accuracy of the margins ends
    assert excess(data, run.weight(), reference) > 1e-5  # the weight itself, at margin 1e4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "printed"), [(1, (0.2376, 0.2376, 0.2376)), (3, (0.3754, 0.4844, 0.3754)), (4, (0.0306, 0.0306, 0.1385))]
)
def test_where_heads_of_one_column_end(seed, printed):
    found = []
    for draw in range(3):
        run, reference = matrix_run(LAB, seed, 0.1, 1, draw)
        found.append(excess(run.setting.data, run.weight(), reference))
    assert np.allclose(found, printed, rtol=0, atol=1e-4)
