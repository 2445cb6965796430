"""What the code under test says of a case, held against the exact answer: one function per family, each returning a category and a note."""

import contextlib
import functools
import io
import json
import os
import signal
import tempfile
import traceback
import warnings
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np

import penchant as pt
from penchant.cli import main
from penchant.errors import InfeasibleError, InterpolationError, PenchantError, UndecidedMargin
from penchant.references.polyhedral_margin import L1, Linf, polyhedral_margin
from penchant.theorems.key_query import norm_of

from . import cases, oracles

RIGHT, ERROR, ACCEPTED = "right", "typed error", "junk accepted"
UNDECIDED, UNCHECKED = "undecided", "unchecked"
WRONG, TRACEBACK, ENDLESS = "wrong", "traceback", "no end"
BAD = (WRONG, TRACEBACK, ENDLESS)
NARROW = 1e-6  # relative width of a bracket that counts as a number


class OutOfTime(BaseException):
    """The CPU time of a case is used up; not an Exception, so that nothing on the way swallows it."""


@contextlib.contextmanager
def limited(seconds):
    """CPU seconds, not those of the clock: the cores are shared."""

    def stop(*_):
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check(case, seconds=60.0):
    """(category, note) of a case: an error on purpose, anything else that is raised, or what its family says."""
    try:
        with limited(seconds), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return CHECKS[case.family](case.rng)
    except OutOfTime as error:
        return (UNCHECKED if _inside(error, "oracles.py") else ENDLESS), "".join(_frames(error)[-3:])
    except PenchantError as error:
        return ERROR, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    except Exception as error:
        if _inside(error, "oracles.py"):
            raise
        return TRACEBACK, f"{type(error).__name__}: {str(error)[:100]} at {_frames(error)[-1]}"


def _frames(error):
    stack = traceback.extract_tb(error.__traceback__)
    return [f"{Path(frame.filename).name}:{frame.lineno} " for frame in stack]


def _inside(error, name):
    return any(frame.startswith(name) for frame in _frames(error))


def held(found, low, high, power=1):
    """A bracket against an optimum, raised to `power`, between low and high; None: there is no feasible point."""
    lower, upper = float(found.lower), float(found.upper)
    text = f"[{lower!r}, {upper!r}]"
    if low is None:
        return (UNDECIDED, text) if upper == np.inf else (WRONG, f"{text} where no weight is feasible")
    exactly = mpmath.mpf if isinstance(low, mpmath.mpf) else Fraction
    below = lower <= 0 or (lower < np.inf and exactly(lower) ** power <= high)
    above = upper == np.inf or (upper >= 0 and exactly(upper) ** power >= low)
    if not (below and above):
        return WRONG, f"{text} without the optimum {float(low) ** (1 / power)!r}"
    narrow = upper - lower <= NARROW * abs(upper) and upper < np.inf
    return RIGHT if narrow else UNDECIDED, text


def margin_program(solve, rows, norm):
    """A maximum-margin program: the bracket it returns, or the proof or the doubt it raises."""
    truth = oracles.least_margin_norm(rows, norm)
    try:
        found = solve()
    except InfeasibleError as error:
        return (ERROR, "infeasible") if truth is None else (WRONG, f"feasible data refused: {type(error).__name__}")
    except UndecidedMargin as error:
        false = truth is None and "are separable" in str(error)
        return (WRONG, "inseparable data called separable") if false else (UNDECIDED, str(error).splitlines()[0])
    return held(found.bracket, truth, truth, 2 if norm == "l2" else 1)


def l2_margin(rng):
    inputs, labels = cases.linear(rng)
    data, rows, way = pt.Classification(inputs, labels), oracles.exact(labels[:, None] * inputs), rng.random()
    if way < 0.2:  # any primal and any dual point
        point, weights = oracles.shortest_in_hull(rows)
        nearly = lambda values: np.array([float(v) for v in values]) * (1 + cases.decades(rng, -17, -1) * rng.normal())
        truth = 1 / oracles.dot(point, point) if any(point) else None
        return held(pt.bracket(data, nearly(point), nearly(weights)), truth, truth, 2)
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    solve = (lambda: pt.max_margin(data)) if way < 0.7 else lambda: pt.predict(setting, pt.GradientFlow()).reference
    return margin_program(solve, rows, "l2")


