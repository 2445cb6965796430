"""Judges and conditions at their boundary, from both sides, against bounds written out by hand."""

from dataclasses import replace

import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.alignment import alignment_floor
from penchant.diagnostics.direction import misalignment, misalignments
from penchant.papers.notes.theorems import LINEAR_NORMALISED
from penchant.papers.self_attention.theorems import short_joint_steps
from penchant.settings.generators import random_tokens
from penchant.settings.joint import marked_tokens
from penchant.settings.tokens import TokenSelection
from penchant.theory import selections as conditions
from penchant.theory.base import at_least_zero
from penchant.theory.judge import judge_direction
from penchant.verdict import Outcome

SIDES = pytest.mark.parametrize(("side", "holds"), [(1 - 1e-9, True), (1 + 1e-9, False)])
# Two tokens of length 2 and a query of length 2: B^2 = 4. The score gap is 3, the best score 1.
PAIR = TokenSelection([[[2.0, 0.0], [0.0, 2.0]]], scores=[[1.0, -2.0]], queries=[[0.0, 2.0]])


@SIDES
def test_conditions_on_steps_of_token_selection(side, holds):
    assert conditions.short_steps(side / 8, PAIR).holds is holds
    slope = 3 * np.exp(2.0)  # deficit times |l'| where the worst token has all attention
    assert conditions.small_step_size(side / 8 / (0.5 * 4 * slope), PAIR, pt.Exponential()).holds is holds


@SIDES
def test_polyak_is_stable_up_to_chi_over_c_of_two(side, holds):
    """Features e_1 f' and 2 e_2 f' with |f| = 1: |W_mm|^2 = 1 + 1/4, shares 4/5 and 1/5, and chi = 5/4 (8/5 - 4/5)."""
    data = TokenSelection(
        [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]], scores=[[1.0, 0.0]] * 2, queries=[[0.6, 0.8]] * 2
    )
    best = pt.references.max_margin(data)
    assert conditions.stability_number(data, best) == pytest.approx(1.0, rel=1e-9)
    assert conditions.stable_polyak(data, best, 0.5 * (1 + (1 - side) * 1e3)).holds is holds
    assert conditions.stable_normalised(data, best, 2 * best.value * (1 - (1 - side) * 1e3)).holds is holds


@SIDES
def test_conditions_on_steps_elsewhere(side, holds):
    data = marked_tokens(3, 2, 5, seed=1)
    longest = float(np.linalg.norm(np.asarray(data.tokens), axis=-1).max())
    assert short_joint_steps(side / (4 * longest**2), data).holds is holds
    setting = pt.Setting(pt.Classification([[3.0, 4.0], [1.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
    found = LINEAR_NORMALISED.predict(setting, pt.normalised_descent(side / 5)).hypotheses
    assert next(one for one in found if one.name == "short_steps").holds is holds


def test_a_condition_holds_where_its_slack_is_not_negative():
    assert [at_least_zero("one", slack).holds for slack in (1e-300, 0.0, -1e-300)] == [True, True, False]


@pytest.mark.parametrize(("gram", "holds"), [(1 / 24 - 1e-12, True), (1 / 24 + 1e-12, False)])
def test_tokens_are_nearly_orthogonal_up_to_one_over_4nT(gram, holds):
    """Three samples of two tokens: 4 n T = 24; two unit tokens have this inner product, all others are orthogonal."""
    tokens = np.eye(6).reshape(3, 2, 6)
    tokens[0, 1, 2] = gram
    tokens[0, 1, 1] = np.sqrt(1 - gram**2)
    data = TokenSelection(tokens, scores=[[1.0, 0.0]] * 3)
    assert conditions.near_orthogonal_tokens(data).holds is holds


def _tilted(reference, corr):
    """The reference turned until 1 - corr is this."""
    unit = reference / np.linalg.norm(reference)
    return (1 - corr) * unit + np.sqrt(1 - (1 - corr) ** 2) * np.array([-unit[1], unit[0]])


def _asked():
    """Inputs around one axis: a direction far off still separates, so that 1 - corr alone decides."""
    setting = pt.Setting(pt.Classification([[1.0, 0.2], [1.0, -0.1]], [1, 1]), pt.Direct(), pt.Exponential())
    return pt.predict(setting, pt.GradientFlow())


@pytest.mark.parametrize(("corr", "outcome"), [(0.0099, Outcome.confirmed), (0.0101, Outcome.undecided)])
def test_a_direction_is_confirmed_up_to_one_per_cent(corr, outcome):
    alone = replace(_asked(), rivals=())
    assert judge_direction(alone, _tilted(alone.reference.weight, corr)).outcome is outcome


@pytest.mark.parametrize(("share", "outcome"), [(0.099, Outcome.confirmed), (0.101, Outcome.undecided)])
def test_a_direction_is_confirmed_up_to_a_tenth_of_the_distance_to_the_nearest_rival(share, outcome):
    asked = _asked()
    near = replace(asked.rivals[0], weight=_tilted(asked.reference.weight, 0.02), separation=0.02)
    found = judge_direction(replace(asked, rivals=(near,)), -_tilted(-asked.reference.weight, 0.02 * share))
    assert found.outcome is outcome


def test_what_a_start_has_outside_the_span_counts_in_gram_form():
    data = random_tokens(3, 3, 4, 0)
    origin = np.random.default_rng(1).standard_normal(data.weight_shape)
    gram = pt.Setting(data, pt.settings.Gram(data, origin), pt.Exponential())
    run = pt.train(gram, pt.normalised_descent(0.1), steps=30)
    best = pt.references.max_margin(data)
    assert float(gram.parametrisation.frozen) > 1
    wanted = [misalignment(run.weight(k), best.weight) for k in range(len(run))]
    assert misalignments(run, best) == pytest.approx(wanted, rel=1e-9)


def test_the_alignment_floor_by_hand():
    """Lemmas 2 and 8: 1 - (D + later traces + |W_2(0)|^2 + |W_1(0)|^2) / |W_2|^2, in spectral norms."""
    start = [np.diag([3.0, 1.0]), np.array([[2.0, 0.0]])]
    layers = [np.diag([7.0, 1.0]), np.array([[10.0, 0.0]])]
    constant = 10 - 4 + 5  # largest square minus the last, plus |diag(9, 1) - diag(4, 0)|
    assert alignment_floor(layers, start).tolist() == pytest.approx([1 - (constant + 4 + 9) / 100], rel=1e-12)
    traces = np.array([0.5, 0.25])
    found = alignment_floor(layers, start, traces)
    assert found.tolist() == pytest.approx([1 - (constant + 0.75 + 4 + 9) / 100], rel=1e-12)
