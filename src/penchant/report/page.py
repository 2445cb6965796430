"""Studies and verdicts as files, and one self-contained HTML page from what is saved: reads files only, never trains, needs no network."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..cache import fingerprint
from ..errors import DataFileError
from ..exhibits import DEFINITIONS, Finding, Result, Table, measured, plain, shown
from ..files import check_mark, load_npz, mark, write_bytes
from ..lab import KINDS, Study
from ..verdict import Verdict
from .figures import certificate, gauges, is_empty, slack_share, write_figures
from .formulas import bibtex, spoken, typeset, works

if TYPE_CHECKING:
    from jinja2 import Environment

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # of a file next to a study: nothing that leads elsewhere
_VERDICT = {"outcome": str, "inequality": str, "detail?": str, "headline?": str, "hypotheses?": str}
_CURVES = 5  # that colours alone tell apart
_TOLD = (("title", "y_label"), ("title", "x_label", "y_label", "caption"))  # what is drawn, before what is said of it
_SOURCES = {"style": "style.css", "draw": "draw.js", "script": "page.js"}
_SHAPES = {  # what a page shows of a saved file
    "study": {
        "name": str,
        "title": str,
        "findings": [{"statement": str, "verdict": _VERDICT, "citation?": str}],
        "figures": [{**dict.fromkeys(("name", *_TOLD[1]), str), "lines": [{"label": str, "style": str}]}],
        "tables": [{"title": str, "columns": [str], "rows": [list], "caption": str}],
        "definitions": {"*": str},
        "runs?": {"*": str},
    },
    "ledger": {
        "claims": [
            dict.fromkeys(
                ["claim", "statement", "citation", "verdict", "expected", "inequality", "detail", "twin"], str
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
    if not root.is_dir():
        how = f"`penchant study NAME --out {root}` or `penchant verify --out {root}`"
        raise DataFileError(f"There is no directory '{root}'. Make one with {how}.")
    # A folder that is a link to another place is nothing to write to.
    inside = [path for path in sorted(root.glob("*/study.json")) if path.parent.resolve().parent == root.resolve()]
    studies = [load_study(path) for path in inside]
    ledger = read_saved(root / "ledger.json", "ledger") if (root / "ledger.json").exists() else None
    if not studies and ledger is None:
        wanted = "nothing to report. It must be a directory that penchant wrote"
        raise DataFileError(f"'{root}' holds neither a ledger.json nor any study.json: {wanted}.")
    for study in studies:
        write_figures(study, root / study["name"])
    templates = environment("report")
    templates.filters |= {"typeset": typeset, "gauges": gauges, "slack": slack_share, "bar": certificate}
    page = templates.get_template("page.html").render(**_shown(studies, ledger or {"claims": []}))
    return write_bytes(root / "index.html", page.encode())


def environment(folder: str, autoescape: bool = True) -> "Environment":
    """Where the templates of a folder are found."""
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("penchant", folder)
    return Environment(loader=loader, autoescape=autoescape, trim_blocks=True, lstrip_blocks=True)


def _shown(studies: list[dict], ledger: dict) -> dict:
    """Everything the page is made of."""
    claims, coverage = ledger["claims"], ledger.get("coverage", [])
    texts = [claim["citation"] for claim in claims]
    texts += [finding.get("citation", "") for study in studies for finding in study["findings"]]
    found, groups = works(texts), _groups(claims)
    sources = files("penchant.report")
    return {
        "studies": studies,
        "claims": claims,
        "groups": groups,
        "sources": {
            paper: source([one["citation"] for one in claims if one.get("paper", "") == paper]) for paper in groups
        },
        "outcomes": ("confirmed", "refuted", "undecided"),
        "kinds": KINDS,
        "coverage": coverage,
        "unfinished": ledger.get("unfinished", 0),
        "counts": Counter(claim["verdict"] for claim in claims),
        "caught": sum(claim["twin"] == "refuted" for claim in claims),
        "evidence": evidence(studies, ledger),
        "best": _best(studies),
        "bibliography": {work: bibtex(work) for work in found},
        "works": works,
        "by_name": lambda tables: {table.get("name", ""): table for table in tables},
        "parts": {part: _part(part) for part in ("where", "why", "speed")},
        **{name: sources.joinpath(file).read_text(encoding="utf-8") for name, file in _SOURCES.items()},
        "version": __version__,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def source(citations: Iterable[str]) -> dict[str, str]:
    """The work that most citations name, and how it is spoken of."""
    cited = Counter(work for citation in citations for work in works([citation]))
    work = cited.most_common(1)[0][0] if cited else ""
    return {"work": work, "short": spoken(work)}


def evidence(studies: list[dict], ledger: dict) -> dict[str, list[tuple[dict, dict]]]:
    """The studies that show a sentence, each with the figure that has most words in common with it, by the sentence: those that found it,
    else those about the same item of its paper."""
    drawn = {study["name"]: [one for one in study["figures"] if not is_empty(one)] for study in studies}
    by_name = {study["name"]: study for study in studies if drawn[study["name"]]}
    rows = {row["claim"]: (row["statement"], row["inequality"]) for row in ledger["claims"]}
    findings = [(name, one) for name in by_name for one in by_name[name]["findings"]]
    told = {(one["statement"], name): one["verdict"]["inequality"] for name, one in findings}
    shown = {statement for statement, _ in told}
    for item in ledger.get("coverage", []):
        same = [rows[name] for name in item["claims"] if name in rows and rows[name][0] not in shown]
        told |= {(statement, name): how for statement, how in same for name in item["studies"] if name in by_name}
    found: dict[str, list[tuple[dict, dict]]] = {}
    for (statement, name), how in told.items():
        found.setdefault(statement, []).append((by_name[name], _nearest(_words(statement, how), drawn[name])))
    return found


def _nearest(said: set[str], figures: list[dict]) -> dict:
    return max(figures, key=lambda one: [len(said & _words(*(one[part] for part in parts))) for parts in _TOLD])


def _words(*texts: str) -> set[str]:
    return set(re.findall(r"[a-z]{4,}|1 - corr", " ".join(texts).lower()))


def _best(studies: list[dict]) -> tuple[dict, dict] | None:
    """The figure to begin with: of those that hold a prediction against several measured curves, the one that reaches farthest."""
    pairs = [(study, figure) for study in studies for figure in study["figures"] if not figure["empty"]]
    styles = lambda figure: [line["style"] for line in figure["lines"]]
    told = lambda figure: "prediction" in styles(figure) and 3 <= styles(figure).count("line") <= _CURVES
    reach = lambda figure: max(max((x for x in line["x"] if x is not None), default=0) for line in figure["lines"])
    return max([pair for pair in pairs if told(pair[1])] or pairs, key=lambda pair: reach(pair[1]), default=None)


def _part(part: str) -> Callable[[list[dict]], list[dict]]:
    """A function that picks the figures of a run that belong to this part of its story."""
    speed = lambda name: "speed" if re.search("excess|loss|rate|norm$|growth|time", name) else "where"
    kind = lambda name: "why" if "certif" in name else speed(name)
    return lambda figures: [one for one in figures if kind(one["name"]) == part and not one["empty"]]


def _check_names(owner: str, *names: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            wanted = "at most 200 letters, digits, '.', '-' and '_' only, and lie next to it"
            raise DataFileError(f"{owner} names the file {name!r}: names have {wanted}.")


def load_study(path: Path) -> dict:
    """A saved study under the name of its folder, whose files have names that lead nowhere else."""
    found = read_saved(path, "study")
    found["name"], runs = path.parent.name, found.get("runs") or {}
    _check_names(f"'{path}'", *runs.values(), *(figure["name"] for figure in found["figures"]))
    for file in runs.values():
        load_npz(path.parent / file)
    return found


def read_saved(path: Path, kind: str) -> dict:
    """A saved study or ledger, of the version that this penchant writes and with every part a page shows."""
    try:
        content = json.loads(text := path.read_text(encoding="utf-8"))
        if "\\ud" in text.lower():  # of which one without the other is no character
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, OSError, RecursionError) as error:
        folder = path.parent
        again = f"verify --out {folder}" if kind == "ledger" else f"study {folder.name} --out {folder.parent}"
        raise DataFileError(
            f"'{path}' cannot be read ({error}).\n  Usual causes: (a) the copy was cut short; (b) it was edited by hand.\n  Fix: penchant {again}"
        ) from None
    check_mark(content.get("format") if type(content) is dict else None, (kind,), path)
    _check_shape(_SHAPES[kind], content, f"'{path}' is not a penchant {kind}: it")
    return content


def _check_shape(shape: Any, value: Any, where: str) -> None:
    """Refuse what a page cannot show: a shape is a type, a list of one shape, or shapes by key, with '?' after a key that may be missing."""
    if not isinstance(value, shape if type(shape) in (type, UnionType) else type(shape)):
        raise DataFileError(f"{where} is {value!r:.80}.")
    match shape:
        case [part]:
            parts = [(part, item, f"{where}[{number}]") for number, item in enumerate(value)]
        case {"*": part}:
            parts = [(part, item, f"{where}[{own!r}]") for own, item in value.items()]
        case {**keys}:
            if missing := [key for key in keys if not key.endswith("?") and key not in value]:
                raise DataFileError(f"{where} has no '{missing[0]}'.")
            names = {key.removesuffix("?"): part for key, part in keys.items()}
            parts = [(part, value[key], f"{where}['{key}']") for key, part in names.items() if key in value]
        case _:
            parts = []
    for one in parts:
        _check_shape(*one)


def _groups(claims: list[dict]) -> dict[str, dict[str, list[dict]]]:
    """Claims by paper, in the order of the ledger, and by kind, in the order of `KINDS`."""
    papers = dict.fromkeys(claim.get("paper", "") for claim in claims)
    kinds = [*KINDS, ""]
    chosen = lambda paper, kind: [one for one in claims if (one.get("paper", ""), one.get("kind", "")) == (paper, kind)]
    return {paper: {kind: found for kind in kinds if (found := chosen(paper, kind))} for paper in papers}


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
    study: Study,
    result: Result,
    directory: str | Path,
    *,
    paper: str = "",
    seed: int = 0,
    full: bool = False,
    seconds: float = 0.0,
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
    save(Study("verdicts", "Verdicts"), Result(items, ()), directory)
    return render(directory)
