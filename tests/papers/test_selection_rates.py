"""Rates of token selection: the tables of momentum and acceleration against what theory says of them, and a study's old names."""

import pytest

import penchant as pt
from penchant.commands.claims import find_study
from penchant.papers import new_lab
from penchant.papers.self_attention.evidence import preset
from penchant.papers.self_attention.figures import naive_error

LAB = new_lab()


@pytest.mark.slow
def test_the_flow_at_margin_1e6_has_the_direction_to_nine_digits():
    setting, reference = preset(LAB, "E")
    run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e6))
    assert pt.diagnostics.misalignment(run.weight(), reference.weight) <= 1e-9


def test_the_plain_gradient_is_wrong_in_its_second_digit_at_margin_36_and_noise_at_40():
    errors = [naive_error(*preset(LAB, "H"), margin) for margin in (10.0, 36.0, 40.0)]
    assert errors[0] < 1e-6
    assert errors[1] > 0.01
    assert errors[2] > 0.5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self-attention-antipodal", "self-attention"),
        ("momentum-and-acceleration", "self-attention"),
        ("polyak-stability", "self-attention-hard"),
        ("local-global-phase", "local-directions"),
    ],
)
def test_a_study_that_was_taken_in_is_found_by_its_old_name(old, new):
    assert find_study(old)[1].name == new
