"""Problems with known answers and independent computations, shared by the tests. Plain numpy and mpmath: nothing here calls the code under test."""

from itertools import product

import mpmath
import numpy as np
import scipy.special


def token_features(tokens, queries, optimal):
    """Z = (x_opt - x) q', one row per pair, flattened; the order of samples, then of the other tokens."""
    rows = []
    for sequence, query, best in zip(tokens, queries, optimal, strict=True):
        rows += [np.outer(sequence[best] - token, query).ravel() for k, token in enumerate(sequence) if k != best]
    return np.array(rows)


def features(data):
    """The margin features of any data, one row per margin, from their arrays alone."""
    if hasattr(data, "signed"):
        return np.asarray(data.signed)
    return token_features(np.asarray(data.tokens), np.asarray(data.queries), np.asarray(data.optimal))


def losses(name):
    """l, l' of a loss by name, in plain float64."""
    return {
        "Exponential": (lambda z: np.exp(-z), lambda z: -np.exp(-z)),
        "Logistic": (lambda z: np.logaddexp(0, -z), lambda z: -scipy.special.expit(-z)),
        "Correlation": (lambda z: -z, lambda z: -np.ones_like(z)),
    }[name]


def attention_loss(data, weight, loss):
    """(L, grad L) of one attention layer, summed over samples, in plain float64."""
    value, slope = losses(loss)
    tokens, queries, scores = (np.asarray(a) for a in (data.tokens, data.queries, data.scores))
    total, gradient = 0.0, np.zeros_like(weight)
    for x, q, g in zip(tokens, queries, scores, strict=True):
        s = scipy.special.softmax(x @ weight @ q)
        z = s @ g
        total += value(z)
        gradient += slope(z) * np.outer(x.T @ (s * (g - z)), q)
    return total, gradient


def classification_loss(data, weight, loss):
    """(L, grad L) of linear classification, summed over samples, in plain float64."""
    value, slope = losses(loss)
    signed = np.asarray(data.signed)
    margins = signed @ weight
    return value(margins).sum(), slope(margins) @ signed


def loss_and_gradient(data, weight, loss):
    return (classification_loss if hasattr(data, "signed") else attention_loss)(data, weight, loss)


def infimum(data, loss):
    """The infimum of the summed loss: attention on the best tokens, or infinite margins."""
    return 0.0 if hasattr(data, "signed") else float(losses(loss)[0](np.asarray(data.scores).max(axis=1)).sum())


def exact_descent(data, margins, loss="Exponential", digits=60):
    """(log excess, minus the margin derivatives of the summed loss over their largest size), with many digits."""
    with mpmath.workdps(digits):
        exp, log, log1p, expm1 = mpmath.exp, mpmath.log, mpmath.log1p, mpmath.expm1
        gap = {  # l(best - deficit) - l(best)
            "Exponential": lambda best, deficit: exp(-best) * expm1(deficit),
            "Logistic": lambda best, deficit: log1p(expm1(deficit) / (1 + exp(best))),
            "Correlation": lambda best, deficit: deficit,
        }[loss]
        slope = {
            "Exponential": lambda z: exp(-z),
            "Logistic": lambda z: 1 / (1 + exp(z)),
            "Correlation": lambda z: mpmath.mpf(1),
        }[loss]
        scores, optimal, others = (np.asarray(a) for a in (data.scores, data.optimal, data.others))
        excess, derivatives = mpmath.mpf(0), []
        for i, row in enumerate(np.asarray(margins).reshape(others.shape)):
            parts = [exp(-mpmath.mpf(float(m))) for m in row]
            whole = 1 + mpmath.fsum(parts)
            best = mpmath.mpf(float(scores[i, optimal[i]]))
            gaps = [best - mpmath.mpf(float(scores[i, k])) for k in others[i]]
            deficit = mpmath.fsum(p * g for p, g in zip(parts, gaps, strict=True)) / whole
            z = best - deficit
            excess += gap(best, deficit)
            derivatives += [slope(z) * p / whole * (g - deficit) for p, g in zip(parts, gaps, strict=True)]
        largest = max(abs(d) for d in derivatives)
        return float(log(excess)), np.array([float(d / largest) for d in derivatives])


def sharp_constant(data, dual, loss="Exponential", frozen=0.0):
    """The limit of |W|^2 (1 - corr) when every pair is a support pair; `frozen` = |W_0 outside the span|^2."""
    z = features(data)
    gram = z @ z.T
    lam = dual * (dual.sum() / (dual @ gram @ dual))
    best = np.asarray(data.scores).max(axis=1)
    log_slope = {"Exponential": -best, "Logistic": -np.logaddexp(0, best), "Correlation": np.zeros_like(best)}[loss]
    deficits = (best[:, None] - np.take_along_axis(np.asarray(data.scores), np.asarray(data.others), axis=1)).ravel()
    beta = np.repeat(log_slope, np.asarray(data.others).shape[1]) + np.log(deficits) - np.log(lam)
    a = np.linalg.solve(gram, beta - lam @ beta / lam.sum())
    return 0.5 * a @ gram @ a + 0.5 * frozen


def every_selection(n, length):
    return list(product(range(length), repeat=n))


def layer_square(name, difference, covariance):
    """The squared norm of a difference of attention layers in a geometry: tr of each block times itself, weighed by the covariance where the geometry divides by it."""
    value, key_query, sigma = (np.asarray(one) for one in (difference.value, difference.key_query, covariance))
    if name == "euclidean":
        return np.sum(value**2) + np.sum(key_query**2)
    if name == "left":
        return np.sum(value**2) + np.trace(key_query @ sigma @ key_query.T)
    return np.trace(value @ sigma @ value.T) + np.trace(sigma @ key_query @ sigma @ key_query.T)
