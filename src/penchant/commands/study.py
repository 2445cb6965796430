"""`study`: run one, save it, make its page."""

import json
import time
from contextlib import suppress
from pathlib import Path

from .. import cache
from ..errors import ArgumentError
from ..lab import Lab, Paper, Study
from ..papers import PAPERS, new_lab
from ..report.page import render
from ..report.save import save
from .options import check_writable
from .progress import progress


def find_study(name: str) -> tuple[Paper, Study]:
    """The study of this name, an old one included."""
    known = {name: (paper, one) for paper in PAPERS for one in paper.studies for name in (one.name, *one.aliases)}
    if name not in known:
        listed = ", ".join(dict.fromkeys(study.name for _, study in known.values()))
        raise ArgumentError("NAME", "penchant study", f"one of {listed}", repr(name))
    return known[name]


def run_one(paper: Paper, study: Study, lab: Lab, out: str) -> Path:
    """Run a study in a lab and save it."""
    started = time.perf_counter()
    result = study.result(lab)
    seconds = time.perf_counter() - started
    return save(study, result, out, paper=paper.name, seed=lab.seed, full=lab.full, seconds=seconds)


def drawn(paper: Paper, study: Study, seed: int, full: bool, out: str) -> bool:
    """Whether the page there was drawn before by the same code and libraries."""
    wanted = {"code": cache.fingerprint(paper.name), "seed": seed if study.seeded else None, "full": full}
    with suppress(OSError, ValueError, AttributeError):
        return json.loads((Path(out) / study.name / "study.json").read_text(encoding="utf-8")).items() >= wanted.items()
    return False


def run_study(name: str, seed: int, full: bool, out: str) -> dict:
    """Run one study, save it and make the page; returns what was saved, and where."""
    paper, study = find_study(name)
    check_writable(f"{out}/{study.name}/study.json")
    with progress(1) as show:
        folder = run_one(paper, study, new_lab(seed, full, lambda text: show(f"{study.name}: {text}")), out)
    content = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    return {"study": study.name, **content, "folder": str(folder), "page": str(render(out))}


def print_study(content: dict) -> None:
    """The findings with the inequalities that decided them, and the page."""
    for finding in content["findings"]:
        verdict = finding["verdict"]
        detail = f" ({verdict['detail']})" if verdict["detail"] else ""
        print(f"{verdict['headline']:10} {finding['statement']}\n           {verdict['inequality']}{detail}")
    print(f"page: {content['page']}")
