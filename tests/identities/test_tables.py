"""Tables of independent runs, digit by digit."""

from itertools import pairwise

import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.direction import misalignments
from penchant.diagnostics.rates import rate
from penchant.settings.generators import signal_tokens
from problems import sharp_constant

pytestmark = pytest.mark.slow  # the claims on the same runs are in the fast lane

# Printed values were rounded twice (to five digits, then to four): half a unit of the fourth digit, and a tenth of that.
DIGITS = 0.55

PRESETS = {
    "E": (signal_tokens(), 0.8247632429, 50, 0.05),
    "H": (signal_tokens(20, 5, 50, 1.0, 0.1), 5.7573143889, 80, 0.1),
    "antipodal": (signal_tokens(antipodal=True), 0.8376746143, 50, 0.05),
}
TABLE = {
    ("E", "gd"): (4.818e-3, 7.361e-4, 4.678e-4, 3.499e-4),
    ("E", "ngd"): (7.484e-3, 6.354e-4, 1.907e-5, 1.912e-7),
    ("E", "momentum"): (6.079e-3, 2.302e-5, 1.948e-7, 1.916e-9),
    ("E", "polyak"): (2.863e-4, 6.619e-6, 6.986e-8, 7.024e-10),
    ("E", "polyak capped"): (5.591e-4, 3.946e-4, 2.989e-4, 2.345e-4),
    ("E", "ngd capped"): (7.484e-3, 6.354e-4, 2.774e-4, 2.202e-4),
    ("H", "gd"): (0.2202, 0.2173, 2.619e-2, 7.169e-3),
    ("H", "ngd"): (0.2352, 7.940e-2, 1.501e-3, 3.187e-5),
    ("H", "momentum"): (0.2222, 1.927e-3, 3.266e-5, 3.266e-7),
    ("H", "polyak"): (2.812e-3, 8.861e-5, 9.849e-7, 9.871e-9),
    ("antipodal", "gd"): (1.266e-2, 1.357e-3, 7.041e-4, 4.826e-4),
    ("antipodal", "ngd"): (1.817e-2, 1.116e-3, 2.271e-5, 2.276e-7),
    ("antipodal", "momentum"): (1.523e-2, 2.763e-5, 2.319e-7, 2.280e-9),
    ("antipodal", "polyak"): (3.676e-4, 7.654e-6, 8.059e-8, 8.102e-10),
}
ENDS = {  # norm and log excess after 1e4 steps on E
    "gd": (8.408, -9.594),
    "ngd": (499.99, -605.62),
    "momentum": (4995.4, -6056.2),
    "polyak": (8250.1, -10002.0),
}


def optimiser(name, length):
    return {
        "gd": pt.gradient_descent(1.0),
        "ngd": pt.normalised_descent(length),
        "momentum": pt.momentum(length),
        "polyak": pt.polyak(),
        "polyak capped": pt.polyak(cap=100.0),
        "ngd capped": pt.normalised_descent(length, cap=100.0),
        "accelerated": pt.Accelerated(0.5 / float(np.asarray(PRESETS["E"][0].gram()).diagonal().max())),
    }[name]


def run_of(preset, name):
    data, _, _, length = PRESETS[preset]
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    return pt.train(setting, optimiser(name, length), steps=10_000, recorder=pt.training.At((10, 100, 1000)))


def unit(value, digits=4):
    """One unit in the last printed digit."""
    return 10.0 ** (np.floor(np.log10(np.abs(value))) - digits + 1)


@pytest.mark.parametrize("preset", PRESETS)
def test_reference_norm_and_support(preset):
    data, norm, support, _ = PRESETS[preset]
    best = pt.references.max_margin(data)
    assert best.value == pytest.approx(norm, abs=5.1e-11)  # ten decimals given
    assert best.support.sum() == support


@pytest.mark.parametrize(("preset", "name"), TABLE)
def test_misalignment_after_10_to_10000_steps(preset, name):
    wanted = np.array(TABLE[preset, name])
    found = misalignments(run_of(preset, name), pt.references.max_margin(PRESETS[preset][0]))[1:]
    assert (np.abs(found - wanted) <= DIGITS * unit(wanted)).all(), found


@pytest.mark.parametrize("name", ENDS)
def test_norm_and_log_excess_at_the_end(name):
    run, (norm, log_excess) = run_of("E", name), ENDS[name]
    assert abs(run.norm[-1] - norm) <= 0.55 * unit(norm, 5 if name != "gd" else 4)
    assert abs(run.log_excess[-1] - log_excess) <= 0.55 * unit(log_excess, 5 if name != "gd" else 4)


def test_order_of_the_rules_is_the_same_at_every_time_from_100_on():
    for preset in PRESETS:
        best = pt.references.max_margin(PRESETS[preset][0])
        curves = [misalignments(run_of(preset, name), best)[2:] for name in ("polyak", "momentum", "ngd", "gd")]
        assert all((fast < slow).all() for fast, slow in pairwise(curves))


def test_accelerated_margin_maximisation_reaches_1e_13():
    found = misalignments(run_of("E", "accelerated"), pt.references.max_margin(PRESETS["E"][0]))
    assert found[-1] == pytest.approx(1.73e-13, rel=3e-3)  # three digits given
    assert found[-1] / found[-2] == pytest.approx(1e-4, rel=0.05)  # exponent -4 over the last decade


def test_gradient_descent_time_times_excess():
    run = run_of("E", "gd")
    assert 1e4 * np.exp(run.log_excess[-1]) / 0.8247632429**2 == pytest.approx(1.0017, abs=2e-4)  # 1.0017(1)


def test_sharp_constant_of_the_antipodal_preset():
    data = PRESETS["antipodal"][0]
    best = pt.references.max_margin(data)
    assert sharp_constant(data, best.dual) == pytest.approx(0.0568819709, abs=5.1e-11)  # ten decimals given
    end = run_of("antipodal", "momentum")
    assert end.norm[-1] ** 2 * misalignments(end, best)[-1] == pytest.approx(0.0568819709, rel=1e-6)


@pytest.mark.slow
def test_gradient_descent_grows_with_log_time_and_has_not_reached_its_constant():
    sets = [signal_tokens(seed=seed) for seed in range(10)]
    settings = [pt.Setting(data, pt.settings.Gram(data), pt.Exponential()) for data in sets]
    runs = pt.train(settings, pt.gradient_descent(1.0), steps=10_000, recorder=pt.training.At((1000,)))
    bests = [pt.references.max_margin(data) for data in sets]
    growth = [(run.norm[-1] - run.norm[1]) / np.log(10) / best.value for run, best in zip(runs, bests, strict=True)]
    assert np.mean(growth) == pytest.approx(1.0059, abs=2e-4)  # 1.0059(2)
    ratios = [
        run.norm[-1] ** 2 * misalignments(run, best)[-1] / sharp_constant(data, best.dual)
        for run, best, data in zip(runs, bests, sets, strict=True)
    ]
    found = rate(ratios)
    assert (round(found.slope, 3), round((found.high - found.low) / 2, 3)) == (0.584, 0.030)
