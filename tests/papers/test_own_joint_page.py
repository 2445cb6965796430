"""The page of a joint run on own data explains every symbol it draws."""

from penchant.report.own.joint import page

from penchant.optimisers.joint import BlockNormalised
from penchant.settings.joint import marked_tokens
from penchant.theory.joint_limits import detect_joint_limit
from penchant.training.joint import train_joint
from penchant.verdict import at_most


def test_every_label_of_the_page_is_defined():
    run = train_joint(marked_tokens(3, 2, 7, 0.5, seed=4), BlockNormalised(0.5), steps=200)
    result = page(None, run, at_most(0.0, 1.0, "gap"), detect_joint_limit(run))
    words = " ".join([*result.definitions, *result.definitions.values()])
    for figure in result.figures:
        for label in (figure.y_label, *(line.label for line in figure.lines if line.label != "run")):
            subject = label.removeprefix("W to the ").removeprefix("u to the ").strip("|")
            assert subject in words, subject
    assert "W_mm" in words
