"""Public functions with one argument that is junk: refused in words, or accepted with an answer that makes sense."""

import functools

import numpy as np

import penchant as pt
from penchant.errors import PenchantError

from . import cases
from .holding import ACCEPTED, BAD, ERROR, TRACEBACK, WRONG


@functools.cache
def calls():
    """Public functions with arguments that work, in few words: one of them is then replaced."""
    data = pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    tokens = pt.TokenSelection([[[1.0, 0.0], [0.5, 1.0]]], scores=[[1.0, 0.0]])
    fit = pt.Regression([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [2.0, 1.0])
    setting, flow = pt.Setting(data, pt.Direct(), pt.Exponential()), pt.GradientFlow()
    prediction, descent = pt.predict(setting, flow), pt.gradient_descent(0.1)
    run = pt.train(setting, descent, steps=3)
    table = [[1.0, 0.0], [0.5, 1.0]]
    return (
        (pt.Classification, {"inputs": [[2.0, 0.0], [0.0, 1.0]], "labels": [1, 1]}),
        (pt.TokenSelection, {"tokens": [table], "labels": [1], "head": [1.0, 0.0], "queries": [[1.0, 0.0]]}),
        (pt.TokenSelection, {"tokens": [table], "scores": [[1.0, 0.0]], "ties": "raise"}),
        (pt.JointTokens, {"tokens": [table], "labels": [1], "optimal": [0]}),
        (pt.Regression, {"inputs": [[1.0, 1.0]], "targets": [2.0]}),
        (pt.Setting, {"data": data, "parametrisation": pt.Direct(), "loss": pt.Exponential(), "reduction": "sum"}),
        (setting.start, {"seed": 0, "scale": 0.1}),
        (pt.predict, {"setting": setting, "optimiser": flow, "start": np.zeros(2)}),
        (pt.train, {"setting": setting, "optimiser": descent, "start": np.zeros(2), "steps": 3}),
        (
            pt.train,
            {"setting": setting, "optimiser": descent, "steps": 3, "recorder": pt.training.Every(1), "progress": None},
        ),
        (pt.train, {"setting": setting, "optimiser": flow, "until": pt.MarginAbove(3.0), "throw": False}),
        (pt.judge, {"prediction": prediction, "run": run}),
        (pt.bracket, {"data": data, "primal": [1.0, 1.0], "dual": [1.0, 1.0], "norm": None}),
        (pt.bracket, {"data": fit, "primal": [0.0, 1.0, 0.0], "dual": [1.0, 0.0]}),
        (pt.references.max_margin, {"data": data}),
        (pt.references.nuclear_margin, {"data": tokens, "gap": 1e-9}),
        (pt.references.diagonal_margin, {"data": pt.settings.DiagonalTokens(tokens)}),
        (pt.references.offset_margin, {"data": data, "offsets": [0.0, 1.0]}),
        (pt.references.minimum_norm, {"data": fit, "start": np.zeros(3)}),
        (pt.references.basis_pursuit, {"data": fit, "weights": np.ones(3), "nonnegative": False}),
        (pt.references.minimum_potential, {"data": fit, "potential": pt.settings.q_alpha(0.1, 3)}),
        (pt.diagnostics.misalignment, {"weight": [1.0, 0.0], "reference": [1.0, 1.0]}),
        (pt.settings.q_alpha, {"alpha": 0.1, "d": 3}),
        (pt.gradient_descent, {"step": 0.1}),
        (pt.normalised_descent, {"length": 0.1, "cap": 1.0}),
        (pt.momentum, {"length": 0.1, "beta": 0.9}),
        (pt.polyak, {"c": 1.0, "cap": 10.0}),
        (pt.sign_descent, {"length": 0.1}),
        (pt.Adam, {"step": 0.1, "eps": 0.0, "b1": 0.9, "b2": 0.99}),
        (pt.GradientFlow, {"tolerance": 1e-7, "margin_tolerance": 1e-4, "order": 4, "clock": pt.flow.RelativeArc()}),
        (pt.settings.separable, {"n": 6, "d": 2, "seed": 0}),
        (pt.settings.random_tokens, {"n": 2, "length": 2, "d": 2, "seed": 0}),
        (pt.settings.sparse_regression, {"n": 4, "d": 6, "sparsity": 2, "seed": 0}),
        (pt.settings.marked_tokens, {"n": 4, "length": 2, "d": 6, "seed": 0}),
        (pt.SignedSquares, {"alpha": 0.1}),
        (pt.Squares, {"alpha": 0.1}),
        (pt.settings.SignedPowers, {"alpha": 0.1, "depth": 3}),
        (pt.DeepLinear, {"widths": (2, 2)}),
        (pt.KeyQuery, {"width": 2}),
        (pt.settings.DiagonalTokens, {"tokens": tokens}),
        (pt.settings.Gram, {"data": data}),
        (pt.flow.Levels, {"quantity": "margin", "values": (1.0, 2.0)}),
        (pt.diagnostics.restricted_isometry, {"inputs": np.eye(3), "sparsity": 1}),
        (pt.theory.certificates, {"run": run, "norm": prediction.reference.measure}),
        (pt.theory.detect_limit, {"run": run}),
        (pt.load, {"path": "missing.npz"}),
    )


def junk_argument(rng):
    function, arguments = cases.pick(rng, calls())
    return told(function, arguments, cases.pick(rng, list(arguments)), cases.pick(rng, cases.JUNK))


def told(function, arguments, name, junk):
    """(category, note) of a call with one argument replaced."""
    text = f"{function.__qualname__}({name}={' '.join(repr(junk).split())})"
    try:
        found = function(**{**arguments, name: junk})
    except PenchantError as error:
        return ERROR, f"{text}: {str(error).splitlines()[0]}"
    except Exception as error:
        return TRACEBACK, f"{text}: {type(error).__name__}: {str(error)[:60]}"
    return (WRONG, f"{text} gives {found!r}") if _senseless(function, found) else (ACCEPTED, text)


def _senseless(function, found):
    """A number that cannot be: a correlation beyond 1, bounds or weights that are not numbers, a norm bounded by infinity from below."""
    if function is pt.diagnostics.misalignment:
        return not (-1e-12 <= found <= 2 + 1e-12 or np.isnan(found))
    bounds = found if isinstance(found, pt.references.Bracket) else getattr(found, "bracket", None)
    if isinstance(bounds, pt.references.Bracket):
        weight = getattr(found, "weight", 0.0)
        return bool(np.isnan([bounds.lower, bounds.upper]).any() or bounds.lower == np.inf or np.isnan(weight).any())
    return False


if (
    __name__ == "__main__"
):  # `python -m tests.trials.junk`: all junk in all arguments, and what is wrong with the answers
    for function, arguments in calls():
        for name in set(arguments) - {"progress"}:  # what a function of the user's own raises is the user's
            for junk in cases.JUNK:
                category, note = told(function, arguments, name, junk)
                if category in BAD:
                    print(f"{category}: {note}")
