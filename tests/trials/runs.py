"""Training: it ends, says how, and confirms only what is so."""

import numpy as np

import penchant as pt
from penchant.errors import PenchantError

from . import cases, oracles
from .holding import RIGHT, WRONG, held
from .programs import pair_rows, residual_of


def training(rng):
    kind = cases.pick(rng, ("linear", "gram", "deep", "attention", "key-query", "diagonal", "regression", "squares"))
    setting, rows, start = _trained(kind, rng)
    optimiser = _optimiser(kind, rng)
    flow = isinstance(optimiser, pt.GradientFlow)
    until = (pt.MarginAbove, (-1, 6)) if rng.random() < 0.5 else (pt.LogTimeAbove, (0, 4))
    event = until[0](float(cases.decades(rng, *until[1])))
    budget = {"until": event} if flow and kind not in ("regression", "squares") and rng.random() < 0.8 else {}
    run = pt.train(setting, optimiser, start, **(budget or {"steps": cases.pick(rng, (0, 1, 10, 300))}))
    try:
        prediction = pt.predict(setting, optimiser, start)
    except PenchantError:
        return RIGHT, f"{kind}: {run.status.name}"
    verdict, weight = pt.judge(prediction, run), run.weight()
    note = f"{kind}, {type(optimiser).__name__} {budget}: {run.status.name}, {verdict}"
    if verdict.outcome.value not in ("confirmed", "refuted", "undecided") or run.status is pt.training.Status.running:
        return WRONG, note
    if hasattr(setting.data, "fitted"):
        equations, right, _ = oracles.solutions(*map(oracles.exact, rows))
        best, rest = oracles.least_l2(equations, right), residual_of(weight, equations, right)[0]
        apart = np.linalg.norm(weight - np.array([float(x) for x in best])) / (
            float(oracles.dot(best, best)) ** 0.5 or 1
        )
        far = rest > 1e-5 or (kind == "regression" and apart > 0.1)
        return (WRONG, f"{note}; residual {rest:g}") if far and verdict.outcome.value == "confirmed" else (RIGHT, note)
    margins = [oracles.dot(row, oracles.exact(np.ravel(weight))) for row in rows]
    if kind in ("linear", "gram", "attention") and not isinstance(optimiser, pt.Adam):
        truth = oracles.least_margin_norm(rows, "l2")
        own = pt.bracket(setting.data, weight, run.dual[-1])
        if held(own, truth, truth, 2)[0] == WRONG:
            return WRONG, f"{note}; its own bracket {held(own, truth, truth, 2)[1]}"
    if verdict.outcome.value == "confirmed":
        norm = prediction.reference.measure.name
        point = [float(x) for x in oracles.shortest_in_hull(rows)[0]]
        apart = pt.diagnostics.misalignment(np.ravel(weight), point) if norm in ("l2", "frobenius") else 0.0
        if min(margins) <= 0 or not apart <= 0.1:
            return WRONG, f"{note}; smallest margin {float(min(margins)):g}, 1 - corr {apart:g} to the true optimum"
    return RIGHT, note


def _trained(kind, rng):
    """A small setting, its exact rows, and a start (None: that of the setting)."""
    loss, reduction = cases.pick(rng, (pt.Exponential(), pt.Logistic())), cases.pick(rng, ("mean", "sum"))
    if kind in ("linear", "gram", "deep"):
        inputs, labels = cases.linear(rng, ((4, 2), (3, 3)), tame=True)
        data, rows = pt.Classification(inputs, labels), oracles.exact(labels[:, None] * inputs)
        form = {"linear": pt.Direct, "gram": lambda: pt.settings.Gram(data), "deep": lambda: pt.DeepLinear((3,))}[
            kind
        ]()
        setting = pt.Setting(data, form, loss, reduction)
        return setting, rows, setting.start(0, 0.3) if kind == "deep" else None
    if kind in ("regression", "squares"):
        inputs, targets = cases.regression(rng, ((2, 3), (3, 3)), tame=True)
        size = cases.alpha(rng, tame=True)
        forms = (pt.SignedSquares(size), pt.Squares(size), pt.settings.SignedPowers(size, 3))
        form = pt.Direct() if kind == "regression" else cases.pick(rng, forms)
        return pt.Setting(pt.Regression(inputs, targets), form, pt.Squared(), reduction), (inputs, targets), None
    arrays = cases.tokens(rng, ((3, 3, 2),), tame=True)
    data = pt.TokenSelection(arrays[0], queries=arrays[1], scores=arrays[2])
    if kind == "attention":
        return pt.Setting(data, pt.Direct(), loss, reduction), pair_rows(*arrays), None
    scale = float(cases.pick(rng, (1e-3, 0.3)))
    if kind == "key-query":
        setting = pt.Setting(data, pt.KeyQuery(), loss, reduction)
        return setting, pair_rows(*arrays), setting.start(int(rng.integers(9)), scale)
    setting = pt.Setting(pt.settings.DiagonalTokens(data), pt.Hadamard(), loss, reduction)
    return setting, pair_rows(*arrays, diagonal=True), setting.start(int(rng.integers(9)), scale)


def _optimiser(kind, rng):
    step, plain = float(cases.decades(rng, -3, 0)), ("flow", "flow", "flow", "gd", "ngd", "polyak", "momentum")
    return {
        "flow": pt.GradientFlow,
        "gd": lambda: pt.gradient_descent(step),
        "ngd": lambda: pt.normalised_descent(step),
        "polyak": lambda: pt.polyak(cap=100.0),
        "momentum": lambda: pt.momentum(step, 0.9),
        "sign": lambda: pt.sign_descent(step),
        "adam": lambda: pt.Adam(step, eps=0.0),
    }[cases.pick(rng, plain if kind in ("gram", "deep") else (*plain, "sign", "adam"))]()
