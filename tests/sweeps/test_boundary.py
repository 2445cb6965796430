"""Shares with intervals, and boundaries that are refined where they are not decided."""

import numpy as np
import pytest
from scipy import stats
from scipy.stats import beta

from penchant.errors import PenchantError
from penchant.sweeps.boundary import holds, mean, of_cells, refine, scaled, share, summary
from penchant.sweeps.spec import read_spec
from penchant.sweeps.sweep import Runs

AXES = {
    "x": {"key": "first", "low": 0.1, "high": 10.0, "spacing": "log"},
    "y": {"key": "second", "low": 0.0, "high": 2.0},
}


def spec_of(event="value > 0", **more):
    found = {"generator": "local_pair", "boundary": {**AXES, "event": event, "runs": 600, "batch": 100, **more}}
    return read_spec(found | {"seeds": more.pop("seeds", [0])} if "seeds" in more else found)


def curve(u):
    return 0.5 + 0.3 * np.sin(2 * np.pi * u)


def known(rows):
    """Runs whose outcome is known: above the curve, in the unit square of the axes."""
    u = np.array([np.log(row["first"] / 0.1) / np.log(100) for row in rows])
    v = np.array([row["second"] / 2 for row in rows])
    return Runs([{**row, "status": "done", "value": one} for row, one in zip(rows, v - curve(u), strict=True)])


def test_intervals_are_those_of_the_books():
    found = share([True] * 3 + [False] * 7)
    assert np.allclose(found, (0.3, beta.ppf(0.025, 3, 8), beta.ppf(0.975, 4, 7)))
    assert share([None, None]) == pytest.approx((np.nan, 0.0, 1.0), nan_ok=True)
    middle, low, high = mean([1.0, 2.0, 3.0, None, np.nan])
    assert (middle, round(high - low, 4)) == (2.0, 4.9683)  # 2 * 4.3027 / sqrt(3)


def test_a_failed_run_decides_nothing():
    assert holds("value > 0", {"status": "failed", "value": 1.0}) is None
    assert holds("status == failed", {"status": "failed"}) is True
    rows = [
        {"d": 4, "status": "done", "value": 1.0},
        {"d": 4, "status": "failed"},
        {"d": 8, "status": "done", "value": -1.0},
    ]
    assert [(cell["runs"], cell["share"]) for cell in summary(rows, ("d",), "value > 0")] == [(2, 1.0), (1, 0.0)]


def test_points_gather_at_the_boundary_and_the_band_holds_it():
    pytest.importorskip("adaptive")
    found = refine(spec_of(), known).refined
    assert len(found.points) == 600
    near = np.abs(found.points[:, 1] - curve(found.points[:, 0])) < 0.05
    assert near.mean() > 0.5  # a grid has some 0.1
    columns = np.linspace(0.02, 0.98, 40)
    middle, low, high = found.band(columns).T
    assert ((low <= curve(columns)) & (curve(columns) <= high)).all()
    assert np.max(high - low) < 0.15
    assert np.abs(middle - curve(columns)).max() < 0.05
    assert found.figure("f").lines[0].x.min() >= 0.1
    assert found.figure("f").caption.startswith("600 points, 1 run each")


def test_a_boundary_of_shares_is_open_where_intervals_straddle():
    pytest.importorskip("adaptive")
    spec = read_spec(
        {
            "generator": "local_pair",
            "seeds": "0:8",
            "boundary": {**AXES, "event": "value > 0", "runs": 800, "batch": 50},
        }
    )

    def noisy(rows):
        found = known(rows).rows
        noise = np.random.default_rng([row["seed"] for row in rows]).normal(0, 0.1, len(rows))
        return Runs([{**row, "value": row["value"] + one} for row, one in zip(found, noise, strict=True)])

    found = refine(spec, noisy).refined
    assert len(found.points) == 100
    far = np.abs(found.points[:, 1] - curve(found.points[:, 0])) > 0.35
    assert (np.sign(found.points[far, 1] - curve(found.points[far, 0])) == found.side[far]).all()
    assert (found.side == 0).any()


def test_an_event_about_no_column_is_said():
    rows = [{"d": 4, "status": "done", "value": 1.0}, {"d": 4, "status": "failed"}]
    with pytest.raises(PenchantError, match=r"'event'.*d, status, value.*'margin'"):
        summary(rows, ("d",), "margin > 0")
    with pytest.raises(PenchantError, match=r"'measure'.*'speed'"):
        summary(rows, ("d",), "speed")
    with pytest.raises(PenchantError, match="'event'"):
        refine(spec_of("margin > 0"), known)
    assert summary(rows[1:], ("d",), "margin > 0")[0]["runs"] == 1  # where all failed, nobody knows the columns


@pytest.mark.parametrize("width", [0.02, 0.1])
def test_the_band_of_shares_is_narrow_and_holds_the_boundary(width):
    """Thresholds that differ from seed to seed, around a known median: steep ones, within a triangle, and those that many points see."""
    pytest.importorskip("adaptive")
    asked = {**AXES, "event": "value > 0", "runs": 3000, "batch": 300}
    spec, rng = read_spec({"generator": "local_pair", "seeds": "0:30", "boundary": asked}), np.random.default_rng(5)
    shift = width * stats.norm.ppf((rng.permutation(30) + 0.5) / 30)  # of median 0
    own = lambda rows: [{**row, "value": row["value"] + shift[row["seed"]]} for row in known(rows).rows]
    found = refine(spec, lambda rows: Runs(own(rows))).refined
    columns = np.linspace(0.02, 0.98, 40)
    middle, low, high = found.band(columns).T
    assert ((low <= curve(columns)) & (curve(columns) <= high)).all()
    assert np.mean(high - low) < 0.12
    assert np.abs(middle - curve(columns)).max() < 0.05


def test_two_points_that_disagree_leave_all_between_them_open():
    """A share of 0 beside one of 1: where it crosses between them nobody has seen, and no interpolation says."""
    ends = {"key": "first", "low": 0.0, "high": 1.0, "spacing": "linear"}
    cells = [
        {"first": x, "second": y, "runs": 20, "share": s, "low": low, "high": high}
        for x in (0.0, 1.0)
        for y, (s, low, high) in {0.0: share([False] * 20), 1.0: share([True] * 20)}.items()
    ]
    _, low, high = of_cells(cells, (ends, {**ends, "key": "second"}), "value > 0").band(np.array([0.3, 0.6])).T
    assert (high - low > 0.99).all()


def test_axes_are_linear_or_logarithmic():
    assert scaled(AXES["x"], np.array([0.0, 0.5, 1.0])) == pytest.approx([0.1, 1.0, 10.0])
    assert scaled({**AXES["y"], "spacing": "linear"}, np.array([0.0, 0.5])) == pytest.approx([0.0, 1.0])