def polyhedral(rng):
    inputs, labels = cases.linear(rng)
    norm, data = cases.pick(rng, (L1(), Linf())), pt.Classification(inputs, labels)
    return margin_program(
        lambda: polyhedral_margin(data, norm), oracles.exact(labels[:, None] * inputs), str(norm.name)
    )


def pair_rows(tokens, queries, scores, diagonal=False):
    """The features of token pairs as rational numbers: of the whole matrix, or of its diagonal."""
    rows = []
    for sequence, query, score in zip(oracles.exact(tokens), oracles.exact(queries), scores, strict=True):
        best = int(np.argmax(score))
        for k, token in enumerate(sequence):
            if k != best:
                left = [a - b for a, b in zip(sequence[best], token, strict=True)]
                whole = [a * q for a in left for q in query]
                rows.append([a * q for a, q in zip(left, query, strict=True)] if diagonal else whole)
    return rows


def token_margin(rng):
    arrays = tokens, queries, scores = cases.tokens(rng)
    data, way = pt.TokenSelection(tokens, queries=queries, scores=scores), rng.random()
    if way < 0.45:
        setting = pt.Setting(data, pt.Direct(), pt.Exponential())
        solve = (
            (lambda: pt.max_margin(data)) if way < 0.25 else lambda: pt.predict(setting, pt.GradientFlow()).reference
        )
        return margin_program(solve, pair_rows(*arrays), "l2")
    if way < 0.75:
        data = pt.DiagonalTokens(data)
        return margin_program(lambda: pt.diagonal_margin(data), pair_rows(*arrays, diagonal=True), "l1")
    rows = pair_rows(*arrays)
    if oracles.least_margin_norm(rows, "l2") is None:
        return margin_program(lambda: pt.nuclear_margin(data), rows, "l2")
    bounds = oracles.nuclear_bounds(rows, data.weight_shape)
    try:
        found = pt.nuclear_margin(data).bracket
    except UndecidedMargin as error:
        return UNDECIDED, str(error).splitlines()[0]
    except InfeasibleError as error:
        return WRONG, f"feasible data refused: {type(error).__name__}"
    if bounds is None:
        return UNCHECKED, "the cone solver failed"
    low, high = (Fraction(float(b)) * (1 + Fraction(s, 10**10)) for b, s in zip(bounds, (-1, 1), strict=True))
    return held(found, low, high)


def residual_of(weight, rows, right):
    """Relative residual of a weight in exact arithmetic, and what rounding of its own digits could leave."""
    exact_weight = oracles.exact(weight)
    rest = [oracles.dot(row, exact_weight) - y for row, y in zip(rows, right, strict=True)]
    sizes = [oracles.dot([abs(x) for x in row], [abs(x) for x in exact_weight]) for row in rows]
    scale = max((abs(y) for y in right), default=Fraction(0)) or Fraction(1)
    ratio = lambda values: float(max((abs(v) for v in values), default=Fraction(0)) / scale)
    return ratio(rest), 64 * np.finfo(float).eps * ratio(sizes)


