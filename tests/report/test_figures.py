"""Figures that have nothing to show are drawn all the same."""

import pytest

from penchant.report.figures import draw


def figure(y, scale):
    line = {"label": "run", "x": [1.0, 10.0], "y": y, "style": "line"}
    labels = {"x_label": "step", "y_label": "gap", "title": "Gap"}
    return {"lines": [line], "x_scale": "log", "y_scale": scale, **labels}


@pytest.mark.parametrize("y", [[0.0, 0.0], [-1.0, 0.0], [None, None], [float("inf"), 0.0]])
@pytest.mark.parametrize("scale", ["log", "linear"])
def test_a_figure_without_visible_points_is_drawn_and_says_so(y, scale, tmp_path):
    markup = draw(figure(y, scale), tmp_path / "gap.svg")
    empty = scale == "log" or y[0] is None
    assert ("Nothing to draw" in markup) is empty  # matplotlib keeps the words of a text next to its outlines
    assert (tmp_path / "gap.svg").read_text().endswith(markup)
