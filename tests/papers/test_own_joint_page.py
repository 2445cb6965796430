"""The page of a joint run on own data explains every symbol it draws."""

import re

import penchant as pt
from penchant.case import make_case
from penchant.lab import Study
from penchant.optimisers.base import block_normalised
from penchant.report.page import render, save
from penchant.report.panel import page
from penchant.report.panels import PANELS
from penchant.settings.joint import marked_tokens
from penchant.theory.judge import optimiser_name
from penchant.training.trajectory import settings_of


def test_every_label_of_the_page_is_defined_and_every_part_told(tmp_path):
    run = pt.train(pt.settings.joint_setting(marked_tokens(3, 2, 7, 0.5, seed=4)), block_normalised(0.5), steps=200)
    result = page(make_case(None, run, "asked for none"), PANELS)
    words = " ".join([*result.definitions, *result.definitions.values()])
    for figure in result.figures:
        for label in (figure.y_label, *(line.label for line in figure.lines if line.label != "run")):
            subject = label.removeprefix("W to the ").removeprefix("u to the ").strip("|")
            assert subject in words, subject
    assert "W_mm" in words
    save(Study("own", "Own", lambda lab: result), result, tmp_path, paper="", seed=0, full=False, seconds=0.0)
    parts = re.split(r'<h3 class="part">', render(tmp_path).read_text(encoding="utf-8"))[1:]
    assert all(re.search(r"<(p|dt|td|figure)\b", part) for part in parts)


def test_an_optimiser_of_blocks_is_called_by_the_names_of_both():
    named = optimiser_name(settings_of(block_normalised(0.5, decay_W=1.0)))
    assert (
        named
        == "Blockwise(descents=[Descent(Normalised(length=0.5), L2), Descent(Normalised(length=0.5, decay=1), L2)])"
    )