def interpolation(rng):
    inputs, targets = cases.regression(rng)
    data, size, depth = pt.Regression(inputs, targets), cases.alpha(rng), cases.pick(rng, (3, 3, 3, 4, 6, 10, 20))
    kind, predicted = cases.pick(rng, ("l2", "l1", "nonnegative l1", "Q", "Q", "KL", "KL", "power", "power")), False
    forms = {"l2": pt.Direct, "Q": lambda: pt.SignedSquares(size), "KL": lambda: pt.Squares(size)}
    forms["power"] = lambda: pt.SignedPowers(size, depth)
    rows, right, consistent = oracles.solutions(oracles.exact(inputs), oracles.exact(targets))
    nonnegative = kind in ("nonnegative l1", "KL")
    low = high = oracles.least_l1(rows, right, True) if nonnegative else Fraction(0)
    if not (nonnegative and low is None):
        low, high = _least(kind, rows, right, size, depth)
    try:
        if kind in forms and rng.random() < 0.5:
            predicted = True
            prediction = pt.predict(pt.Setting(data, forms[kind](), pt.Squared()), pt.GradientFlow())
            found = prediction.reference
        elif kind in ("l1", "nonnegative l1"):
            found = pt.basis_pursuit(data, nonnegative=nonnegative)
        elif kind == "l2":
            found = pt.minimum_norm(data)
        else:
            start = np.full(inputs.shape[1] if kind == "KL" else (2, inputs.shape[1]), size)
            found = pt.minimum_potential(data, forms[kind]().potential(start))
    except InterpolationError as error:
        false = low is not None if "nonnegative" in str(error).splitlines()[0] else consistent
        return (WRONG, f"{kind}: solvable targets refused") if false and consistent else (ERROR, str(error)[:60])
    if low is None:
        return (WRONG if consistent else UNDECIDED), f"{kind}: infeasible, but solved"
    if not found.resolved and not np.isfinite([found.bracket.lower, found.bracket.upper]).all():
        return UNDECIDED, f"{kind}: not resolved"
    if low is UNCHECKED:
        return UNCHECKED, f"{kind} at {size:g}, depth {depth}"
    if not consistent:  # the optimum is that of targets which were projected in float64
        low, high = low * (1 - Fraction(1, 10**6)), high * (1 + Fraction(1, 10**6))
    verdict, note = held(found.bracket, low, high, 2 if kind == "l2" else 1)
    rest, rounding = residual_of(found.weight, rows, right)
    verdict = UNDECIDED if verdict == RIGHT and not found.resolved else verdict
    if verdict == RIGHT and not rest <= 1e-9 + rounding:
        verdict, note = WRONG, f"{note}, resolved, at relative residual {rest:.1e}"
    if predicted and verdict != WRONG and (false := _false_rival(prediction, rows, right, consistent)):
        verdict, note = WRONG, false
    return verdict, f"{kind}{f' {depth}' * (kind == 'power')} at {size:g}: {note}"


def _least(kind, rows, right, size, depth):
    if kind == "l2":
        weight = oracles.least_l2(rows, right)
        return (oracles.dot(weight, weight),) * 2
    if "l1" in kind:
        return (oracles.least_l1(rows, right, kind != "l1"),) * 2
    found = oracles.least_potential(rows, right, kind, size, depth if kind == "power" else 2)
    return (UNCHECKED, UNCHECKED) if found is None else (found[0] - found[1], found[0] + found[1])


def _false_rival(prediction, rows, right, consistent):
    """The l1 norm of the sparse rival against the exact one."""
    weights = [rival.weight for rival in prediction.rivals if rival.name == "l1"]
    if not (weights and consistent):
        return ""
    best, found = float(oracles.least_l1(rows, right)), float(np.abs(weights[0]).sum())
    return "" if abs(found - best) <= 1e-6 * best else f"the l1 rival has norm {found!r}, the least is {best!r}"


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
    if verdict.outcome.value not in ("confirmed", "refuted", "undecided") or run.status is pt.Status.running:
        return WRONG, note
    if hasattr(setting.data, "fitted"):
        far = kind == "regression" and not np.allclose(weight, np.linalg.pinv(rows[0]) @ rows[1], rtol=0.1, atol=1e-3)
        rest = residual_of(weight, *oracles.exact(rows))[0]
        return (WRONG if verdict.outcome.value == "confirmed" and (rest > 1e-5 or far) else RIGHT), note
    margins = [oracles.dot(row, oracles.exact(np.ravel(weight))) for row in rows]
    if kind in ("linear", "gram", "attention") and not isinstance(optimiser, pt.Adam):
        truth = oracles.least_margin_norm(rows, "l2")
        own = pt.bracket(setting.data, weight, run.dual[-1])
        if held(own, truth, truth, 2)[0] == WRONG:
            return WRONG, f"{note}; its own bracket {held(own, truth, truth, 2)[1]}"
    if verdict.outcome.value == "confirmed":
        norm = norm_of(prediction.reference).name
        point = [float(x) for x in oracles.shortest_in_hull(rows)[0]]
        apart = pt.misalignment(weight, point) if norm in ("l2", "frobenius") else 0.0
        if min(margins) <= 0 or not apart <= 0.1:
            return WRONG, f"{note}; smallest margin {float(min(margins)):g}, 1 - corr {apart:g} to the true optimum"
    return RIGHT, note


