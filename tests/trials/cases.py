"""Trial cases by number: data of many scales and degeneracies, options of the command line, and junk. The same number is the same case tomorrow."""

from typing import NamedTuple

import numpy as np

SHAPES = (
    (1, 1),
    (2, 2),
    (3, 1),
    (4, 2),
    (6, 3),
    (10, 2),
    (12, 5),
    (14, 8),
    (5, 7),
)  # few, so that code is compiled once
TOKEN_SHAPES = ((2, 2, 2), (3, 3, 2), (4, 2, 3), (2, 4, 3))
REGRESSION_SHAPES = ((1, 2), (2, 3), (3, 3), (3, 6), (4, 3), (5, 8))
FAMILIES = {  # with their shares of all cases
    "l2 margin": 0.27,
    "polyhedral margin": 0.12,
    "token margin": 0.14,
    "interpolation": 0.25,
    "training": 0.05,
    "command line": 0.07,
    "junk argument": 0.04,
    "exponent margin": 0.06,
}
EXPONENTS = (1.001, 1.2, 1.5, 3.0, 10.0, 50.0, 1000.0)


class Case(NamedTuple):
    """A case of a family; `rng` draws everything else about it."""

    seed: int
    number: int
    family: str
    rng: np.random.Generator


def case(number, seed=0):
    rng = np.random.default_rng([seed, number])
    return Case(seed, number, str(rng.choice(list(FAMILIES), p=list(FAMILIES.values()))), rng)


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def decades(rng, low, high, shape=None):
    return 10.0 ** rng.uniform(low, high, shape)


def linear(rng, shapes=SHAPES, tame=False):
    """Inputs and labels: margins from 1e-12 to 1, contradictions, small integers, rows and columns in all units, copies."""
    n, d = pick(rng, shapes)
    signed, toward = rng.standard_normal((n, d)), rng.standard_normal(d)
    toward /= np.linalg.norm(toward)
    kind = pick(rng, ("margin", "margin", "margin", "margin", "random", "contradiction", "integers"))
    if kind in ("margin", "contradiction"):
        margins = decades(rng, -2 if tame else -12, 0) * (1 + rng.exponential(size=n))
        signed += np.outer(margins - signed @ toward, toward)
    if kind == "integers":
        signed = rng.integers(-2, 3, (n, d)).astype(float)
    chance = rng.random(5)
    if not tame:
        signed *= decades(rng, -8, 8, (n, 1)) if chance[0] < 0.35 else 1.0
        signed *= decades(rng, -8, 8, d) if chance[1] < 0.25 else 1.0
        signed *= decades(rng, -60, 60) if chance[2] < 0.05 else 1.0
    if chance[3] < 0.2:
        signed[-1] = signed[0] * pick(rng, (1.0, 1.0, 4.0, 1e-7))
    if kind == "contradiction" and n > 1:
        signed[1] = -signed[0] * 2.0 ** rng.integers(-3, 4)
    if chance[4] < 0.05:
        signed[:, rng.integers(d)] = 0.0
    signed[0, 0] += 0.0 if signed.any() else 1.0
    labels = rng.choice([-1.0, 1.0], n)
    return labels[:, None] * signed, labels


def tokens(rng, shapes=TOKEN_SHAPES, tame=False):
    """Tokens, queries and scores with one best token per sample."""
    n, length, d = pick(rng, shapes)
    found, queries = rng.standard_normal((n, length, d)), rng.standard_normal((n, d))
    best, chance = rng.integers(length, size=n), rng.random(4)
    if chance[0] < 0.15:
        found, queries = (rng.integers(-2, 3, shape).astype(float) for shape in (found.shape, queries.shape))
        queries[:, 0] += ~queries.any(axis=1)
        found[0, 0, 0] += 0.0 if found.any() else 1.0
    elif chance[0] < 0.45:
        found = found[:, :1] + decades(rng, -3 if tame else -10, 0) * found
    if chance[1] < 0.3 and not tame:
        found *= decades(rng, -4, 4, (n, 1, 1))
    if chance[2] < 0.15:
        found[1], queries[1], best[1] = found[0], queries[0], (best[0] + 1) % length
    scores = rng.uniform(-1, 0, (n, length))
    scores[np.arange(n), best] = 1.0
    return found, queries, scores


