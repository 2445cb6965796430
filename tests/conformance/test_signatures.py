"""The front door in words: no public signature says `Any`, and what a user prints is readable."""

import inspect
import typing
from importlib import import_module

import pytest

import penchant as pt
from penchant.case import make_case

OPEN = {
    "train"
}  # one run, or a list of them where a number of the optimiser or an array of the start has an axis more: no type says so


def says_any(hint):
    if getattr(typing.get_origin(hint), "__module__", "").startswith("numpy"):
        return False  # an array of any numbers
    return hint is typing.Any or any(says_any(part) for part in typing.get_args(hint))


def untyped():
    for name, place in pt._HOME.items():
        thing = getattr(import_module(f"penchant.{place}"), name)
        if inspect.isfunction(thing) or hasattr(thing, "__dataclass_fields__"):
            signature = inspect.signature(thing)
            hints = [*(one.annotation for one in signature.parameters.values()), signature.return_annotation]
            if any(map(says_any, hints)):
                yield name


def test_no_public_signature_says_any():
    assert set(untyped()) == OPEN


@pytest.fixture(scope="module")
def case():
    setting = pt.Setting(pt.Classification([[2.0, 0.5], [0.1, -1.0]], [1, -1]), pt.Direct(), pt.Exponential())
    prediction = pt.predict(setting, pt.GradientFlow())
    return make_case(prediction, pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e4)))


def test_a_case_and_its_parts_are_readable(case):
    for part, words in (
        (case.prediction, "<Prediction max-margin: l2 reference"),
        (case.run, "<Trajectory of "),
        (case.verdict, "<Verdict confirmed: 1 - corr to the l2 reference"),
        (case, "<Case <Prediction max-margin"),
    ):
        assert repr(part).startswith(words)
        assert len(repr(part)) < 400
    assert isinstance(case, pt.Case)
    assert str(case).startswith("theorem    max-margin")
    assert "verdict" not in str(case).split("\n")[0]


def test_a_case_need_not_have_a_prediction(case):
    assert isinstance(case, pt.Case)  # behind the door from here on
    assert make_case(None, case.run, "nothing separates").verdict.headline == "undecided"


def test_notebooks_get_escaped_html(case):
    assert case._repr_html_().endswith(case.verdict._repr_html_())
    assert case.verdict._repr_html_().startswith("<b>confirmed</b>: ")
    for part in (case.prediction, case.run):
        assert part._repr_html_().startswith("<pre>")
    assert "&lt;=" in case.verdict._repr_html_()