def _trained(kind, rng):
    """A small setting, its exact rows, and a start (None: that of the setting)."""
    loss, reduction = cases.pick(rng, (pt.Exponential(), pt.Logistic())), cases.pick(rng, ("mean", "sum"))
    if kind in ("linear", "gram", "deep"):
        inputs, labels = cases.linear(rng, ((4, 2), (3, 3)), tame=True)
        data, rows = pt.Classification(inputs, labels), oracles.exact(labels[:, None] * inputs)
        form = {"linear": pt.Direct, "gram": lambda: pt.Gram(data), "deep": lambda: pt.DeepLinear((3,))}[kind]()
        setting = pt.Setting(data, form, loss, reduction)
        return setting, rows, setting.start(0, 0.3) if kind == "deep" else None
    if kind in ("regression", "squares"):
        inputs, targets = cases.regression(rng, ((2, 3), (3, 3)), tame=True)
        size = cases.alpha(rng, tame=True)
        forms = (pt.SignedSquares(size), pt.Squares(size), pt.SignedPowers(size, 3))
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
    setting = pt.Setting(pt.DiagonalTokens(data), pt.Hadamard(), loss, reduction)
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


def _run_command(words, folder):
    out, err, here = io.StringIO(), io.StringIO(), Path.cwd()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        os.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except SystemExit as end:
        code = end.code
    finally:
        os.chdir(here)
        signal.signal(signal.SIGTERM, handler)
    return code, out.getvalue(), err.getvalue()


def command_line(rng):
    with tempfile.TemporaryDirectory() as folder:
        return _table(rng, folder) if rng.random() < 0.3 else _options(rng, folder)


def _options(rng, folder):
    setting, kind, job, words = cases.command(rng)
    drawn = getattr(cases, kind)(rng, tame=rng.random() < 0.7)
    names = {"linear": ("inputs", "labels"), "regression": ("inputs", "targets"), "tokens": ("tokens", "queries", "scores")}
    np.savez(Path(folder) / "data.npz", **dict(zip(names[kind], drawn, strict=True)))
    words = [job, "data.npz", "--setting", setting, *words]
    code, out, err = _run_command(words, folder)
    rows = oracles.exact(drawn[1][:, None] * drawn[0]) if kind == "linear" else []
    bare = setting == "linear" and not {"--bias", "--normalise"} & set(words)
    return _answer(words, code, out, err, rows if bare else None)


def _table(rng, folder):
    inputs, labels = cases.linear(rng, ((4, 2),), tame=True)
    text, kind, readable = cases.csv_text(rng, inputs, labels)
    (Path(folder) / "data.csv").write_text(text, encoding="utf-8")
    words = ["predict", "data.csv", "--json"]
    code, out, err = _run_command(words, folder)
    if code == 0 and not readable:
        return WRONG, f"a table with the fault '{kind}' was read"
    if code == 2 and readable and json.loads(out)["error"] == "DataFileError":
        return WRONG, f"a good table ({kind}) was refused: {err.splitlines()[0]}"
    return _answer([*words, kind], code, out, err, oracles.exact(labels[:, None] * inputs))


