"""The page of a joint run on own data explains every symbol it draws."""

import penchant as pt
from penchant.case import make_case
from penchant.optimisers.base import block_normalised
from penchant.report.panel import page
from penchant.report.panels import PANELS
from penchant.settings.joint import marked_tokens


def test_every_label_of_the_page_is_defined():
    run = pt.train(pt.settings.joint_setting(marked_tokens(3, 2, 7, 0.5, seed=4)), block_normalised(0.5), steps=200)
    result = page(make_case(None, run, "asked for none"), PANELS)
    words = " ".join([*result.definitions, *result.definitions.values()])
    for figure in result.figures:
        for label in (figure.y_label, *(line.label for line in figure.lines if line.label != "run")):
            subject = label.removeprefix("W to the ").removeprefix("u to the ").strip("|")
            assert subject in words, subject
    assert "W_mm" in words
