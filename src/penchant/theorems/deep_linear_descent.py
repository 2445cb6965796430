"""Claims of the deep linear paper on descent: the risk vanishes and the layers align (Theorems 3 and 4)."""

from functools import cache

import jax.numpy as jnp
import numpy as np

from ..diagnostics.alignment import alignment_floor, alignments
from ..diagnostics.rates import log_log_slope
from ..errors import quietly
from ..optimisers.layerwise import BallStep, ConstantStep, LayerDescent
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import DeepLinear
from ..settings.losses import Logistic
from ..training.recorders import Every, LogSpaced
from ..training.train import train
from ..training.trajectory import Trajectory
from ..verdict import Verdict, all_of, at_least, at_most
from .base import judge_direction
from .deep_linear import DeepLinearMaxMargin, sourced
from .deep_linear_problems import descent, mirrored, problem

_STEPS = 200_000  # of Assumption 5, whose steps are short


@cache
def proved_descent(depth: int) -> Trajectory:
    """Descent with the steps of Assumption 5 on the logistic risk; at depth 3 from a small start, whose layers need less growth to align."""
    setting, start = problem(depth, logistic=True, scale=0.4 if depth == 2 else 0.15)
    return train(setting, LayerDescent(BallStep(tight=depth > 2)), start, steps=_STEPS, recorder=LogSpaced(200))


@cache
def _mirrored_descent() -> Trajectory:
    """The same steps from w1 = -w2, which descent keeps to the last bit: above the risk of zero for ever."""
    start = mirrored()[1]
    setting = Setting(Classification([[1.0]], [1]), DeepLinear((3,)), Logistic())
    with quietly():
        return train(setting, LayerDescent(BallStep()), start, steps=_STEPS, recorder=LogSpaced(200))


def descent_risk(planted: bool) -> Verdict:
    """The risk falls as long as one follows it, about like the inverse of the sum of the steps, and so the layers grow."""
    checks = []
    for name, run in {"start w1 = -w2": _mirrored_descent()}.items() if planted else _proved().items():
        assert run.account is not None
        total, risk = np.exp(run.account["log_step_sum"][1:]), np.exp(run.log_excess[1:])
        slope = log_log_slope(total, risk, (total[-1] / 10, total[-1]))
        checks += [
            at_most(float(risk[-1]), 0.01, f"{name}: risk after {_STEPS} steps"),
            at_most(slope, -1.0, f"{name}: slope of log R in the log of the sum of the steps, last decade"),
            at_most(float(np.diff(run.log_excess).max()), 0.0, f"{name}: largest rise of log R"),
        ]
    return all_of(*checks)


def descent_aligns(planted: bool) -> Verdict:
    """Ratios, alignments and direction at the end; the twin looks at the start."""
    checks, record = [], 0 if planted else -1
    for name, run in _proved().items():
        found = alignments(run)
        prediction = DeepLinearMaxMargin().predict(run.setting, LayerDescent(BallStep()))
        checks += [
            at_most(float(found.deficit[record].max()), 0.05, f"{name}: largest 1 - spectral/Frobenius"),
            at_most(float(found.misfit[record].max()), 1e-2, f"{name}: largest 1 - |<v, u>|"),
            judge_direction(prediction, run.weight(record)),
        ]
    return all_of(*checks)


def _proved() -> dict[str, Trajectory]:
    return {f"depth {depth}": proved_descent(depth) for depth in (2, 3)}


@cache
def _crossed() -> Trajectory:
    """Two layers that have nothing in common and one long step, after which each has the other's direction: the traces are all that explains it."""
    setting, _ = problem(2, logistic=True)
    gradient = -np.asarray(setting.data.signed).mean(axis=0) / 2
    length = float(np.linalg.norm(gradient))
    first, last = np.zeros((8, 2)), np.zeros((1, 8))
    first[1], last[0, 0] = 0.1 * gradient / length, 0.05
    step = LayerDescent(ConstantStep(10.0 / length))
    return train(setting, step, (jnp.asarray(first), jnp.asarray(last)), steps=5, recorder=Every())


def alignment_bound(planted: bool, start: int = 1) -> Verdict:
    """The alignment part of Lemma 8 at every step, whatever its length; the twin halves the traces."""
    checks, share = [], 0.5 if planted else 1.0
    runs = {"eta <= 1": descent(capped=True, seed=start), "line search": descent(seed=start), "long steps": _crossed()}
    for name, run in runs.items():
        assert run.account is not None
        found, first = alignments(run), run.at(0)
        floors = [alignment_floor(run.at(k), first, share * run.account["traces"][k]) for k in range(len(run))]
        slack = float(np.min((1 - found.misfit) ** 2 - np.array(floors)))
        checks.append(at_least(slack, 0.0, f"{name}: smallest <v, u>^2 minus its lower bound"))
    return all_of(*checks)


CLAIMS = (
    sourced(
        "descent-risk",
        "Descent with the steps of Assumption 5 sends the risk to 0.",
        "Theorem 3; the twin starts on the stable manifold of the saddle",
        descent_risk,
    ),
    sourced(
        "descent-aligns",
        "Descent with the steps of Assumption 5 aligns the layers and turns to the maximum margin.",
        "Theorems 3 and 4",
        descent_aligns,
    ),
    sourced(
        "descent-alignment-bound",
        "Along descent <v_{k+1}, u_k>^2 is at least 1 - (D + traces of layers k and later + |W_{k+1}(0)|^2 + |W_k(0)|^2) / |W_{k+1}|^2.",
        "Lemma 8, with the traces themselves for 3 R_0; it holds for steps of any length",
        alignment_bound,
    ),
)
