"""Panels: one diagnostic each, told to programs, to a terminal and to a page, and the page that is made of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from ..exhibits import DEFINITIONS, Figure, Finding, Result, Saved, Table, only
from ..theory.base import Hypothesis
from ..verdict import Verdict
from .figures import visible


@runtime_checkable
class Told(Protocol):
    """What panels tell of: a run, how it was made, the sentence that was judged, and the verdict."""

    @property
    def run(self) -> Saved: ...
    @property
    def made(self) -> Mapping[str, str]: ...
    @property
    def finding(self) -> Finding: ...
    @property
    def verdict(self) -> Verdict: ...


C = TypeVar("C", bound=Told)


@dataclass(frozen=True)
class Panel(Generic[C]):
    """What one diagnostic says of a case, wherever it `applies`.

    `numbers` for JSON, `lines` for the terminal (from the case and those numbers), `draw` figures and tables, `words` the definitions of what they
    show. The summary of the page has the lines by the word they begin with, or `rows` where it says something else.
    """

    applies: Callable[[C], bool]
    numbers: Callable[[C], dict] = lambda case: {}
    lines: Callable[[C, dict], Iterable[str]] = lambda case, found: ()
    rows: Callable[[C], Iterable[tuple[str, str]]] | None = None
    draw: Callable[[C], Iterable[Figure | Table]] = lambda case: ()
    words: Callable[[C], dict[str, str]] = lambda case: {}


def tell(case: C, panels: Iterable[Panel[C]]) -> tuple[dict, list[str]]:
    """The numbers of all panels that apply, and their lines."""
    content, text = {}, []
    for panel in panels:
        if panel.applies(case):
            found = panel.numbers(case)
            content |= found
            text += panel.lines(case, found)
    return content, text


def drawn_elsewhere(case: object) -> tuple:
    """No rows, of a panel whose lines are a table or a figure of the page."""
    return ()


def _rows(case: C, panel: Panel[C]) -> Iterable[tuple[str, str]]:
    if panel.rows is not None:
        return panel.rows(case)
    return ((line[:10].strip(), line[11:]) for line in panel.lines(case, panel.numbers(case)))


def page(case: C, panels: Iterable[Panel[C]]) -> Result:
    """Everything the report shows of a case: how it was made, what was found, and whatever the panels draw."""
    panels = [panel for panel in panels if panel.applies(case)]
    drawn = [one for panel in panels for one in panel.draw(case)]
    two = lambda name, title, rows, caption: Table(name, title, ("what", "value"), tuple(rows), caption)
    made = two("made", "How it was made", case.made.items(), "The command makes the same run again.")
    found = [row for panel in panels for row in _rows(case, panel)]
    return Result(
        (case.finding,),
        tuple(filter(happens, only(Figure, drawn))),
        (made, two("summary", "Prediction and outcome", found, ""), *only(Table, drawn)),
        {"run": case.run},
        DEFINITIONS | {name: meaning for panel in panels for name, meaning in panel.words(case).items()},
    )


def happens(figure: Figure) -> bool:
    """Whether anything happens on the axes of a figure: a curve of the run that can be drawn there and is not constant."""
    for line in figure.lines:
        x, y, _ = visible(vars(line), vars(figure))
        if line.style != "prediction" and len(x) > 1 and np.ptp(y) > 1e-12 * np.abs(y).max():
            return True
    return False


def hypotheses(
    found: Iterable[Hypothesis], caption: str = "A failed hypothesis does not stop the prediction."
) -> Table:
    """Conditions with slack and worst offender; what cannot be checked neither holds nor fails, and has no slack."""
    status = {True: "holds", False: "fails", None: "undecided"}
    slack = lambda one: "unknown" if np.isnan(one.slack) else f"{one.slack + 0.0:.4g}"
    rows = tuple((one.name, status[one.holds], slack(one), one.offender, one.meaning) for one in found)
    return Table("hypotheses", "Hypotheses", ("name", "status", "slack", "worst offender", "meaning"), rows, caption)
