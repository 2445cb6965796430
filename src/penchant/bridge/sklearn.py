"""scikit-learn estimators for what training selects: fit once, without training, with a certificate.

Each one has `coef_`, `n_features_in_` and `bracket_`: proven bounds on the optimum, so that a fit can be trusted without its solver.
"""

from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.datasets import load_digits
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from ..errors import ArgumentError, NotSeparableError
from ..references.base import Interpolant, Solution
from ..references.euclidean_margin import max_margin
from ..references.interpolation import minimum_norm, minimum_potential
from ..references.logistic import logistic_limit
from ..settings.classification import Classification
from ..settings.potentials import q_alpha
from ..settings.regression import Regression


def _centre(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values without their mean, and the mean.

    Twice: the first mean is rounded, and what that leaves in every row, small as it is against the mean, would count as a
    direction of its own once the mean is 1e4 times the spread.
    """
    mean = values.mean(axis=0)
    centred = values - mean
    left = centred.mean(axis=0)
    return centred - left, np.asarray(mean + left)


def _validated(model: BaseEstimator, *arrays: object, **options: bool) -> tuple[np.ndarray, ...]:
    """What scikit-learn makes of arrays, and remembers or compares with what was fitted."""
    found = validate_data(model, *arrays, dtype=np.float64, **options)  # pyright: ignore[reportArgumentType]
    return (found,) if len(arrays) == 1 else found  # pyright: ignore[reportReturnType]


class _LinearRegressor(RegressorMixin, BaseEstimator):
    """Prediction shared by the regressors."""

    fit_intercept: object

    def predict(self, X: object) -> np.ndarray:
        check_is_fitted(self)
        (inputs,) = _validated(self, X, reset=False)
        return inputs @ self.coef_ + self.intercept_

    def _centred(self, X: object, y: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        inputs, targets = _validated(self, X, y, y_numeric=True)
        targets, means, level = np.asarray(targets, float), np.zeros(inputs.shape[1]), 0.0
        if self.fit_intercept:
            (inputs, means), (targets, level) = _centre(inputs), _centre(targets)
        if not inputs.any():  # constant columns say nothing beyond the intercept
            inputs, targets = np.vstack([inputs, np.ones(inputs.shape[1])]), np.append(targets, 0.0)
        return inputs, targets, means, float(level)

    def _finish(self, found: Solution | Interpolant, means: np.ndarray, level: float) -> None:
        self.coef_, self.bracket_ = found.weight, found.bracket
        self.intercept_ = level - float(means @ found.weight)


class MinNormRegressor(_LinearRegressor):
    """The least-squares solution of least l2 norm: the limit of gradient descent from 0.

    >>> model = MinNormRegressor(fit_intercept=False).fit([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], [1.0, 0.0])
    >>> model.coef_.round(6).tolist()
    [0.666667, 0.333333, -0.333333]
    """

    def __init__(self, fit_intercept: object = True):
        self.fit_intercept = fit_intercept

    def fit(self, X: object, y: object) -> "MinNormRegressor":
        inputs, targets, means, level = self._centred(X, y)
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

    def __init__(self, alpha: object = 1e-3, fit_intercept: object = True):
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def fit(self, X: object, y: object) -> "QAlphaRegressor":
        if not (isinstance(self.alpha, Real) and 0 < float(self.alpha) < np.inf):
            raise ArgumentError("alpha", "QAlphaRegressor", "positive and finite", self.alpha)
        inputs, targets, means, level = self._centred(X, y)
        data = Regression(inputs, targets)
        data = data if data.consistent else Regression(inputs, np.asarray(data.fitted))
        found = minimum_potential(data, q_alpha(float(self.alpha), inputs.shape[1]))
        self._finish(found, means, level)
        self.resolved_ = found.resolved
        return self


class MaxMarginClassifier(ClassifierMixin, BaseEstimator):
    """What gradient descent on the logistic loss selects, for two classes: on separable data the maximum margin.

    With `fit_intercept` a constant column is added, so the intercept counts in the norm, as it does in training. On data that no
    hyperplane separates `separable_` is False, `margin_` is 0 and `proof_` holds the convex combination of inputs that proves it.
    Training then converges to the minimiser of the logistic loss, if there is one.
    Where some samples can be separated without hurting the others there is none: training goes on as v + u log t, `direction_` is
    u (otherwise None), and the coefficients are the first point of that line at which all those samples have margin 1.

    >>> model = MaxMarginClassifier(fit_intercept=False).fit([[2.0, 0.0], [0.0, 1.0], [-2.0, 0.0]], ["b", "b", "a"])
    >>> model.coef_.round(6).tolist(), model.predict([[-1.0, 0.2]]).tolist()
    ([[0.5, 1.0]], ['a'])
    """

    def __init__(self, fit_intercept: object = True):
        self.fit_intercept = fit_intercept

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: object, y: object) -> "MaxMarginClassifier":
        inputs, labels = _validated(self, X, y)
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_ = np.unique(labels)
        if len(self.classes_) != 2:
            raise ValueError("Classifier can't train when only one class is present.")
        d = inputs.shape[1]
        inputs = np.column_stack([inputs, np.ones(len(inputs))]) if self.fit_intercept else inputs
        weight = self._select(inputs, np.where(labels == self.classes_[1], 1.0, -1.0))
        self.coef_ = weight[None, :d]
        self.intercept_ = weight[d:] if self.fit_intercept else np.zeros(1)
        return self

    def _select(self, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        try:
            found = max_margin(Classification(inputs, labels))
        except NotSeparableError as error:
            self.separable_, self.margin_, self.proof_, self.bracket_ = False, 0.0, error.weights, None
            limit = logistic_limit(labels[:, None] * inputs)
            self.direction_ = limit.direction if limit.separated.any() else None
            return limit.reached(labels[:, None] * inputs)
        self.separable_, self.margin_, self.proof_, self.bracket_ = True, found.margin, None, found.bracket
        self.direction_ = None
        return found.weight

    def decision_function(self, X: object) -> np.ndarray:
        check_is_fitted(self)
        (inputs,) = _validated(self, X, reset=False)
        return inputs @ self.coef_[0] + self.intercept_[0]

    def predict(self, X: object) -> np.ndarray:
        score = self.decision_function(X)
        return self.classes_[(score > 0).astype(int)]


def digit_images() -> tuple[np.ndarray, np.ndarray]:
    """The 1797 handwritten digits that come with scikit-learn: images (8 x 8, entries 0 to 16) and labels."""
    pixels, labels = load_digits(return_X_y=True)
    return np.asarray(pixels).reshape(-1, 8, 8), np.asarray(labels)
