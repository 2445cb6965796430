"""What the statements on noise assume, with slack: stability, separate processes, small steps under label noise."""

from typing import Any

import numpy as np

from ...diagnostics.relaxation import commutator
from ...errors import ArgumentError
from ...settings.check import symmetric_matrix
from ...settings.regression import Regression
from ...theory.base import Hypothesis
from ...training.noise import check_noise

_COMMUTING = 1e-12
_SMALL = 0.2  # share of the noise that the residuals it keeps alive may have


def noise_hypotheses(hessian: Any, noise: Any, step: float) -> tuple[Hypothesis, ...]:
    """Of noisy descent on a quadratic: `stable`, and `commuting`, without which eigendirections are not separate processes."""
    top = float(np.linalg.eigvalsh(symmetric_matrix(hessian, "hessian", "noise_hypotheses"))[-1])
    if not 0 < step < np.inf:
        raise ArgumentError("step", "noise_hypotheses", "positive and finite", step)
    apart, load = commutator(hessian, noise), float(step) * top
    return (
        Hypothesis("stable", load < 2, 2 - load, "", "2 minus step * largest curvature"),
        Hypothesis(
            "commuting",
            apart <= _COMMUTING,
            _COMMUTING - apart,
            "",
            "1e-12 minus |A Sigma - Sigma A| / (|A| |Sigma|); where it fails eigendirections are correlated",
        ),
    )


def label_noise_hypotheses(
    data: Regression, params: Any, *, step: float, deviation: float, batch: int | None = 1
) -> tuple[Hypothesis, ...]:
    """Of label noise at w+, w- (or beta): `stable`, and `small_residuals`, which the leading order needs and second moments correct for.

    epsilon = step / (2 batch) * mean |gradient of a prediction|^2 is the mean square of the residuals that the noise keeps
    alive, over that of the noise.
    """
    first, _ = check_noise(data, params, step, deviation, 0, batch, "label_noise_hypotheses")
    if first.ndim != 2:
        raise ArgumentError("params", "label_noise_hypotheses", "one point", f"shape {first.shape}")
    inputs, n = np.asarray(data.inputs), len(data.targets)
    features = 2 * inputs * np.sqrt((first**2).sum(axis=0))
    load = float(step) * float(np.linalg.norm(features, 2) ** 2) / n
    share = float(step) / (2 * (n if batch is None else batch)) * float((features**2).sum(axis=1).mean())
    return (
        Hypothesis("stable", load < 2, 2 - load, "", "2 minus step * largest curvature of the mean loss on its zeros"),
        Hypothesis(
            "small_residuals",
            share < _SMALL,
            _SMALL - share,
            f"epsilon = {share:.3g}",
            "0.2 minus the mean square of the residuals kept alive over that of the noise",
        ),
    )