def _answer(words, code, out, err, rows):
    """Exit code, JSON and numbers of a command."""
    text = " ".join(words)
    if code not in (0, 1, 2):
        return WRONG, f"exit code {code}: {text}"
    if "--json" not in words:
        return (RIGHT if code == 0 and out else ERROR if code == 2 and err else WRONG), text
    try:
        content = json.loads(out, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return WRONG, f"not JSON: {text}"
    if code == 2:
        return (ERROR if content.get("message") else WRONG), f"{text}: {content.get('message', '')[:60]}"
    found = content if words[0] == "predict" else content.get("prediction")
    reference = (found or {}).get("reference")
    if reference and reference.get("value", 0.0) is None and reference.get("resolved", True):
        return WRONG, f"a reference of null: {text}"
    if rows is None or not reference or reference["norm"] not in ("l1", "l2", "linf"):
        return RIGHT, text
    bounds = [np.nan if reference[name] is None else reference[name] for name in ("lower", "upper")]
    truth = oracles.least_margin_norm(rows, reference["norm"])
    verdict, note = held(_Bounds(*bounds), truth, truth, 2 if reference["norm"] == "l2" else 1)
    return verdict, f"{text}: {note}"


class _Bounds:
    def __init__(self, lower, upper):
        self.lower, self.upper = lower, upper


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
        (pt.train, {"setting": setting, "optimiser": descent, "steps": 3, "recorder": pt.Every(1), "progress": None}),
        (pt.train, {"setting": setting, "optimiser": flow, "until": pt.MarginAbove(3.0), "throw": False}),
        (pt.judge, {"prediction": prediction, "run": run}),
        (pt.bracket, {"data": data, "primal": [1.0, 1.0], "dual": [1.0, 1.0], "norm": None}),
        (pt.bracket, {"data": fit, "primal": [0.0, 1.0, 0.0], "dual": [1.0, 0.0]}),
        (pt.max_margin, {"data": data}),
        (pt.nuclear_margin, {"data": tokens, "gap": 1e-9}),
        (pt.diagonal_margin, {"data": pt.DiagonalTokens(tokens)}),
        (pt.offset_margin, {"data": data, "offsets": [0.0, 1.0]}),
        (pt.minimum_norm, {"data": fit, "start": np.zeros(3)}),
        (pt.basis_pursuit, {"data": fit, "weights": np.ones(3), "nonnegative": False}),
        (pt.minimum_potential, {"data": fit, "potential": pt.q_alpha(0.1, 3)}),
        (pt.lasso_path, {"data": fit, "penalties": [1.0, 0.1], "nonnegative": True}),
        (pt.misalignment, {"weight": [1.0, 0.0], "reference": [1.0, 1.0]}),
        (pt.q_alpha, {"alpha": 0.1, "d": 3}),
        (pt.gradient_descent, {"step": 0.1}),
        (pt.normalised_descent, {"length": 0.1, "cap": 1.0}),
        (pt.momentum, {"length": 0.1, "beta": 0.9}),
        (pt.polyak, {"c": 1.0, "cap": 10.0}),
        (pt.sign_descent, {"length": 0.1}),
        (pt.Adam, {"step": 0.1, "eps": 0.0, "b1": 0.9, "b2": 0.99}),
        (pt.GradientFlow, {"tolerance": 1e-7, "margin_tolerance": 1e-4, "order": 4, "clock": pt.RelativeArc()}),
        (pt.separable, {"n": 6, "d": 2, "seed": 0}),
        (pt.random_tokens, {"n": 2, "length": 2, "d": 2, "seed": 0}),
        (pt.sparse_regression, {"n": 4, "d": 6, "sparsity": 2, "seed": 0}),
        (pt.marked_tokens, {"n": 4, "length": 2, "d": 6, "seed": 0}),
        (pt.SignedSquares, {"alpha": 0.1}),
        (pt.Squares, {"alpha": 0.1}),
        (pt.SignedPowers, {"alpha": 0.1, "depth": 3}),
        (pt.DeepLinear, {"widths": (2, 2)}),
        (pt.KeyQuery, {"width": 2}),
        (pt.DiagonalTokens, {"tokens": tokens}),
        (pt.Gram, {"data": data}),
        (pt.Levels, {"quantity": "margin", "values": (1.0, 2.0)}),
        (pt.restricted_isometry, {"inputs": np.eye(3), "sparsity": 1}),
        (pt.certificates, {"run": run, "norm": norm_of(prediction.reference)}),
        (pt.detect_limit, {"run": run}),
        (pt.load, {"path": "missing.npz"}),
    )


def junk_argument(rng):
    function, arguments = cases.pick(rng, calls())
    name, junk = cases.pick(rng, list(arguments)), cases.pick(rng, cases.JUNK)
    text = f"{function.__qualname__}({name}={junk if np.ndim(junk) == 0 else np.asarray(junk, object).tolist()!r})"
    try:
        found = function(**{**arguments, name: junk})
    except PenchantError as error:
        return ERROR, f"{text}: {str(error).splitlines()[0]}"
    except Exception as error:
        return TRACEBACK, f"{text}: {type(error).__name__}: {str(error)[:60]} at {_frames(error)[-1]}"
    return (WRONG, f"{text} gives {found!r}") if _senseless(function, found) else (ACCEPTED, text)


def _senseless(function, found):
    """A number that cannot be: a correlation beyond 1, bounds or weights that are not numbers, a norm bounded by infinity from below."""
    if function is pt.misalignment:
        return not (-1e-12 <= found <= 2 + 1e-12 or np.isnan(found))
    bounds = found if isinstance(found, pt.Bracket) else getattr(found, "bracket", None)
    if isinstance(bounds, pt.Bracket):
        weight = getattr(found, "weight", 0.0)
        return bool(np.isnan([bounds.lower, bounds.upper]).any() or bounds.lower == np.inf or np.isnan(weight).any())
    return False


CHECKS = {
    "l2 margin": l2_margin,
    "polyhedral margin": polyhedral,
    "token margin": token_margin,
    "interpolation": interpolation,
    "training": training,
    "command line": command_line,
    "junk argument": junk_argument,
}
