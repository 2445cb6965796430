"""Studies and verdicts as files, and one self-contained HTML page from what is saved: reads files only, never trains, needs no network."""

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import singledispatch
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, cast

import numpy as np

from .. import __version__
from ..cache import fingerprint
from ..errors import DataFileError
from ..exhibits import DEFINITIONS, Finding, Result, Table, measured, plain, shown
from ..files import check_mark, load_npz, mark, write_bytes
from ..lab import KINDS, Study
from ..verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

_STILL = 1e-3  # of its whole rise between two points: a curve that moves less stands still
_COLOURS = [
    "#1b5e8c",
    "#c2452d",
    "#3c8d40",
    "#8a5aa8",
    "#b8860b",
    "#4d4d4d",
    "#d1679f",
    "#2aa6a1",
    "#7a5230",
    "#9aa83a",
]
# A work from its first author to its year (and arXiv number) or, for lecture notes, to its chapter; remarks after a semicolon are none.
_WORK = re.compile(r"[A-Z][^;]*?(?:\b(?:19|20)\d\d\b(?:, arXiv [\d.]+\d)?|chapter \d+: [^,;]*)")

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # of a file next to a study: nothing that leads elsewhere
_VERDICT = {"outcome": str, "inequality": str, "detail?": str, "headline?": str, "hypotheses?": str}
_SHAPES = {  # what a page shows of a saved file
    "study": {
        "name": str,
        "title": str,
        "findings": [{"statement": str, "verdict": _VERDICT, "citation?": str}],
        "figures": [{"name": str, "caption": str}],
        "tables": [{"title": str, "columns": [str], "rows": [list], "caption": str}],
        "definitions": {"*": str},
        "runs?": {"*": str},
    },
    "ledger": {
        "claims": [
            dict.fromkeys(
                ("claim", "statement", "citation", "verdict", "expected", "inequality", "detail", "twin"), str
            )
            | {"seconds": int | float, "paper?": str, "kind?": str, "repair?": str, "repaired?": str}
        ],
        "unfinished?": int,
        "coverage?": [
            {**dict.fromkeys(("paper", "item", "words", "note", "status"), str), "claims": {"*": str}, "studies": [str]}
        ],
    },
}


