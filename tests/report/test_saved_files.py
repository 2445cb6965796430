"""Pages of files that someone else wrote: nothing is written outside, links stay links, damage and other versions are named."""

import json
import os
import re

import numpy as np
import pytest

from penchant.errors import DataFileError
from penchant.exhibits import Result
from penchant.files import load_npz, write_bytes
from penchant.lab import Study
from penchant.report.page import render, save

FIGURE = {
    "name": "curve",
    "title": "Curve",
    "x_label": "x",
    "y_label": "y",
    "x_scale": "linear",
    "y_scale": "linear",
    "caption": "",
    "lines": [{"label": "run", "x": [0.0, 1.0], "y": [0.0, 2.0], "style": "line"}],
}
VERDICT = {"outcome": "confirmed", "inequality": "1 <= 2", "detail": ""}
STUDY = {
    "format": "penchant study 1",
    "name": "tiny",
    "title": "Tiny",
    "findings": [{"statement": "It holds.", "verdict": VERDICT, "citation": ""}],
    "figures": [FIGURE],
    "tables": [{"title": "T", "columns": ["a"], "rows": [[1]], "caption": ""}],
    "definitions": {"a": "b"},
    "runs": {},
}
ROW = {
    **dict.fromkeys(("claim", "statement", "citation", "inequality", "detail"), "text"),
    "verdict": "confirmed",
    "expected": "confirmed",
    "twin": "refuted",
    "seconds": 0.1,
}
LEDGER = {"format": "penchant ledger 1", "claims": [ROW]}


def saved(root, study, folder="tiny"):
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "study.json").write_text(json.dumps(study))
    return root


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_whole_study_has_its_page(tmp_path):
    assert "It holds." in render(saved(tmp_path, STUDY)).read_text()
    assert everything(tmp_path) == [
        "index.html",
        "tiny",
        *(f"tiny/{name}" for name in ("curve.csv", "curve.svg", "figures.js", "study.json")),
    ]


@pytest.mark.parametrize(("claim", "studies", "shown"), [("a", ["tiny"], 1), ("a", ["other"], 0), ("b", ["tiny"], 0)])
def test_a_claim_shows_a_figure_of_the_study_of_its_item(tmp_path, claim, studies, shown):
    item = {**dict.fromkeys(("paper", "item", "words", "note", "status"), "text"), "claims": {claim: "confirmed"}}
    ledger = {**LEDGER, "claims": [ROW | {"claim": "a"}], "coverage": [item | {"studies": studies}]}
    (saved(tmp_path, STUDY) / "ledger.json").write_text(json.dumps(ledger))
    assert render(tmp_path).read_text().count('class="evidence"') == shown


def test_a_claim_shows_the_figure_whose_axes_it_speaks_of(tmp_path):
    """Not the one whose caption happens to share more words with it."""
    size = FIGURE | {"name": "size", "y_label": "norm", "caption": "Like t for normalised descent and Polyak steps."}
    turn = FIGURE | {"name": "turn", "y_label": "1 - corr"}
    said = "Normalised descent, like Polyak steps: 1 - corr = O(1/t)."
    finding = {"statement": said, "verdict": VERDICT, "citation": ""}
    saved(tmp_path, STUDY | {"findings": [finding], "figures": [size, turn]})
    (tmp_path / "ledger.json").write_text(json.dumps({**LEDGER, "claims": [ROW | {"statement": said}]}))
    shown = render(tmp_path).read_text().partition('class="evidence"')[2]
    assert re.findall(r'data-figure="(\w+)"', shown)[0] == "turn"


@pytest.mark.parametrize("name", ["../../x", "/{}/x", "..", ".hidden", "a/b", "a b", "x\n", "", "C:\\x"])
@pytest.mark.parametrize("part", ["figure", "run"])
def test_nothing_is_written_or_read_outside(tmp_path, name, part):
    name = name.format(tmp_path)
    study = STUDY | ({"figures": [FIGURE | {"name": name}]} if part == "figure" else {"runs": {"run": name}})
    root = saved(tmp_path / "page", study)
    with pytest.raises(DataFileError, match="names the file"):
        render(root)
    assert everything(tmp_path) == ["page", "page/tiny", "page/tiny/study.json"]


