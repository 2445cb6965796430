"""scikit-learn estimators for what training selects: fit once, without training, with a certificate.

Each one has `coef_`, `n_features_in_` and `bracket_`: proven bounds on the optimum, so that a fit can be trusted without its solver.
"""

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.datasets import load_digits
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from ..errors import ArgumentError, NotSeparableError
from ..references.euclidean_margin import max_margin
from ..references.interpolation import minimum_norm, minimum_potential
from ..references.logistic import logistic_limit
from ..settings.classification import Classification
from ..settings.potentials import q_alpha
from ..settings.regression import Regression


def _centre(values: np.ndarray) -> tuple[np.ndarray, Any]:
    """Values without their mean, and the mean.

    Twice: the first mean is rounded, and what that leaves in every row, small as it is against the mean, would count as a
    direction of its own once the mean is 1e4 times the spread.
    """
    mean = values.mean(axis=0)
    centred = values - mean
    left = centred.mean(axis=0)
    return centred - left, mean + left


class _LinearRegressor(RegressorMixin, BaseEstimator):
    """Prediction shared by the regressors."""

    fit_intercept: Any

    def predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return X @ self.coef_ + self.intercept_

    def _centred(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        if not self.fit_intercept:
            return X, np.asarray(y, float), np.zeros(X.shape[1]), 0.0
        (inputs, means), (targets, level) = _centre(X), _centre(np.asarray(y, float))
        return inputs, targets, means, float(level)

    def _finish(self, found: Any, means: np.ndarray, level: float) -> None:
        self.coef_, self.bracket_ = found.weight, found.bracket
        self.intercept_ = level - float(means @ found.weight)


class MinNormRegressor(_LinearRegressor):
    """The least-squares solution of least l2 norm: the limit of gradient descent from 0.

    >>> model = MinNormRegressor(fit_intercept=False).fit([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], [1.0, 0.0])
    >>> model.coef_.round(6).tolist()
    [0.666667, 0.333333, -0.333333]
    """

    def __init__(self, fit_intercept: Any = True):
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> "MinNormRegressor":
        inputs, targets, means, level = self._centred(X, y)
        if not inputs.any():  # constant columns say nothing beyond the intercept
            inputs = np.vstack([inputs, np.ones(inputs.shape[1])])
            targets = np.append(targets, 0.0)
        self._finish(minimum_norm(Regression(inputs, targets)), means, level)
        return self


class QAlphaRegressor(_LinearRegressor):
    r"""The interpolant of least $Q_\alpha$: the limit of gradient flow on $w_+^2 - w_-^2$ from $w_\pm = \alpha$.

    Small `alpha` gives sparse coefficients, large `alpha` the least l2 norm. Targets that no weight interpolates are replaced by
    their least-squares fit. `resolved_` is False if `alpha` is below what float64 resolves.

    >>> model = QAlphaRegressor(alpha=1e-8, fit_intercept=False).fit([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [2.0, 1.0])
    >>> model.coef_.round(6).tolist()
    [0.0, 1.0, 0.0]
    """

    def __init__(self, alpha: Any = 1e-3, fit_intercept: Any = True):
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> "QAlphaRegressor":
        if not (isinstance(self.alpha, Real) and 0 < float(self.alpha) < np.inf):
            raise ArgumentError("alpha", "QAlphaRegressor", "positive and finite", self.alpha)
        inputs, targets, means, level = self._centred(X, y)
        if not inputs.any():
            inputs = np.vstack([inputs, np.ones(inputs.shape[1])])
            targets = np.append(targets, 0.0)
        data = Regression(inputs, targets)
        data = data if data.consistent else Regression(inputs, np.asarray(data.fitted))
        found = minimum_potential(data, q_alpha(float(self.alpha), inputs.shape[1]))
        self._finish(found, means, level)
        self.resolved_ = found.resolved
        return self


class MaxMarginClassifier(ClassifierMixin, BaseEstimator):
    """What gradient descent on the logistic loss selects, for two classes: on separable data the maximum margin.

    With `fit_intercept` a constant column is added, so the intercept counts in the norm, as it does in training. On data that no
    hyperplane separates `separable_` is False, `margin_` is 0 and `proof_` holds the convex combination of inputs that proves it
    (`not_separable="raise"` makes that an error). Training then converges to the minimiser of the logistic loss, if there is one.
    Where some samples can be separated without hurting the others there is none: training goes on as v + u log t, `direction_` is
    u (otherwise None), and the coefficients are the first point of that line at which all those samples have margin 1.

    >>> model = MaxMarginClassifier(fit_intercept=False).fit([[2.0, 0.0], [0.0, 1.0], [-2.0, 0.0]], ["b", "b", "a"])
    >>> model.coef_.round(6).tolist(), model.predict([[-1.0, 0.2]]).tolist()
    ([[0.5, 1.0]], ['a'])
    """

    def __init__(self, fit_intercept: Any = True, not_separable: Any = "minimise"):
        self.fit_intercept = fit_intercept
        self.not_separable = not_separable

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> "MaxMarginClassifier":
        X, y = validate_data(self, X, y, dtype=np.float64)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_ = np.unique(y)
        if len(self.classes_) != 2:
            raise ValueError("Classifier can't train when only one class is present.")
        inputs = np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X
        weight = self._select(inputs, np.where(y == self.classes_[1], 1.0, -1.0))
        d = X.shape[1]
        self.coef_ = weight[None, :d]
        self.intercept_ = weight[d:] if self.fit_intercept else np.zeros(1)
        return self

    def _select(self, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        if self.not_separable not in ("minimise", "raise"):
            raise ArgumentError(
                "not_separable", "MaxMarginClassifier", "'minimise' or 'raise'", repr(self.not_separable)
            )
        try:
            found = max_margin(Classification(inputs, labels))
        except NotSeparableError as error:
            if self.not_separable == "raise":
                raise
            self.separable_, self.margin_, self.proof_, self.bracket_ = False, 0.0, error.weights, None
            limit = logistic_limit(labels[:, None] * inputs)
            self.direction_ = limit.direction if limit.separated.any() else None
            return limit.reached(labels[:, None] * inputs)
        self.separable_, self.margin_, self.proof_, self.bracket_ = True, found.margin, None, found.bracket
        self.direction_ = None
        return found.weight

    def decision_function(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return X @ self.coef_[0] + self.intercept_[0]

    def predict(self, X: Any) -> np.ndarray:
        score = self.decision_function(X)
        return self.classes_[(score > 0).astype(int)]


def digit_images() -> tuple[np.ndarray, np.ndarray]:
    """The 1797 handwritten digits that come with scikit-learn: images (8 x 8, entries 0 to 16) and labels."""
    found: Any = load_digits()
    return found.images, found.target
