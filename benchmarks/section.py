"""One comparison as a table, for readers (Markdown) and for programs (JSON)."""

from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from .timing import Timing


@dataclass(frozen=True)
class Ratio:
    """The time of a peer divided by ours: above 1 we are faster."""

    value: float


def ratio(peer: Timing, ours: Timing) -> Ratio:
    return Ratio(peer.median / ours.median)


def ahead(rows: list[dict[str, Any]], *where: str) -> str:
    """Who is faster than we are, and in which rows."""
    peers = dict.fromkeys(name for row in rows for name, cell in row.items() if isinstance(cell, Ratio))
    told = []
    for name in peers:
        places = ["; ".join(str(row[key]) for key in where) for row in rows if name in row and row[name].value < 1]
        told += [f"{name.removeprefix('faster than ')} ({' | '.join(places)})"] if places else []
    return f"Faster than ours: {', '.join(told) or 'nobody'}."


@dataclass(frozen=True)
class Section:
    """Rows map column titles to cells; a missing cell is a dash."""

    name: str
    title: str
    about: str
    rows: list[dict[str, Any]]
    notes: list[str]

    def markdown(self) -> str:
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        lines = [
            columns,
            ["---"] * len(columns),
            *([_cell(row.get(column)) for column in columns] for row in self.rows),
        ]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "\n".join(f"- {note}" for note in self.notes)
        return f"## {self.title}\n\n{self.about}\n\n{table}\n\n{notes}\n"

    def json(self) -> dict[str, Any]:
        plain = lambda cell: asdict(cell) if is_dataclass(cell) else cell
        rows = [{column: plain(cell) for column, cell in row.items()} for row in self.rows]
        return {"name": self.name, "title": self.title, "about": self.about, "rows": rows, "notes": self.notes}


def seconds(value: float) -> str:
    """Three digits in the unit that suits.

    >>> seconds(0.0123), seconds(4e-6), seconds(150)
    ('12.3 ms', '4.00 µs', '150 s')
    """
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1:
            return f"{_three(value * factor)} {unit}"
    return f"{_three(value * 1e9)} ns"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:#.3g}"


def _cell(cell: Any) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, Ratio):
        return f"{cell.value:.0f}x" if cell.value >= 10 else f"{cell.value:.2g}x"
    if isinstance(cell, Timing):
        spread = f" ±{50 * (cell.high - cell.low) / cell.median:.0f} %" if cell.repeats > 1 else ""
        return seconds(cell.median) + spread
    if isinstance(cell, float):
        return f"{cell:.2g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
