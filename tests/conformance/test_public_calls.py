"""One junk argument in a valid call of anything public: it works, or an error of penchant names the argument."""

import inspect
import subprocess
import sys
import warnings
from difflib import get_close_matches
from operator import attrgetter

import numpy as np
import pytest
from public_calls import NOT_CALLED, heavy_calls, light_calls

import penchant as pt
from penchant.errors import ArgumentError


class Thing:
    """Nothing that penchant knows."""


JUNK = {
    "None": None,
    "text": "x",
    "minus one": -1,
    "nan": float("nan"),
    "inf": float("inf"),
    "huge": 10**30,
    "empty": [],
    "dict": {},
    "object": object(),
    "zeros": np.zeros(7),
    "imaginary": 1j,
    "true": True,
    "bytes": b"",
    "function": lambda *_: None,
    "class": Thing,
}


def public(name):
    """What is public, at the front or in its folder."""
    return getattr(pt, name) if name in pt.__all__ else attrgetter(f"{pt._folder(name)}.{name}")(pt)


def bare_errors(calls):
    """A line for every call with junk that ends in an error which penchant did not mean."""
    found = []
    for name, arguments in calls.items():
        for argument in arguments:
            for label, junk in JUNK.items():
                try:
                    public(name)(**{**arguments, argument: junk})
                except pt.errors.PenchantError:
                    pass
                except Exception as error:
                    found.append(f"{name}({argument}={label}): {error!r:.200}")
    return "\n".join(found)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Files that a call writes to a relative path go here."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield str(tmp_path)


def test_junk_is_refused_by_what_is_light(elsewhere):
    calls = light_calls(elsewhere)
    for name, arguments in calls.items():
        public(name)(**arguments)
    assert bare_errors(calls) == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_junk_is_refused_by_everything_else(elsewhere):
    calls = heavy_calls(elsewhere)
    assert {*light_calls(elsewhere), *calls, *NOT_CALLED} == set(pt._HOME)
    for name, arguments in calls.items():
        public(name)(**arguments)
    assert bare_errors(calls) == ""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pt.Adam(0.01), r"'eps' argument of Adam must be given.*\n.*eps=0.0, or log_eps"),
        (lambda: pt.settings.separable(sed=1), "must be left out: there is none of that name.*'sed'"),
        (
            lambda: pt.settings.separable(seed=-1),
            r"'seed' argument of separable must be an integer in \[0, 2\^62\). Got -1",
        ),
        (lambda: pt.settings.separable(1, 2, 3, 4), "too many positional arguments"),
        (
            lambda: pt.diagnostics.misalignment([1j, 1.0], [1.0, 1.0]),
            r"'weight' argument of misalignment must be made of real numbers. Got a list of dtype complex128 and shape \(2,\)",
        ),
    ],
)
def test_the_argument_is_named(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


SETTING = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())


@pytest.mark.parametrize("start", [np.zeros(7), [1j, 0.0], "x", np.zeros((3, 2))])
def test_predict_refuses_a_start_that_is_none(start):
    with pytest.raises(ArgumentError, match="'start' argument of predict"):
        pt.predict(SETTING, pt.gradient_descent(0.1), start)


def test_judge_takes_runs_only():
    with pytest.raises(ArgumentError, match="'run' argument of judge must be a run, as training returns it"):
        pt.judge(pt.predict(SETTING, pt.GradientFlow()), np.ones(2))


def test_a_number_may_be_a_large_integer():
    assert pt.MarginAbove(10**30).level == 1e30


def test_the_door_keeps_signatures_and_classes():
    assert list(inspect.signature(pt.settings.separable).parameters) == ["n", "d", "seed"]
    assert list(inspect.signature(pt.Adam).parameters) == ["step", "eps", "b1", "b2", "log_eps", "decay"]
    assert isinstance(SETTING.parametrisation, pt.Direct)
    assert pt.settings.separable.__doc__.startswith("Normal inputs")


def test_a_folder_does_not_hide_the_function_of_its_name(tmp_path):
    code = "import penchant.report.page, penchant as pt; pt.report([], 3)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "ArgumentError: The 'directory' argument of report must be a text or a path" in found.stderr


def test_descent_does_not_stop_at_levels():
    with pytest.raises(ArgumentError, match="'recorder' argument of train must be one of steps"):
        pt.train(SETTING, pt.gradient_descent(0.1), steps=3, recorder=pt.flow.Levels("margin", [1.0]))


def test_the_front_has_few_names():
    assert len(pt.__all__) == 38
    assert set(pt.__all__) <= set(dir(pt))


def test_a_name_that_is_elsewhere_says_where():
    with pytest.raises(AttributeError, match=r"it is `penchant.references.nuclear_margin`"):
        getattr(pt, "nuclear_margin")  # noqa: B009


def test_a_file_does_not_hide_the_name_of_a_folder():
    code = "import penchant.references.norm_margin, penchant as pt; pt.references.norm_margin(3, None)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ArgumentError" in found.stderr


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, penchant; print(sorted({'jax', 'numpy', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(("house", "name"), [(pt, "Clasification"), (pt.references, "nuclear_margn")])
def test_a_misspelt_name_is_answered_with_the_nearest_one(house, name):
    with pytest.raises(AttributeError, match=name) as caught:
        getattr(house, name)
    assert (caught.value.name, caught.value.obj) == (name, house)  # what Python makes its suggestion of
    assert get_close_matches(name, dir(house))
