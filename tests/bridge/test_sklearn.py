"""scikit-learn's own conformance suite, and what the estimators select."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from penchant.bridge.sklearn import MaxMarginClassifier, MinNormRegressor, QAlphaRegressor
from penchant.errors import ArgumentError, NotSeparableError
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
    with pytest.raises(NotSeparableError):
        MaxMarginClassifier(not_separable="raise").fit(inputs, labels)