def test_a_folder_that_is_a_link_is_left_alone(tmp_path):
    saved(tmp_path / "elsewhere", STUDY)
    root = saved(tmp_path / "page", STUDY, "own")
    os.symlink(tmp_path / "elsewhere" / "tiny", root / "link")
    assert render(root).read_text().count('<section id="own"') == 1
    assert everything(tmp_path / "elsewhere") == ["tiny", "tiny/study.json"]


def test_links_lead_to_files_whatever_the_folder_is_called(tmp_path):
    page = render(saved(tmp_path, STUDY, "javascript:alert(1)#?")).read_text()
    assert 'href="./javascript%3Aalert%281%29%23%3F/curve.csv"' in page
    assert 'href="javascript' not in page


def test_two_names_that_differ_after_a_dot_are_two_files(tmp_path):
    render(saved(tmp_path, STUDY | {"figures": [FIGURE | {"name": "a.1"}, FIGURE | {"name": "a.2"}]}))
    assert {"tiny/a.1.svg", "tiny/a.2.svg"} <= set(everything(tmp_path))


def damaged(value, place, new):
    """A copy of nested dictionaries and lists with one place replaced, or left out where the new value is `...`."""
    copy = json.loads(json.dumps(value))
    part = copy
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = new
    if new is ...:
        del part[place[-1]]
    return copy


PLACES = [
    *[(STUDY, (key,)) for key in ("name", "title", "findings", "figures", "tables", "definitions")],
    *[(STUDY, ("findings", 0)), (STUDY, ("findings", 0, "verdict")), (STUDY, ("findings", 0, "verdict", "outcome"))],
    *[(STUDY, ("figures", 0)), (STUDY, ("figures", 0, "name")), (STUDY, ("figures", 0, "lines"))],
    *[(STUDY, ("figures", 0, "x_label")), (STUDY, ("figures", 0, "lines", 0, "label"))],
    *[(STUDY, ("tables", 0)), (STUDY, ("tables", 0, "rows")), (STUDY, ("tables", 0, "columns"))],
    *[(LEDGER, ("claims",)), (LEDGER, ("claims", 0)), (LEDGER, ("claims", 0, "citation"))],
    *[
        (LEDGER, ("claims", 0, "verdict")),
        (LEDGER, ("claims", 0, "seconds")),
        (LEDGER, ("format",)),
        (STUDY, ("format",)),
    ],
]


@pytest.mark.parametrize(
    ("whole", "place"), PLACES, ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else ""
)
def test_damage_is_named(tmp_path, whole, place):
    for new in (..., 3.5, [3], {"a": {}}, None):
        content = damaged(whole, place, new)
        if (place[-1] == "seconds" and new == 3.5) or (type(place[-1]) is int and new is ...):
            continue  # still whole
        saved(tmp_path, content if whole is STUDY else STUDY)
        (tmp_path / "ledger.json").write_text(json.dumps(content if whole is LEDGER else LEDGER))
        with pytest.raises(DataFileError, match=r"study\.json|ledger\.json"):
            render(tmp_path)


@pytest.mark.parametrize(
    ("place", "new"),
    [
        (("figures", 0, "lines", 0, "x"), [0.0]),
        (("figures", 0, "lines", 0, "y", 1), 10**400),
        (("tables", 0, "rows", 0, 0), "\ud800"),
    ],
)
def test_values_that_cannot_be_shown_are_named(tmp_path, place, new):
    with pytest.raises(DataFileError, match=r"study\.json"):
        render(saved(tmp_path, damaged(STUDY, place, new)))


