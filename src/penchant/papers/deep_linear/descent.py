"""Claims of the deep linear paper on descent: the risk vanishes and the layers align (Theorems 3 and 4)."""

import jax.numpy as jnp
import numpy as np

from ...diagnostics.alignment import alignment_floor, alignments
from ...diagnostics.rates import log_log_slope
from ...errors import quietly
from ...lab import Lab, claim, recipe
from ...optimisers.layerwise import BallStep, ConstantStep, LayerDescent
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.deep_linear import DeepLinear
from ...settings.losses import Logistic
from ...theory.verdicts import judge_direction
from ...training.recorders import Every, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_least, at_most
from .evidence import descent, mirrored, problem
from .theorems import JI, MAX_MARGIN

_STEPS = 200_000  # of Assumption 5, whose steps are short


@recipe
def proved_descent(lab: Lab, depth: int) -> Trajectory:
    """Descent with the steps of Assumption 5 on the logistic risk; at depth 3 from a small start, whose layers need less growth to align."""
    setting, start = problem(lab, depth, logistic=True, scale=0.4 if depth == 2 else 0.15)
    return train(setting, LayerDescent(BallStep(tight=depth > 2)), start, steps=_STEPS, recorder=LogSpaced(200))


@recipe
def _mirrored_descent(lab: Lab) -> Trajectory:
    """The same steps from w1 = -w2, which descent keeps to the last bit: above the risk of zero for ever."""
    start = mirrored(lab)[1]
    setting = Setting(Classification([[1.0]], [1]), DeepLinear((3,)), Logistic())
    with quietly():
        return train(setting, LayerDescent(BallStep()), start, steps=_STEPS, recorder=LogSpaced(200))


@claim(
    "deep-linear/descent-risk",
    f"{JI}, Theorem 3; the twin starts on the stable manifold of the saddle",
    "proved",
    slow=True,
)
def descent_risk(lab: Lab, planted: bool) -> Verdict:
    """Descent with the steps of Assumption 5 sends the risk to 0.
    The risk falls as long as one follows it, about like the inverse of the sum of the steps, and so the layers grow."""
    checks = []
    for name, run in {"start w1 = -w2": _mirrored_descent(lab)}.items() if planted else _proved(lab).items():
        assert run.account is not None
        total, risk = np.exp(run.account["log_step_sum"][1:]), np.exp(run.log_excess[1:])
        slope = log_log_slope(total, risk, (total[-1] / 10, total[-1]))
        checks += [
            at_most(float(risk[-1]), 0.01, f"{name}: risk after {_STEPS} steps"),
            at_most(slope, -1.0, f"{name}: slope of log R in the log of the sum of the steps, last decade"),
            at_most(float(np.diff(run.log_excess).max()), 0.0, f"{name}: largest rise of log R"),
        ]
    return all_of(*checks)


@claim("deep-linear/descent-aligns", f"{JI}, Theorems 3 and 4", "proved", slow=True)
def descent_aligns(lab: Lab, planted: bool) -> Verdict:
    """Descent with the steps of Assumption 5 aligns the layers and turns to the maximum margin.
    Ratios, alignments and direction at the end; the twin looks at the start."""
    checks, record = [], 0 if planted else -1
    for name, run in _proved(lab).items():
        found = alignments(run)
        prediction = MAX_MARGIN.predict(run.setting, LayerDescent(BallStep()))
        checks += [
            at_most(float(found.deficit[record].max()), 0.05, f"{name}: largest 1 - spectral/Frobenius"),
            at_most(float(found.misfit[record].max()), 1e-2, f"{name}: largest 1 - |<v, u>|"),
            judge_direction(prediction, run.weight(record)),
        ]
    return all_of(*checks)


def _proved(lab: Lab) -> dict[str, Trajectory]:
    return {f"depth {depth}": proved_descent(lab, depth) for depth in (2, 3)}


@recipe
def _crossed(lab: Lab) -> Trajectory:
    """Two layers that have nothing in common and one long step, after which each has the other's direction: the traces are all that explains it."""
    setting, _ = problem(lab, 2, logistic=True)
    gradient = -np.asarray(setting.data.signed).mean(axis=0) / 2
    length = float(np.linalg.norm(gradient))
    first, last = np.zeros((8, 2)), np.zeros((1, 8))
    first[1], last[0, 0] = 0.1 * gradient / length, 0.05
    step = LayerDescent(ConstantStep(10.0 / length))
    return train(setting, step, (jnp.asarray(first), jnp.asarray(last)), steps=5, recorder=Every())


@claim(
    "deep-linear/descent-alignment-bound",
    f"{JI}, Lemma 8, with the traces themselves for 3 R_0; it holds for steps of any length",
    "sharpened",
    slow=True,
)
def alignment_bound(lab: Lab, planted: bool) -> Verdict:
    """Along descent <v_{k+1}, u_k>^2 is at least 1 - (D + traces of layers k and later + |W_{k+1}(0)|^2 + |W_k(0)|^2) / |W_{k+1}|^2.
    The alignment part of Lemma 8 at every step, whatever its length; the twin halves the traces."""
    start = 1 + lab.seed
    checks, share = [], 0.5 if planted else 1.0
    runs = {"eta <= 1": descent(lab, capped=True, seed=start), "line search": descent(lab, seed=start)}
    for name, run in (runs | {"long steps": _crossed(lab)}).items():
        assert run.account is not None
        found, first = alignments(run), run.at(0)
        floors = [alignment_floor(run.at(k), first, share * run.account["traces"][k]) for k in range(len(run))]
        slack = float(np.min((1 - found.misfit) ** 2 - np.array(floors)))
        checks.append(at_least(slack, 0.0, f"{name}: smallest <v, u>^2 minus its lower bound"))
    return all_of(*checks)
