"""Figures: those that have nothing to show are not drawn, and maps are saved with the numbers of their cells."""

import json

import numpy as np
import pytest

from penchant.cli import main
from penchant.report.figures import _edges, draw, write_csv, write_figures


def figure(y, scale):
    line = {"label": "run", "x": [1.0, 10.0], "y": y, "style": "line"}
    labels = {"x_label": "step", "y_label": "gap", "title": "Gap"}
    return {"lines": [line], "x_scale": "log", "y_scale": scale, **labels}


@pytest.mark.parametrize("y", [[0.0, 0.0], [-1.0, 0.0], [None, None], [float("inf"), 0.0]])
@pytest.mark.parametrize("scale", ["log", "linear"])
def test_a_figure_without_visible_points_is_empty_and_not_drawn(y, scale, tmp_path):
    empty = scale == "log" or y[0] is None
    study = {"name": "tiny", "figures": [figure(y, scale) | {"name": "gap"}]}
    write_figures(study, tmp_path)
    assert study["figures"][0]["empty"] is empty
    assert (tmp_path / "gap.svg").exists() is not empty
    assert (tmp_path / "gap.csv").exists()


def test_a_map_is_drawn_as_one_picture_with_a_scale_and_saved_cell_by_cell(tmp_path):
    cells = {"label": "time", "x": [0.0, 1.0, 0.0, 1.0], "y": [0.0, 0.0, 2.0, 2.0], "style": "map"}
    cells["values"] = [1.0, 2.0, None, 4.0]
    curve = {"label": "curve", "x": [0.0, 1.0], "y": [0.0, 2.0], "style": "prediction", "values": None}
    shown = {**figure([1.0, 1.0], "linear"), "x_scale": "linear", "lines": [cells, curve]}
    markup = draw(shown, tmp_path / "map.svg").read_text()
    assert markup.count("data:image/png") == 2  # the cells, and the scale of their colours
    assert all(f"<!-- {label} -->" in markup for label in ("time", "curve"))
    write_csv(shown, tmp_path / "map.csv")
    written = (tmp_path / "map.csv").read_text().splitlines()
    assert written[:4] == ["line,step,gap,value", "time,0.0,0.0,1.0", "time,1.0,0.0,2.0", "time,0.0,2.0,"]
    assert written[-1] == "curve,1.0,2.0,"


def test_the_cells_of_a_map_lie_around_their_points():
    """Of an uneven grid as well, and on the scale of the axis."""
    np.testing.assert_allclose(_edges(np.array([0.05, 0.2, 1.0]), "linear"), [-0.025, 0.125, 0.6, 1.4])
    np.testing.assert_allclose(_edges(np.array([0.01, 0.1, 1.0]), "log"), 10 ** np.array([-2.5, -1.5, -0.5, 0.5]))
    np.testing.assert_allclose(_edges(np.array([2.0]), "linear"), [1.5, 2.5])


@pytest.mark.parametrize(
    "label", ["W_mm^2 of p_1_2", "x_ $ ^ {} a_b_ q^-1", "$$ \\\\frac{", "-log(L - L*) <= 10^3, theta_1"]
)
def test_a_label_is_set_whatever_it_says(label, tmp_path):
    shown = figure([1.0, 2.0], "log") | dict.fromkeys(("title", "x_label", "y_label"), label)
    assert draw(shown, tmp_path / "label.svg").stat().st_size > 1000


def test_rounding_is_not_drawn_as_a_distance(tmp_path):
    """A descent begins along its first gradient, where 1 - corr is 1e-32: drawn, it would press all else to the edge."""
    data = tmp_path / "data.npz"
    np.savez(data, inputs=[[2.1, 0.3, 1.1], [1.2, -0.7, 0.4], [-0.9, -1.3, 0.2]], labels=[1, 1, -1])
    assert main(["train", str(data), "--optimiser", "gd", "--steps", "20", "--out", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "own-data" / "study.json").read_text())["figures"]
    lines = next(one["lines"] for one in figures if one["name"] == "direction")
    assert min(y for line in lines for y in line["y"] if y is not None) > 1e-20
    assert any(None in line["y"] for line in lines)