def test_a_repair_is_shown_without_its_sentence(tmp_path):
    (tmp_path / "ledger.json").write_text(json.dumps(LEDGER | {"claims": [ROW | {"repair": "another-claim"}]}))
    assert "another-claim" in render(tmp_path).read_text()


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, '{"format": "penchant study 1"', "\x00", "3", '"penchant study 1"']
)
def test_what_is_no_json_object_is_named(tmp_path, text):
    saved(tmp_path, STUDY)
    (tmp_path / "tiny" / "study.json").write_text(text)
    with pytest.raises(DataFileError, match=r"study\.json"):
        render(tmp_path)


@pytest.mark.parametrize(("kind", "again"), [("study", "study tiny --out {}"), ("ledger", "verify --out {}")])
def test_what_cannot_be_read_is_made_again_by_the_line_that_is_named(tmp_path, kind, again):
    saved(tmp_path, STUDY)
    (tmp_path / ("tiny/study.json" if kind == "study" else "ledger.json")).write_text("{")
    with pytest.raises(DataFileError, match=re.escape(f"Fix: penchant {again.format(tmp_path)}")):
        render(tmp_path)


def test_the_ledger_is_sorted_and_counted_by_paper_and_kind(tmp_path):
    kinds = (("notes", "ours"), ("key_query", "proved"), ("notes", "proved"), ("notes", "proved"))
    rows = [ROW | {"claim": f"claim-{k}", "paper": paper, "kind": kind} for k, (paper, kind) in enumerate(kinds)]
    (tmp_path / "ledger.json").write_text(json.dumps(LEDGER | {"claims": rows}))
    page = render(tmp_path).read_text()
    places = [page.index(f"claim-{k}") for k in (2, 3, 0, 1)]
    assert places == sorted(places)
    assert "proved: 2" in page
    row = page.partition('<a href="#ledger-notes">notes</a>')[2]
    counts = re.findall(r'<td data-kind="(\w+)">(\d+)', row)[:3]
    assert counts == [("proved", "2"), ("ours", "1"), ("all", "3")]


@pytest.mark.parametrize("kind", ["study", "ledger"])
def test_other_versions_are_refused(tmp_path, kind):
    saved(tmp_path, STUDY | ({"format": "penchant study 99"} if kind == "study" else {}))
    (tmp_path / "ledger.json").write_text(
        json.dumps(LEDGER | ({"format": "penchant ledger 99"} if kind == "ledger" else {}))
    )
    with pytest.raises(DataFileError, match=f"'penchant {kind} 99', and this penchant reads penchant {kind} 1"):
        render(tmp_path)


def run_file(path, header):
    np.savez(path, W=np.ones(2), header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    return path


def test_a_run_of_another_version_is_refused(tmp_path):
    assert set(load_npz(run_file(tmp_path / "now.npz", {"format": "penchant joint trajectory 1"}))) == {"W", "header"}
    with pytest.raises(DataFileError, match="has the format 'penchant trajectory 7'"):
        load_npz(run_file(tmp_path / "new.npz", {"format": "penchant trajectory 7"}))


@pytest.mark.parametrize("header", [{"theorem": "flow"}, [1, 2], "text", {"format": "csv"}])
def test_a_header_of_the_users_own_is_data(tmp_path, header):
    assert "W" in load_npz(run_file(tmp_path / "own.npz", header))


def test_what_a_killed_run_left_is_cleared_by_the_next_one(tmp_path):
    old, new, other = (tmp_path / name for name in (".rate.csv.9788b587", ".rate.csv.9788b588", ".rate.csv.backup99"))
    for file in (old, new, other):
        file.write_text("half")
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    write_bytes(tmp_path / "rate.csv", b"1,2")
    assert everything(tmp_path) == [
        ".rate.csv.9788b588",
        ".rate.csv.backup99",
        "rate.csv",
    ]  # one may have a writer, one is not ours


@pytest.mark.parametrize("name", ["x" * 300, "../up"])
def test_a_study_is_saved_under_a_name_that_files_can_have(tmp_path, name):
    with pytest.raises(DataFileError, match="at most 200 letters"):
        save(Study(name, "T"), Result((), (), (), {}), tmp_path, paper="", seed=0, full=False, seconds=0.0)
    assert not list(tmp_path.iterdir())