def regression(rng, shapes=REGRESSION_SHAPES, tame=False):
    """Inputs and targets: dependent rows, all units, targets of positive, sparse and no particular weights."""
    n, d = pick(rng, shapes)
    inputs, chance = rng.standard_normal((n, d)), rng.random(6)
    if chance[0] < 0.15:
        inputs = rng.integers(-2, 3, (n, d)).astype(float)
        inputs[0, 0] += 0.0 if inputs.any() else 1.0
    if chance[1] < 0.15 and n > 1:
        inputs[1] = inputs[0] + decades(rng, -2 if tame else -8, 0) * inputs[1]
    if not tame:
        inputs *= decades(rng, -4, 4, d) if chance[2] < 0.2 else 1.0
        inputs *= decades(rng, -4, 4, (n, 1)) if chance[3] < 0.2 else 1.0
        inputs *= decades(rng, -90, 90) if chance[4] < 0.06 else pick(rng, (1e150, 1e-150)) if chance[4] < 0.08 else 1.0
    weight = np.abs(rng.standard_normal(d)) if chance[5] < 0.7 else rng.standard_normal(d)
    weight = np.round(2 * weight) if chance[0] < 0.15 else weight
    weight[1:] *= 0.0 if chance[5] < 0.15 else 1.0
    targets = inputs @ weight if chance[5] < 0.97 else np.zeros(n)
    return inputs, rng.standard_normal(n) * np.abs(targets).max() if 0.5 < chance[5] < 0.6 else targets


def alpha(rng, tame=False):
    kind = rng.random()
    if tame or kind < 0.6:
        return float(decades(rng, -4, 1) if tame else decades(rng, -6, 3))
    return float(decades(rng, -60, 20) if kind < 0.92 else pick(rng, (1e-300, 1e-150, 1e60, 1e90)))


OPTIONS = {  # of the command line, with values from sensible to absurd
    "--optimiser": ("flow", "gd", "ngd", "momentum", "polyak", "accelerated", "adam", "line-search", "sharp", "lion"),
    "--loss": ("exponential", "logistic", "logistic", "correlation", "hinge", "nowhere.py:mine"),
    "--reduction": ("mean", "sum"),
    "--step-size": ("0.1", "1", "1e10", "0", "-1", "nan", "adaptive"),
    "--cap": ("1", "inf", "-1"),
    "--beta": ("0.5", "1", "nan"),
    "--seed": ("0", "3", "-1", "1180591620717411303424"),
    "--start": ("zeros", "small", "normal", "balanced", "missing.npz", "here"),
    "--scale": ("1e-3", "1", "1e-8", "1e300", "0", "nan"),
    "--alpha": ("0.01", "1", "1e-30", "1e60", "0", "nan"),
    "--depth": ("3", "4", "20", "50", "2", "0"),
    "--widths": ("4", "2,2", "3", "0", "1000000,1000000", "²", "2,,2"),
    "--ties": ("raise", "keep"),
    "--bias": ("",),
    "--normalise": ("",),
    "--joint": ("",),
}
STEPPING = ("gd", "ngd", "momentum", "polyak", "accelerated", "adam")
BUDGETS = {
    "--steps": ("0", "7", "50", "-1", "99999999999999999999"),
    "--margin": ("1", "1e3", "1e13", "nan", "-1"),
    "--time": ("1", "1e3", "0", "inf"),
    "--log-time": ("1", "30", "-1", "nan"),
    "--risk-level": ("1", "20", "1e9", "-2"),
}
SETTINGS = {
    "linear": "linear",
    "deep-linear": "linear",
    "attention": "tokens",
    "attention-kq": "tokens",
    "attention-diagonal": "tokens",
    "regression": "regression",
    "signed-squares": "regression",
    "squares": "regression",
    "signed-powers": "regression",
}
FITTING = {"regression": (), "linear": ("--bias", "--normalise"), "tokens": ("--ties",)}


