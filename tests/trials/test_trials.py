"""Generated cases against exact answers: no wrong number, no bare traceback, no run without an end."""

import json
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog, nnls

import penchant as pt

from . import junk, oracles
from .cases import FAMILIES
from .holding import BAD, ERROR, RIGHT, UNCHECKED, UNDECIDED, WRONG, Bounds, held

ROOT = Path(__file__).resolve().parents[2]
CASES, CHUNK = 5000, 250


def trial(first, count):
    """The rows of a chunk, from a process of its own: one that hangs or dies takes no other test with it, and its code is not instrumented."""
    words = [sys.executable, "-m", "tests.trials", "--json", "--first", str(first), "--cases", str(count)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60 * count)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == count, f"ended at case {first + len(rows)} with code {done.returncode}: {done.stderr[-2000:]}"
    bad = [f"case {number}, {family}: {what}: {note}" for number, family, what, note, _ in rows if what in BAD]
    repeat = "`python -m tests.trials --first N --cases 1` repeats case N"
    assert not bad, f"{len(bad)} of {count} cases; {repeat}:\n" + "\n".join(bad)
    return rows


def test_some_cases_of_every_family():
    assert {family for _, family, *_ in trial(219, 40)} == set(FAMILIES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [pytest.param(k, marks=pytest.mark.xdist_group(f"trial {k}")) for k in range(0, CASES, CHUNK)]
)
def test_all_cases(first):
    counts = Counter(what for _, _, what, _, _ in trial(first, CHUNK))
    assert counts[RIGHT] > 0.3 * CHUNK  # one that doubts or refuses everything is never wrong
    assert counts[UNCHECKED] < 0.03 * CHUNK


@pytest.mark.slow
def test_no_junk_in_any_argument_ends_in_a_traceback():
    done = subprocess.run([sys.executable, "-m", "tests.trials.junk"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (pt.SignedSquares, "alpha", []),
        (pt.Squares, "alpha", ()),
        (pt.gradient_descent, "step", True),
        (pt.gradient_descent, "step", "0.1"),
        (pt.normalised_descent, "cap", True),
        (pt.momentum, "beta", False),
        (pt.references.nuclear_margin, "gap", float("nan")),
        (pt.references.nuclear_margin, "gap", -1),
        (pt.DeepLinear, "widths", [[1.0], [2.0, 3.0]]),
        (pt.JointTokens, "optimal", [[1.0], [2.0, 3.0]]),
        (pt.Setting.start, "scale", float("inf")),
    ],
)
def test_junk_that_once_passed_is_refused(function, name, value):
    call = next(call for call in junk.calls() if call[0].__qualname__ == function.__qualname__ and name in call[1])
    assert junk.told(*call, name, value)[0] == ERROR


def test_margin_oracles_agree_with_floats(rng):
    rows = rng.standard_normal((7, 3)) + np.array([3.0, 0.0, 0.0])
    shortest = nnls(np.vstack([rows.T, np.ones(7)]), [0.0, 0.0, 0.0, 1.0])[0]  # of the cone through the hull
    weight = shortest @ rows
    assert float(oracles.least_margin_norm(oracles.exact(rows), "l2")) == pytest.approx(
        weight @ weight / (rows @ weight).min() ** 2
    )
    found = linprog(np.ones(6), A_ub=-np.hstack([rows, -rows]), b_ub=-np.ones(7))
    assert float(oracles.least_margin_norm(oracles.exact(rows), "l1")) == pytest.approx(found.fun)
    found = linprog([0, 0, 0, 1], A_ub=_box(rows), b_ub=[-1] * 7 + [0] * 6, bounds=(None, None))
    assert float(oracles.least_margin_norm(oracles.exact(rows), "linf")) == pytest.approx(found.fun)


def _box(rows):
    """-<row, w> <= -1, +-w <= t."""
    sides = np.hstack([np.vstack([np.eye(3), -np.eye(3)]), -np.ones((6, 1))])
    return np.vstack([np.hstack([-rows, np.zeros((7, 1))]), sides])


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_margin_oracles_know_a_contradiction(norm):
    rows = oracles.exact([[1.0, 0.0], [-3.0, 0.0], [0.0, 1.0]])
    assert oracles.least_margin_norm(rows, norm) is None


def test_interpolation_oracles_meet_at_their_limits(rng):
    inputs, weight = rng.standard_normal((2, 4)), np.abs(rng.standard_normal(4))
    rows, right, consistent = oracles.solutions(oracles.exact(inputs), oracles.exact(inputs @ weight))
    assert consistent
    square = np.linalg.norm(np.linalg.pinv(inputs) @ inputs @ weight) ** 2
    best = oracles.least_l2(rows, right)
    assert float(oracles.dot(best, best)) == pytest.approx(square)
    for kind, depth in (("Q", 2), ("power", 3)):  # |x|^2 / 4 alpha^depth for large starts
        value, above = oracles.least_potential(rows, right, kind, 1e8, depth)
        assert float(value * 10 ** (8 * depth)) == pytest.approx(square / 4)
        assert 0 <= above - value < 1e-20 * value
    value, _ = oracles.least_potential(rows, right, "Q", 1e-150)  # log(1/alpha^2) |x|_1 for small ones
    assert float(value) / (300 * np.log(10)) == pytest.approx(float(oracles.least_l1(rows, right)), rel=1e-2)
    value, _ = oracles.least_potential(rows, right, "KL", 1e-150)
    assert float(value) / (300 * np.log(10)) == pytest.approx(float(oracles.least_l1(rows, right, True)), rel=1e-2)


def test_an_allowance_costs_as_much_as_the_targets_may_fall():
    rows, right = oracles.exact([[1.0, 2.0], [0.0, 1.0]]), oracles.exact([3.0, 1.0])
    assert oracles.least_allowed(rows, right, 0.0) == oracles.least_l1(rows, right, True) == 2
    assert oracles.least_allowed(rows[:1], right[:1], 0.25) == Fraction(3, 2) * Fraction(
        3, 5
    )  # 2 x (1 + 1/4) = 3 (1 - 1/4)


def test_projection_of_targets_that_nothing_reaches():
    rows, right, consistent = oracles.solutions(oracles.exact([[1.0], [1.0]]), oracles.exact([1.0, 3.0]))
    assert (oracles.least_l2(rows, right), consistent) == ([2], False)


def test_one_unit_in_the_last_place_is_wrong():
    root, two = 2**0.5, oracles.exact(2.0)  # the float is above the root
    assert held(Bounds(np.nextafter(root, 0), root), two, two, 2)[0] == RIGHT
    assert held(Bounds(root, 2.0), two, two, 2)[0] == WRONG
    assert held(Bounds(np.nan, 2.0), two, two, 2)[0] == WRONG
    assert held(Bounds(0.0, np.inf), two, two, 2)[0] == UNDECIDED
    assert held(Bounds(1.0, 2.0), None, None)[0] == WRONG
