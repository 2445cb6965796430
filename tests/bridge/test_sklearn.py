"""scikit-learn's own conformance suite, and what the estimators select."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

import penchant as pt
from penchant.bridge.sklearn import MaxMarginClassifier, MinNormRegressor, QAlphaRegressor
from penchant.errors import ArgumentError
from penchant.references.logistic import logistic_limit
from penchant.settings.generators import sparse_regression

OPTIONAL = {"check_array_api_input", "check_regressor_data_not_an_array", "check_classifier_data_not_an_array"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make", [MinNormRegressor, QAlphaRegressor, MaxMarginClassifier], ids=lambda make: make.__name__
)
def test_the_conformance_suite_passes(make):
    results = check_estimator(make(), on_fail=None, on_skip=None)
    assert len(results) > 40
    bad = {result["check_name"]: str(result["exception"]) for result in results if result["status"] != "passed"}
    assert set(bad) <= OPTIONAL  # skipped where pandas or the array API are not installed
    assert not [result for result in results if result["status"] == "failed"]


def test_minimum_norm_is_linear_regression(rng):
    inputs, targets = rng.standard_normal((6, 15)), rng.standard_normal(6)
    model, peer = MinNormRegressor().fit(inputs, targets), LinearRegression().fit(inputs, targets)
    assert model.coef_ == pytest.approx(peer.coef_, abs=1e-10)
    assert model.intercept_ == pytest.approx(peer.intercept_, abs=1e-10)
    assert abs(model.bracket_.gap) <= 1e-10


def test_small_alpha_recovers_the_sparse_weight_and_large_alpha_the_least_norm():
    data, truth = sparse_regression()
    inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)
    sparse = QAlphaRegressor(1e-10, fit_intercept=False).fit(inputs, targets)
    assert sparse.coef_ == pytest.approx(truth, abs=1e-8)
    assert sparse.resolved_
    dense = QAlphaRegressor(1e3, fit_intercept=False).fit(inputs, targets)
    assert dense.coef_ == pytest.approx(MinNormRegressor(fit_intercept=False).fit(inputs, targets).coef_, abs=1e-9)
    with pytest.raises(ArgumentError, match="'alpha'"):
        QAlphaRegressor(0.0).fit(inputs, targets)


def test_data_that_cannot_be_separated_get_the_minimiser_of_the_logistic_loss_and_a_proof(rng):
    inputs = rng.standard_normal((40, 2))
    labels = (inputs[:, 0] + rng.standard_normal(40) > 0).astype(int)
    model = MaxMarginClassifier().fit(inputs, labels)
    peer = LogisticRegression(C=1e10, tol=1e-10, max_iter=1000).fit(inputs, labels)
    assert not model.separable_
    assert model.coef_ == pytest.approx(peer.coef_, abs=1e-4)
    signed = (2 * labels - 1)[:, None] * np.column_stack([inputs, np.ones(40)])
    assert np.linalg.norm(model.proof_ @ signed) <= 1e-9


def test_mixed_data_have_no_minimiser_but_a_line(rng):
    """Two contradictory samples along x and two that y separates: training ends on the line v + u log t, here (0, log t)."""
    inputs, labels = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [-2.0, 3.0]]), [1, -1, 1, 1]
    model = MaxMarginClassifier(fit_intercept=False).fit(inputs, labels)
    assert not model.separable_
    assert model.direction_ == pytest.approx([0.0, 1.0], abs=1e-12)
    assert model.coef_[0] == pytest.approx([0.0, 1.0], abs=1e-12)
    inputs[:2, 0] *= [1.0, 3.0]  # the finite part is then a minimiser of its own
    model = MaxMarginClassifier(fit_intercept=False).fit(inputs, labels)
    first = model.coef_[0, 0]
    assert 1 / (1 + np.exp(first)) == pytest.approx(3 / (1 + np.exp(-3 * first)), rel=1e-9)
    assert (np.array(labels) * (inputs @ model.coef_[0]))[2:].min() == pytest.approx(1.0, abs=1e-9)


def test_training_on_mixed_data_follows_the_line():
    data = pt.Classification([[1.0, 0.0], [3.0, 0.0], [1.0, 1.0], [-2.0, 3.0]], [1, -1, 1, 1])
    limit = logistic_limit(np.asarray(data.signed))
    run = pt.train(pt.Setting(data, pt.Direct(), pt.Logistic()), pt.gradient_descent(0.3), steps=50_000)
    assert run.weight()[0] == pytest.approx(limit.finite[0], abs=1e-3)
    early, late = (int(np.searchsorted(run.steps, count)) for count in (2_000, 50_000))
    growth = (run.weight(late) - run.weight(early))[1] / np.log(run.steps[late] / run.steps[early])
    assert growth == pytest.approx(limit.direction[1], abs=0.02)


@pytest.mark.parametrize("level", [1e4, 1e8])
def test_a_mean_far_above_the_spread_leaves_the_answer_alone(rng, level):
    inputs, targets = level + rng.standard_normal((10, 30)), rng.standard_normal(10)
    moved = inputs - level  # exact
    model, peer = MinNormRegressor().fit(inputs, targets), LinearRegression().fit(inputs, targets)
    assert model.coef_ == pytest.approx(peer.coef_, abs=1e-13)
    assert abs(model.bracket_.gap) < 1e-13
    found, plain = QAlphaRegressor(0.01).fit(inputs, targets), QAlphaRegressor(0.01).fit(moved, targets)
    assert found.coef_ == pytest.approx(plain.coef_, abs=1e-12)
    assert abs(found.bracket_.gap) < 1e-12
