"""One self-contained HTML page from saved results: reads files only, never trains, needs no network."""

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape

from .. import __version__
from ..errors import DataFileError
from ..files import load_npz, write_bytes
from .figures import draw, write_csv

# A work from its first author to its year (and arXiv number) or, for lecture notes, to its chapter; remarks after a semicolon are none.
_WORK = re.compile(r"[A-Z][^;]*?(?:\b(?:19|20)\d\d\b(?:, arXiv [\d.]+\d)?|chapter \d+: [^,;]*)")


def render(directory: str | os.PathLike) -> Path:
    """Make `index.html` from the ledger and the studies saved under a directory, with each figure and its data next to it."""
    root = Path(directory)
    if root.is_file():
        raise DataFileError(
            f"'{root}' is a file: `report` takes the directory that `--out` wrote. `penchant train {root} --out DIR` makes one from data."
        )
    if not root.is_dir():
        raise DataFileError(
            f"There is no directory '{root}'. Make one with `penchant study NAME --out {root}` or `penchant verify --out {root}`."
        )
    studies = [_study(path) for path in sorted(root.glob("*/study.json"))]
    ledger = _read(root / "ledger.json", "claims") if (root / "ledger.json").exists() else None
    if not studies and ledger is None:
        raise DataFileError(
            f"'{root}' holds neither a ledger.json nor any study.json: nothing to report. It must be a directory that penchant wrote."
        )
    for study in studies:
        for figure in study["figures"]:
            _draw(figure, root / study["name"])
    environment = Environment(
        loader=PackageLoader("penchant", "report"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("page.html").render(
        studies=studies,
        claims=ledger["claims"] if ledger else [],
        counts=_counts(ledger["claims"]) if ledger else {},
        citations=_citations(studies, ledger["claims"] if ledger else []),
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    return write_bytes(root / "index.html", page.encode())


def _study(path: Path) -> dict:
    study = _read(path, "figures")
    for key in ("name", "title", "findings", "figures", "tables", "definitions"):
        if key not in study:
            raise DataFileError(f"'{path}' is not a penchant study: it has no '{key}'.")
    for key, wanted in (("findings", list), ("figures", list), ("tables", list), ("definitions", dict)):
        if not isinstance(study[key], wanted):
            raise DataFileError(f"'{path}' is not a penchant study: its '{key}' is {study[key]!r}.")
    for finding in study["findings"]:
        if not isinstance(finding, dict) or not isinstance(finding.get("citation", ""), str):
            raise DataFileError(f"'{path}' is not a penchant study: it has the finding {finding!r}.")
    study["name"] = path.parent.name
    for file in (study.get("runs") or {}).values():
        load_npz(path.parent / str(file))
    return study


def _draw(figure: dict, folder: Path) -> None:
    try:
        stem = folder / figure["name"]
        figure["svg"] = draw(figure, stem.with_suffix(".svg"))
        write_csv(figure, stem.with_suffix(".csv"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # whatever is missing from it, it is not ours
        name = figure.get("name", "without a name") if isinstance(figure, dict) else repr(figure)
        raise DataFileError(
            f"Figure '{name}' in '{folder / 'study.json'}' cannot be drawn ({type(error).__name__}: {error}).\n"
            "  Usual cause: the file was edited by hand.\n  Fix: run the study again with the same --out."
        ) from None


def _read(path: Path, key: str) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise DataFileError(
            f"'{path}' cannot be read ({error}).\n  Usual causes: (a) the copy was cut short; (b) it was edited by hand.\n  Fix: run the study again with the same --out."
        ) from None
    if not isinstance(content, dict) or not str(content.get("format", "")).startswith("penchant") or key not in content:
        raise DataFileError(f"'{path}' was not written by penchant: it has no penchant format mark and '{key}'.")
    return content


def _counts(claims: list[dict]) -> dict[str, int]:
    return {
        outcome: sum(claim["verdict"] == outcome for claim in claims)
        for outcome in ("confirmed", "refuted", "undecided")
    }


def _citations(studies: list[dict], claims: list[dict]) -> list[str]:
    """The papers behind what is on the page, without the theorem numbers, each once."""
    texts = [claim["citation"] for claim in claims] + [
        finding.get("citation", "") for study in studies for finding in study["findings"]
    ]
    return sorted({work for text in texts for work in _WORK.findall(text)})
