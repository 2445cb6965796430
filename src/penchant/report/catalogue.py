"""The site: a page per theorem and claim, what training selects by optimiser and setting, every public name, and the guide; built by Sphinx."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.resources import files
from inspect import getdoc, signature
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..errors import ArgumentError, MissingExtra, PenchantError, UnknownLimit
from ..files import write_bytes
from ..flow.flow import GradientFlow
from ..lab import KINDS, Claim, Paper
from ..optimisers.table import OPTIMISERS, Given
from ..papers import PAPERS, theorems
from ..settings.base import Setting
from ..settings.classification import Multiclass
from ..settings.losses import Exponential, Squared
from ..settings.parametrisations import Direct
from ..theory.base import Theorem, choose
from ..verdict import Outcome
from .explore import presets, setting_of, write_explorer
from .formulas import bibtex, typeset, works
from .page import environment, evidence, load_study, read_saved, source

# By name of the setting: the preset of the explorer that shows it.
_SETTINGS = {
    "linear classification": "plane",
    "several classes": "",
    "deep linear network": "deep-linear",
    "softmax attention, W": "attention",
    "attention, keys and queries": "key-query",
    "attention, diagonal keys and queries": "diagonal",
    "regression": "",
    "squares w+² - w-²": "squares",
}
_MARKS = str.maketrans({sign: f"&#{ord(sign)};" for sign in "&<>[]`*_!"})  # no HTML or Markdown by others
Write = Callable[..., Path]  # a page, the template it is made of, and what that is given
_SPOKEN = {"linf": "l∞", "frobenius": "Frobenius", "Q_alpha": "Qα"}
# Data that a person has written: claims that measured what no theorem says, by optimiser and setting; and what a claim implies and contradicts.
RELATIONS = json.loads(files("penchant.report").joinpath("site/relations.json").read_text(encoding="utf-8"))


class Cell(NamedTuple):
    """What is known of an optimiser on a setting: theorem, conjecture, refuted or unknown, the page that says it, and the claims that measured it."""

    state: str
    theorem: Theorem
    claims: tuple[str, ...] = ()


def owner(theorem: Theorem) -> Paper:
    """The paper whose family it belongs to."""
    return next(paper for paper in PAPERS if any(one.family.name == theorem.family.name for one in paper.theorems))


def page_of(theorem: Theorem) -> str:
    """The name of the page of a theorem, which does not change."""
    return f"{owner(theorem).name}-{theorem.name}"


def claim_page(name: str) -> str:
    return name.replace("/", "--")


def examples() -> dict[str, Setting]:
    """A small problem of each setting; that of regression is the squares with their weight trained itself."""
    classes = Multiclass([[2.0, 0.3], [1.5, -0.2], [0.2, 1.5], [-1.0, -1.2]], [0, 0, 1, 2])
    known = presets()
    found = {name: setting_of(known[preset or "squares"]) for name, preset in _SETTINGS.items()}
    found["several classes"] = Setting(classes, Direct(), Exponential())
    return found | {"regression": Setting(found["regression"].data, Direct(), Squared())}


def optimisers() -> dict[str, Any]:
    """One of every kind, by name."""
    made = {name: row.make(Given(1.0 if name == "polyak" else 0.05)) for name, row in OPTIMISERS.items()}
    return {"flow": GradientFlow(), **made}


def matrix() -> dict[str, dict[str, Cell]]:
    """What training selects: a cell for every optimiser and setting."""
    known, problems = list(theorems()), examples().items()
    measured = lambda name, of: tuple(RELATIONS["measured"].get(name, {}).get(of, ()))
    row = lambda name, rule: {of: _cell(known, problem, rule, measured(name, of)) for of, problem in problems}
    return {name: row(name, rule) for name, rule in optimisers().items()}


def _cell(known: list[Theorem], problem: Setting, rule: Any, measured: tuple[str, ...]) -> Cell:
    """A theorem proves; the conjecture of a family is worth what claims have measured; without either, the page is that of the flow."""
    try:
        theorem = choose(known, problem, rule)
    except UnknownLimit:
        return Cell("unknown", choose(known, problem, GradientFlow()))
    if not theorem.name.endswith("conjecture"):
        return Cell("theorem", theorem)
    refuted = any(claim.expected is Outcome.refuted for claim in owner(theorem).claims if claim.name in measured)
    return Cell("refuted" if refuted else "conjecture" if measured else "unknown", theorem, measured)


def public_names() -> Iterator[tuple[str, str, str]]:
    """Every public name with its call and its docstring; a name without one is an error."""
    front = import_module("penchant")
    for name in front.__all__:
        value = getattr(front, name)
        if not (text := getdoc(value)):
            raise PenchantError(f"The public name '{name}' has no docstring.")
        yield name, re.sub(r"<[^>]*>|\bjaxtyping\.|\bjax\.[\w.]*\.", "", f"{name}{signature(value)}"), text


def _related(claim: Claim, paper: Paper) -> dict[str, list[str]]:
    """What a claim implies, with what its paper proves before it, and is implied by; what it contradicts; what holds in its place; and claims
    about the same item of the paper."""
    item = re.search(r"(?:Theorem|Lemma|Corollary|Proposition|Figure) [\w.]+", claim.citation)
    same = [one.name for one in paper.claims if item and item.group() in re.findall(r"[A-Z]\w+ [\w.]+", one.citation)]
    implies, against = RELATIONS["implies"], RELATIONS["contradicts"]
    backwards = lambda relation: [name for name, others in relation.items() if claim.name in others]
    found = {
        "implies": implies.get(claim.name, []),
        "implied by": backwards(implies),
        "contradicts": [*against.get(claim.name, []), *backwards(against)],
        "what holds instead": [one.name for one in paper.claims if one.name == claim.repair],
        "holds instead of": [one.name for one in paper.claims if one.repair == claim.name],
    }
    told = {claim.name, *(name for names in found.values() for name in names)}
    return found | {"about the same item": [name for name in same if name not in told]}


def _writer(folder: Path) -> Write:
    """Writes pages from templates that all know the same words."""
    templates = environment("report/site", autoescape=False)
    formula = lambda text: str(typeset(" ".join(text.split()))).translate({91: "&#91;", 93: "&#93;"})
    templates.globals |= {"typeset": formula, "bibtex": bibtex, "works": works, "version": __version__}
    templates.globals |= {"kinds": KINDS, "papers": PAPERS, "json": json, "owner": owner}
    templates.globals |= {"claim_page": claim_page, "page_of": page_of}
    templates.globals["source"] = lambda paper: source(claim.citation for claim in paper.claims)
    templates.filters["spoken"] = lambda name: _SPOKEN.get(name, name)
    templates.filters["plain"] = lambda text: " ".join(text.split()).translate(_MARKS)
    text = lambda template, given: templates.get_template(f"{template}.md").render(**given)
    return lambda page, template, **given: write_bytes(folder / f"{page}.md", text(template, given).encode())


def write_source(docs: Path, report: Path, folder: Path) -> None:
    """All pages as Markdown, from the catalogue, the guide in `docs`, and the verdicts and figures of `report` where there are any."""
    write, cells = _writer(folder), matrix()
    shutil.copytree(docs, folder, dirs_exist_ok=True)
    answers, selected = _write_theorems(write, cells)
    saved = report / "ledger.json"
    ledger = read_saved(saved, "ledger") if saved.exists() else {"claims": []}
    rows = {row["claim"]: row for row in ledger["claims"]}
    kept = docs / "verdicts.json"
    history = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    history |= {__version__: {name: row["verdict"] for name, row in rows.items()}} if rows else {}
    write_bytes(folder / "_extra" / "verdicts.json", json.dumps(history, indent=0).encode())
    shown = evidence([load_study(path) for path in sorted(report.glob("*/study.json"))], ledger)
    for paper in PAPERS:
        own = [theorem for theorem in answers if owner(theorem) is paper]
        write(f"papers/{paper.name}", "paper", paper=paper, rows=rows, theorems=own)
        for claim in paper.claims:
            figure = next(iter(shown.get(claim.statement, [])), None)
            drawn = _copied(figure, report, folder / "figures") if figure else ""
            past = {version: found[claim.name] for version, found in history.items() if claim.name in found}
            given = {"claim": claim, "paper": paper, "row": rows.get(claim.name), "related": _related(claim, paper)}
            write(f"claims/{claim_page(claim.name)}", "claim", figure=figure, drawn=drawn, history=past, **given)
    tutorials = sorted(path.stem for path in docs.glob("tutorials/*.md"))
    pages = sorted(path.stem for path in docs.glob("*.md"))
    write("index", "index", matrix=cells, selected=selected, settings=_SETTINGS, tutorials=tutorials, pages=pages)
    write("api", "api", names=list(public_names()))


def _write_theorems(write: Write, cells: dict[str, dict[str, Cell]]) -> tuple[list[Theorem], dict[str, dict[str, str]]]:
    """A page for each theorem and conjecture of the matrix, with its hypotheses on the first example it speaks of; and the norm that each cell
    selects, where anything is known."""
    found: dict[str, Theorem] = {}
    selected: dict[str, dict[str, str]] = {name: {} for name in cells}
    rules = optimisers()
    for setting, problem in examples().items():
        for optimiser, row in cells.items():
            theorem, known = row[setting].theorem, row[setting].state != "unknown"
            if not known and theorem.name in found:
                continue
            asked: Any = theorem.predict(problem, rules[optimiser], problem.start(0, 0.1))
            selected[optimiser] |= {setting: asked.reference.norm} if known else {}
            if theorem.name not in found:
                found[theorem.name] = theorem
                given = {"theorem": theorem, "found": asked, "setting": setting, "preset": _SETTINGS[setting]}
                given |= {"optimiser": optimiser, "measured": _measured(theorem, cells)}
                write(f"theorems/{page_of(theorem)}", "theorem", **given)
    return list(found.values()), selected


def _measured(theorem: Theorem, cells: dict[str, dict[str, Cell]]) -> dict[str, tuple[str, ...]]:
    """The claims that measured a conjecture, by optimiser and setting."""
    spots = ((f"{name}, {of}", cell) for name, row in cells.items() for of, cell in row.items())
    return {spot: cell.claims for spot, cell in spots if cell.claims and cell.theorem.name == theorem.name}


def _copied(figure: tuple[dict, dict], report: Path, folder: Path) -> str:
    """The name under which the drawing of a figure lies in the site."""
    study, drawing = (one["name"] for one in figure)
    write_bytes(folder / f"{study}--{drawing}.svg", (report / study / f"{drawing}.svg").read_bytes())
    return f"{study}--{drawing}.svg"


def build(docs: Path, report: Path, out: Path) -> Path:
    """Write the source next to the site and let Sphinx build it, every warning an error; returns the start page."""
    if not (docs / "guide.md").exists():
        wanted = "the folder of the guide, in a checkout of penchant"
        raise ArgumentError("--docs", "penchant docs", wanted, repr(str(docs)))
    try:
        sphinx = import_module("sphinx.cmd.build")
    except ImportError:
        raise MissingExtra("docs", "penchant docs") from None
    source = out.with_name(f"{out.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    write_source(docs, report, source)
    write_explorer(source / "_extra" / "explorer.html")
    if sphinx.build_main(["-W", "-q", "-E", "-b", "html", str(source), str(out)]):
        raise PenchantError("The site was not built: Sphinx names the pages above.")
    return out / "index.html"
