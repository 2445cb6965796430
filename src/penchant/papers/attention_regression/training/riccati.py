r"""The two-sided regularised flow of attention regression in closed form, at any time and far below rounding.

$\dot W = 2JW - WW^\top W$ is a matrix Riccati equation for $WW^\top$. In the eigenbasis of $J$, with the start's coordinates $a$ along $+s$, $b$ along
$-s$ and $c$ in the kernel, its deviation from the limit is $\tau\,\Xi$ with $\tau = e^{-2s_dt}$ and a $\Xi$ that is formed without cancellation, so
the logarithm of the excess is known where the excess itself is $e^{-782189}$.
"""

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array

from ....errors import ArgumentError
from ..setting.geometry import eigenbasis
from ..setting.problem import AttentionRegression

_SPAN = 8 * np.finfo(float).eps  # kernel coordinates below this share of the start are rounding of a start without any


class RiccatiFlow(eqx.Module):
    """The flow from one start W_0.

    `overlap` is the smallest singular value of a = E'W_0: where it is 0 the flow ends at a saddle, and there is no flow to build.

    >>> from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
    >>> problem = prescribed_spectrum(3, (0.05, 0.02))
    >>> start = 0.1 * np.random.default_rng(0).standard_normal((5, 2))
    >>> flow = RiccatiFlow(problem, start)
    >>> [f"{value:.6f}" for value in flow.log_excess([0.0, 1e3, 1e7])]
    ['-5.896001', '-90.717071', '-800010.717071']
    """

    problem: AttentionRegression
    sizes: np.ndarray
    plus: np.ndarray
    minus: np.ndarray
    kernel: np.ndarray
    inverse: np.ndarray
    b: np.ndarray
    c: np.ndarray
    overlap: float

    def __init__(self, problem: AttentionRegression, start: Array | np.ndarray):
        start = np.asarray(start, float)
        rows, d = problem.outputs + problem.inputs, problem.inputs
        if start.shape != (rows, d) or not np.isfinite(start).all():
            raise ArgumentError("start", "RiccatiFlow", f"finite and of shape {(rows, d)}", f"shape {start.shape}")
        if problem.rank < d:
            raise ArgumentError(
                "problem", "RiccatiFlow", "of full column rank (A2)", f"rank {problem.rank} for d = {d}"
            )
        basis = eigenbasis(problem)
        a, b, c = basis.plus.T @ start, basis.minus.T @ start, basis.kernel.T @ start
        strengths = np.linalg.svd(a, compute_uv=False)
        if not strengths[-1] > np.finfo(float).eps * np.linalg.norm(start):
            weakest = np.linalg.svd(a)[0][:, -1].round(3).tolist()
            raise ArgumentError(
                "start",
                "RiccatiFlow",
                "one with det(E'W_0) != 0: otherwise the flow ends at a saddle",
                f"no overlap with the combination {weakest} of the modes",
            )
        if np.linalg.norm(c) <= _SPAN * np.linalg.norm(start):
            c = np.zeros_like(c)
        self.problem, self.sizes = problem, np.asarray(problem.sizes)
        self.plus, self.minus, self.kernel = basis.plus, basis.minus, basis.kernel
        self.inverse, self.b, self.c = np.linalg.inv(a), b, c
        self.overlap = float(strengths[-1])

    @property
    def exponent(self) -> float:
        """The tail is log(excess) = -exponent * t + O(log t): 4 s_d, or 8 s_d for a start without kernel part."""
        return float((4 if np.any(self.c) else 8) * self.sizes[-1])

    def _parts(self, time: float) -> tuple[np.ndarray, np.ndarray, float]:
        """X_0, X_1, log tau with W W' - W* W*' = tau X_0 + tau^2 X_1, tau = exp(-2 s_d t)."""
        if not 0 <= time < np.inf:
            raise ArgumentError("times", "RiccatiFlow", "nonnegative and finite", time)
        sizes, low = self.sizes, self.sizes[-1]
        fade = np.exp(-2 * (sizes - low) * time)
        tau = np.exp(-2 * low * time)
        shrunk = -np.expm1(-4 * sizes * time) / (4 * sizes)
        middle = self.b.T @ (shrunk[:, None] * self.b) + time * self.c.T @ self.c
        scaled = self.inverse * fade
        delta = scaled.T @ (np.eye(len(sizes)) + 2 * middle) @ scaled - np.diag(fade**2 / (2 * sizes))
        core = np.linalg.inv(np.diag(1 / (2 * sizes)) + tau**2 * delta)
        ahead = self.kernel @ (self.c @ scaled)
        behind = self.minus @ (fade[:, None] * (self.b @ scaled))
        first = ahead @ core @ self.plus.T
        second = behind @ core @ self.plus.T
        both = ahead + tau * behind
        rest = self.plus @ (-2 * sizes[:, None] * (delta @ core)) @ self.plus.T + second + second.T
        return first + first.T, rest + both @ core @ both.T, float(-2 * low * time)

    def product(self, time: float) -> np.ndarray:
        """W W' at a time; it determines W up to a rotation of its columns."""
        first, rest, log_tau = self._parts(time)
        tau = np.exp(log_tau)
        limit = self.plus @ (2 * self.sizes[:, None] * self.plus.T)
        return limit + tau * first + tau**2 * rest

    def log_excess(self, times: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """log(L - L*) at each time, in logarithms throughout."""
        m = self.problem.outputs
        found = []
        for time in np.atleast_1d(np.asarray(times, float)):
            first, rest, log_tau = self._parts(float(time))
            first, rest = first[:m, m:], rest[:m, m:]
            if np.any(first):
                found.append(2 * log_tau + _log_square(first + np.exp(log_tau) * rest))
            else:
                found.append(4 * log_tau + _log_square(rest))
        return np.array(found)


def _log_square(matrix: np.ndarray) -> float:
    """log |X|_F^2, without squaring what is small."""
    top = np.abs(matrix).max()
    return float(2 * np.log(top) + np.log(np.sum((matrix / top) ** 2))) if top > 0 else -np.inf