def render(directory: str | os.PathLike) -> Path:
    """Make `index.html` from the ledger and the studies saved under a directory, with each figure and its data next to it."""
    root = Path(directory)
    if root.is_file():
        raise DataFileError(
            f"'{root}' is a file: `report` takes the directory that `--out` wrote. `penchant train {root} --out DIR` makes one from data, `penchant probe {root} --out DIR` from the record of a network."
        )
    if not root.is_dir():
        raise DataFileError(
            f"There is no directory '{root}'. Make one with `penchant study NAME --out {root}` or `penchant verify --out {root}`."
        )
    studies = [_study(path) for path in sorted(root.glob("*/study.json")) if _inside(path.parent, root)]
    ledger = read_saved(root / "ledger.json", "ledger") if (root / "ledger.json").exists() else None
    if not studies and ledger is None:
        raise DataFileError(
            f"'{root}' holds neither a ledger.json nor any study.json: nothing to report. It must be a directory that penchant wrote."
        )
    for study in studies:
        for figure in study["figures"]:
            _draw(figure, root / study["name"])
    from jinja2 import Environment, PackageLoader, select_autoescape

    claims = ledger["claims"] if ledger else []
    environment = Environment(
        loader=PackageLoader("penchant", "report"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("page.html").render(
        studies=studies,
        claims=claims,
        groups=_groups(claims),
        kinds=KINDS,
        coverage=ledger.get("coverage", []) if ledger else [],
        unfinished=ledger.get("unfinished") if ledger else 0,
        counts=Counter(claim["verdict"] for claim in claims),
        citations=_citations(studies, claims),
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    return write_bytes(root / "index.html", page.encode())


def _inside(folder: Path, root: Path) -> bool:
    """Whether a folder lies in the directory itself: a link to another place is nothing to write to."""
    return folder.resolve().parent == root.resolve()


def _check_names(owner: str, *names: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            wanted = "at most 200 letters, digits, '.', '-' and '_' only, and lie next to it"
            raise DataFileError(f"{owner} names the file {name!r}: names have {wanted}.")


def _study(path: Path) -> dict:
    study = read_saved(path, "study")
    study["name"] = path.parent.name
    _check_names(f"'{path}'", *(study.get("runs") or {}).values(), *(figure["name"] for figure in study["figures"]))
    for file in (study.get("runs") or {}).values():
        load_npz(path.parent / file)
    return study


def _draw(figure: dict, folder: Path) -> None:
    try:
        figure["svg"] = draw(figure, folder / f"{figure['name']}.svg")
        write_csv(figure, folder / f"{figure['name']}.csv")
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # whatever is missing from it, it is not ours
        raise DataFileError(
            f"Figure '{figure['name']}' in '{folder / 'study.json'}' cannot be drawn ({type(error).__name__}: {error}).\n"
            "  Usual cause: the file was edited by hand.\n  Fix: run the study again with the same --out."
        ) from None


def read_saved(path: Path, kind: str) -> dict:
    """A saved study or ledger, of the version that this penchant writes and with every part a page shows."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise DataFileError(
            f"'{path}' cannot be read ({error}).\n  Usual causes: (a) the copy was cut short; (b) it was edited by hand.\n  Fix: run the study again with the same --out."
        ) from None
    check_mark(content.get("format") if type(content) is dict else None, (kind,), path)
    _check_shape(_SHAPES[kind], content, f"'{path}' is not a penchant {kind}: it")
    return content


def _require(kind: type | UnionType, value: object, where: str) -> None:
    if not isinstance(value, kind):
        raise DataFileError(f"{where} is {value!r:.80}.")


# Refuse what a page cannot show: a shape is a type, a list of one shape, or shapes by key, with '?' after a key that may be missing.
_check_shape = singledispatch(_require)


@_check_shape.register
def _(shape: list, value: object, where: str) -> None:
    _require(list, value, where)
    for number, item in enumerate(cast(list, value)):
        _check_shape(shape[0], item, f"{where}[{number}]")


@_check_shape.register
def _(shape: dict, value: object, where: str) -> None:
    _require(dict, value, where)
    value = cast(dict, value)
    for key, part in shape.items():
        name = key.removesuffix("?")
        if key == "*":
            for own, item in value.items():
                _check_shape(part, item, f"{where}[{own!r}]")
        elif name in value:
            _check_shape(part, value[name], f"{where}['{name}']")
        elif key == name:
            raise DataFileError(f"{where} has no '{name}'.")


def _groups(claims: list[dict]) -> dict[str, dict[str, list[dict]]]:
    """Claims by paper, in the order of the ledger, and by kind, in the order of `KINDS`."""
    papers = dict.fromkeys(claim.get("paper", "") for claim in claims)
    kinds = [*KINDS, ""]
    chosen = lambda paper, kind: [one for one in claims if (one.get("paper", ""), one.get("kind", "")) == (paper, kind)]
    return {paper: {kind: found for kind in kinds if (found := chosen(paper, kind))} for paper in papers}


def _citations(studies: list[dict], claims: list[dict]) -> list[str]:
    """The papers behind what is on the page, without the theorem numbers, each once."""
    texts = [claim["citation"] for claim in claims] + [
        finding.get("citation", "") for study in studies for finding in study["findings"]
    ]
    return sorted({work for text in texts for work in _WORK.findall(text)})


def _table(table: Table) -> dict:
    """`rows` as the page shows them, and `values` with the same cells unrounded."""
    cells = lambda tell: [[tell(cell) for cell in row] for row in table.rows]
    return {**vars(table), "rows": cells(shown), "values": cells(measured)}


def _finding(finding: Finding) -> dict:
    """A finding with the headline of its verdict, and both facts in words."""
    verdict = finding.verdict
    facts = f"conclusion {verdict.conclusion}, hypotheses {verdict.hypotheses}"
    return {**vars(finding), "verdict": {**vars(verdict), "headline": verdict.headline, "facts": facts}}


def save(
    study: Study, result: Result, directory: str | Path, *, paper: str, seed: int, full: bool, seconds: float
) -> Path:
    """Write `study.json` and one trajectory file per run under `directory`/study-name; returns that folder.

    Of the common definitions those that the study mentions are kept, of its own all.
    """
    _check_names(f"The study '{study.title}'", study.name, *result.runs, *(figure.name for figure in result.figures))
    folder = Path(directory) / study.name
    header = {"format": mark("study"), "name": study.name, "title": study.title, "paper": paper}
    header |= {"seed": seed if study.seeded else None, "full": full, "seconds": round(seconds, 3)}
    header |= {"code": fingerprint(paper)} if paper else {}
    for name, run in result.runs.items():
        run.save(folder / f"{name}.npz")
    parts = {
        "findings": [plain(_finding(finding)) for finding in result.findings],
        "figures": plain(result.figures),
        "tables": [plain(_table(table)) for table in result.tables],
    }
    own = {name: meaning for name, meaning in result.definitions.items() if DEFINITIONS.get(name) != meaning}
    text = json.dumps([parts, own], ensure_ascii=False)
    used = {name: meaning for name, meaning in result.definitions.items() if name in own or name in text}
    content = {**header, **parts, "definitions": used, "runs": {name: f"{name}.npz" for name in result.runs}}
    write_bytes(folder / "study.json", json.dumps(content).encode())
    return folder


def report(findings: Sequence[Verdict | Finding], directory: str | Path) -> Path:
    """Write verdicts (or findings with statement and citation) to `directory` and make its page; returns the page."""
    items = tuple(item if isinstance(item, Finding) else Finding("", item) for item in findings)
    study = Study("verdicts", "Verdicts", lambda lab: Result(items, ()))
    save(study, Result(items, ()), directory, paper="", seed=0, full=False, seconds=0.0)
    return render(directory)


def draw(figure: dict, path: Path) -> str:
    """Draw a figure; writes the SVG file and returns its markup for the page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasSVG(canvas)
    axes = canvas.subplots()
    alone = sum(line["style"] == "prediction" for line in figure["lines"]) == 1
    visible = [_visible(line, figure) for line in figure["lines"]]
    empty = not any(len(x) for x, _, _ in visible)
    for index, (line, (x, y, error)) in enumerate(zip(figure["lines"], visible, strict=True)):
        if line["style"] == "map":
            canvas.colorbar(_cells(axes, line), ax=axes, label=line["label"])
            continue
        dashed, points = line["style"] == "prediction", line["style"] == "points"
        colour = "#111111" if dashed and alone else _COLOURS[index % len(_COLOURS)]
        if error is not None:
            axes.errorbar(x, y, error, fmt="none", ecolor=colour, capsize=2.0)
        axes.plot(
            x,
            y,
            label=line["label"],
            color=colour,
            linestyle="" if points else "--" if dashed else "-",
            marker="o" if points else None,
            linewidth=1.1 if dashed else 1.6,
        )
    axes.set(
        xlabel=figure["x_label"],
        ylabel=figure["y_label"],
        xscale="linear" if empty else figure["x_scale"],  # a logarithmic axis without a positive number has no ticks
        yscale="linear" if empty else figure["y_scale"],
        title=figure["title"],
    )
    axes.set_xlim(_window(figure, visible))
    axes.grid(True, which="major", alpha=0.25)
    if empty:
        axes.text(0.5, 0.5, _nothing(figure), ha="center", va="center", transform=axes.transAxes)
    elif any(line["style"] != "map" for line in figure["lines"]):
        on_map = any(line["style"] == "map" for line in figure["lines"])
        axes.legend(fontsize="small", frameon=on_map)
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", metadata={"Date": None})
    write_bytes(path, buffer.getvalue().encode())
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def _window(figure: dict, visible: list) -> tuple[float, float] | None:
    """Where the curves move: ends of the axis on which none does are not shown if they are more than half of it; the data keep them."""
    if {line["style"] for line in figure["lines"]} - {"line", "prediction"}:
        return None
    scaled = lambda values, axis: np.log(values) if figure[f"{axis}_scale"] == "log" else values
    curves = [(x, y) for line, (x, y, _) in zip(figure["lines"], visible, strict=True) if line["style"] == "line"]
    moving = []
    for x, y in curves:
        rise = np.abs(np.diff(scaled(y, "y")))
        moves = np.flatnonzero(rise > _STILL * np.ptp(scaled(y, "y"))) if len(x) else []
        moving += [*x[moves], *x[np.asarray(moves, int) + 1]]
    if not moving:
        return None
    whole, ends = np.concatenate([x for x, _ in curves]), np.array([min(moving), max(moving)])
    return tuple(ends) if np.ptp(scaled(ends, "x")) < np.ptp(scaled(whole, "x")) / 2 else None


def _cells(axes: "Axes", line: dict) -> "QuadMesh":
    """A map as one picture inside the drawing: thousands of cells as shapes would make the page slow."""
    x, y, values = (_numbers(line[key]) for key in ("x", "y", "values"))
    columns, rows = np.unique(x), np.unique(y)
    grid = np.full((len(rows), len(columns)), np.nan)
    grid[np.searchsorted(rows, y), np.searchsorted(columns, x)] = values
    return axes.pcolormesh(columns, rows, np.ma.masked_invalid(grid), shading="nearest", rasterized=True)


def _numbers(values: list) -> np.ndarray:
    """Numbers as they were saved; those that are missing are not finite."""
    return np.array([np.nan if value is None else value for value in values], float)


def _nothing(figure: dict) -> str:
    positive = "" if (figure["x_scale"], figure["y_scale"]) == ("linear", "linear") else " and positive"
    return f"Nothing to draw: no value is finite{positive}."


def _visible(line: dict, figure: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The points a plot can show: finite, and positive on a logarithmic axis; with their errors where there are any."""
    x, y = _numbers(line["x"]), _numbers(line["y"])
    keep = np.isfinite(x) & np.isfinite(y)
    if figure["x_scale"] == "log":
        keep &= x > 0
    if figure["y_scale"] == "log":
        keep &= y > 0
    error = line.get("error")
    return x[keep], y[keep], None if error is None else np.array(error, float)[keep]


def write_csv(figure: dict, path: Path) -> None:
    """The numbers behind a figure, one row per point."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    coloured = any(line.get("values") is not None for line in figure["lines"])
    writer.writerow(["line", figure["x_label"], figure["y_label"], *(["value"] if coloured else [])])
    for line in figure["lines"]:
        columns = [line["x"], line["y"]]
        if coloured:
            columns.append(line.get("values") or [""] * len(line["x"]))
        writer.writerows((line["label"], *row) for row in zip(*columns, strict=True))
    write_bytes(path, buffer.getvalue().encode())