def command(rng):
    """(setting, its data, arguments): mostly options that go together, now and then one that does not."""
    setting = pick(rng, list(SETTINGS))
    kind = SETTINGS[setting]
    fitting = ["--optimiser", "--reduction", "--step-size", "--start", "--scale", "--seed", *FITTING[kind]]
    fitting += ["--loss"] if kind != "regression" else []
    fitting += ["--widths"] if setting in ("deep-linear", "attention-kq") else []
    fitting += ["--alpha"] * 3 if "s" in setting[-7:] and kind == "regression" and setting != "regression" else []
    fitting += ["--depth"] * 2 if setting == "signed-powers" else []
    names = set(rng.choice(fitting if rng.random() < 0.8 else list(OPTIONS), 2))
    sensible = rng.random() < 0.6
    chosen = [(name, pick(rng, OPTIONS[name][:2] if sensible else OPTIONS[name])) for name in sorted(names)]
    if sensible and "--step-size" in names:
        chosen = [*(pair for pair in chosen if pair[0] != "--optimiser"), ("--optimiser", pick(rng, STEPPING))]
    job = pick(rng, ("predict", "train"))
    if job == "train":
        name = pick(rng, ("--steps", "--time") if sensible and kind == "regression" else list(BUDGETS))
        chosen.append((name, pick(rng, BUDGETS[name][:2] if sensible else BUDGETS[name])))
    words = [word for option in chosen for word in option if word]
    words += ["--json"] if rng.random() < 0.8 else []
    words += ["--save", "here.npz"] if rng.random() < 0.15 else []
    return setting, kind, job, words


HARMLESS_CSV = ("plain", "header", "bom", "crlf", "blank lines", "spaces", "exponents")
BROKEN_CSV = {
    "missing first": lambda rows: [["", *rows[0][1:]], *rows[1:]],
    "missing later": lambda rows: [*rows[:-1], ["", *rows[-1][1:]]],
    "not available": lambda rows: [["NA", *rows[0][1:]], *rows[1:]],
    "hexadecimal": lambda rows: [["0x1p0", *rows[0][1:]], *rows[1:]],
    "not a number": lambda rows: [*rows[:-1], ["nan", *rows[-1][1:]]],
    "infinite": lambda rows: [*rows[:-1], ["inf", *rows[-1][1:]]],
    "ragged": lambda rows: [*rows[:-1], rows[-1][:-1]],
    "open quote": lambda rows: [*rows[:-1], ['"' + rows[-1][0], *rows[-1][1:]]],
    "label": lambda rows: [*rows[:-1], [*rows[-1][:-1], "0.5"]],
    "null byte": lambda rows: [*rows[:-1], ["\0", *rows[-1][1:]]],
}


def csv_text(rng, inputs, labels):
    """A table as text, its kind, and whether it can be read."""
    rows = [[repr(float(x)) for x in row] for row in np.column_stack([inputs, labels])]
    kind = pick(rng, (*HARMLESS_CSV, *BROKEN_CSV))
    rows = BROKEN_CSV[kind](rows) if kind in BROKEN_CSV else rows
    rows = [[f"x{k}" for k in range(len(rows[0]))], *rows] if kind == "header" else rows
    rows = [[f" {x} " for x in row] for row in rows] if kind == "spaces" else rows
    text = ("\r\n" if kind == "crlf" else "\n\n" if kind == "blank lines" else "\n").join(map(",".join, rows)) + "\n"
    return ("\ufeff" if kind == "bom" else "") + text, kind, kind not in BROKEN_CSV


NUMBERS = (-1, 0, 3, 2.5, True, 1e300, 2**70, float("nan"), float("inf"), 1j)
OBJECTS = (None, "junk", b"junk", (), [], {}, object(), int, len)
LISTS = ([1.0, 2.0], [[1.0], [2.0, 3.0]], [["a", "b"]], np.zeros(7), np.zeros((2, 2)), np.full((2, 2), np.nan))
ARRAYS = (np.zeros((0, 2)), np.ones((2, 2), complex), np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], [[True, False]] * 2))
JUNK = (*NUMBERS, *OBJECTS, *LISTS, *ARRAYS)
