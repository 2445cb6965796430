"""Verdicts on token selection where the direction is near the reference and attention is elsewhere, and their rivals."""

import jax.numpy as jnp
import numpy as np

import penchant as pt
from penchant.verdict import Outcome

RULE = pt.normalised_descent(1e-9)
# One common query and the features 0.05 e_1 and e_2: W_mm = (20, 1), from which (20, -1) is only 1 - corr = 0.005 away.
FLAT = pt.TokenSelection(
    [[[0.05, 0.0, 1.0], [0.0, 0.0, 1.0]], [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]],
    scores=[[1.0, 0.0], [1.0, 0.0]],
    queries=[[0.0, 0.0, 1.0]] * 2,
)


def verdict_at(column, data=FLAT, rule=RULE, steps=1):
    """The verdict on a run from this column of W, at which one tiny step leaves it."""
    setting, weight = pt.Setting(data, pt.Direct(), pt.Exponential()), np.zeros((3, 3))
    weight[:, 2] = column
    run = pt.train(setting, rule, jnp.asarray(weight), steps=steps)
    return pt.judge(pt.predict(setting, rule), run), float(run.margins[-1].min())


def test_a_start_at_the_reference_confirms_nothing_before_training_has_outgrown_it():
    still, margin = verdict_at([200.0, 10.0, 0.0])
    assert margin > 0
    assert still.measured < still.predicted
    assert still.outcome is Outcome.undecided
    assert "still that of the start" in still.inequality
    moved, _ = verdict_at([200.0, 10.0, 0.0], rule=pt.normalised_descent(2.0), steps=150)
    assert moved.outcome is Outcome.confirmed


def test_a_wrong_token_is_refuted_however_near_the_direction_is():
    wrong, margin = verdict_at([200.0, -10.0, 0.0])
    assert margin < -9
    assert wrong.measured < wrong.predicted  # near enough, were it not for the tokens
    assert wrong.outcome is Outcome.refuted
    assert "attention is on the tokens [0, 1]" in wrong.inequality
    between, _ = verdict_at([200.0, -4.0, 0.0])  # not at the direction of the tokens it has reached either
    assert between.outcome is Outcome.undecided
    assert "attention is on the tokens [0, 1]" in between.inequality


def test_attention_on_a_tied_token_is_not_confirmed_without_a_margin():
    """Tokens 0 and 1 of the second sample are equally good; attention on 1, with token 0 behind token 2."""
    tokens = np.array([[[0.05, 0, 1], [0, 0, 1], [0, 0, 1]], [[0, 1, 1], [0.05, 1, 1], [0, 0, 1]]], float)
    data = pt.TokenSelection(
        tokens, scores=[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]], queries=[[0.0, 0.0, 1.0]] * 2, ties="keep"
    )
    verdict, margin = verdict_at([300.0, -10.0, 0.0], data)
    assert margin < 0
    assert verdict.measured < verdict.predicted
    assert verdict.outcome is Outcome.undecided
    assert "the smallest margin is -10" in verdict.inequality


def test_of_many_flips_those_that_lose_the_least_score_are_tried():
    """Along an axis of its own each sample has the tokens -2, 1, 0: 1 is locally optimal, since -2 is no active neighbour of it."""
    n = 20
    tokens = np.zeros((n, 3, n + 1))
    tokens[np.arange(n), :, np.arange(n)], tokens[:, :, n] = [-2.0, 1.0, 0.0], 1.0
    lost = np.linspace(2.0, 1.0, n)  # the last samples have the most to say
    scores = np.stack([np.full(n, 3.0), 3.0 - lost, np.zeros(n)], axis=1)
    data = pt.TokenSelection(tokens, scores=scores, queries=np.eye(n + 1)[[n] * n])
    prediction = pt.predict(pt.Setting(data, pt.Direct(), pt.Exponential()), RULE)
    (note,) = (note for note in prediction.notes if note.startswith("rivals"))
    assert "of the 40 selections one sample away, the 12" in note
    assert note.endswith("28 were left out")
    nearest = {f"tokens {np.eye(n, dtype=int)[sample].tolist()}" for sample in range(n - 12, n)}
    assert {rival.name for rival in prediction.rivals} == {"first gradient", *nearest}


def test_neither_the_first_step_nor_none_decides():
    data = pt.TokenSelection(
        scores=[[1.0, 0.0], [1.0, 0.0]], tokens=[[[1.0, 0.0], [0.5, 1.0]], [[0.0, 1.0], [2.0, 0.5]]]
    )
    setting, rule = pt.Setting(data, pt.Direct(), pt.Exponential()), pt.normalised_descent(100.0)
    prediction = pt.predict(setting, rule)
    one = pt.judge(prediction, pt.train(setting, rule, steps=1))
    assert one.outcome is Outcome.undecided
    assert "the norm has not doubled" in one.inequality
    none = pt.judge(prediction, pt.train(setting, rule, 1e3 * prediction.reference.weight, steps=0))
    assert none.outcome is Outcome.undecided
    assert "no step was taken" in none.inequality


def test_a_start_that_attends_to_wrong_tokens_breaks_the_hypothesis_on_starts():
    data = pt.TokenSelection(
        scores=[[1.0, 0.0], [1.0, 0.0]], tokens=[[[1.0, 0.0], [0.5, 1.0]], [[0.0, 1.0], [2.0, 0.5]]]
    )
    setting, rule = pt.Setting(data, pt.Direct(), pt.Exponential()), pt.normalised_descent(0.01)
    away = -50 * pt.references.max_margin(data).weight
    held = {one.name: one for one in pt.predict(setting, rule, away).hypotheses}
    assert held["small_start"].holds is False
    assert {one.name: one for one in pt.predict(setting, rule, 0 * away).hypotheses}["small_start"].holds
