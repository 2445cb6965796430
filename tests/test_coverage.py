"""Every numbered item of every paper has a claim or a study, or a reason why it needs none."""

import json
from html import unescape

import pytest

from penchant.cli import main
from penchant.commands.verify import cited, coverage, items, references
from penchant.files import mark
from penchant.papers import PAPERS
from penchant.report.page import render


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_nothing_is_missing(paper):
    assert not {row["item"] for row in coverage([paper]) if row["status"] == "missing"}


def test_the_page_has_every_item_with_what_checks_it(tmp_path):
    rows = coverage(PAPERS)
    texts = dict.fromkeys(("claim", "statement", "citation", "repair", "inequality", "detail", "repaired"), "x")
    claim = {**texts, "verdict": "confirmed", "expected": "confirmed", "twin": "refuted", "seconds": 1.0}
    claims = [{**claim, "paper": paper.name, "kind": "ours", "predicted": 1.0, "measured": 1.0} for paper in PAPERS]
    ledger = {"format": mark("ledger"), "claims": claims, "coverage": rows}
    (tmp_path / "ledger.json").write_text(json.dumps(ledger))
    page = render(tmp_path).read_text()
    table = unescape(page)
    assert len(rows) > 200
    for row in rows:
        wanted = (*row["claims"], *row["studies"], row["note"] * (row["status"] != "checked"))
        lines = (line for line in table.splitlines() if f"<td>{row['item']}</td><td>" in line)
        assert any(all(name in line for name in wanted) for line in lines), row["item"]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_every_citation_names_items_that_exist_once(paper):
    known = [name for row in items(paper) for name in references(row["item"])]
    assert len(known) == len(set(known))
    for claim in paper.claims:
        assert set(cited(paper, claim.citation)) <= set(known), claim.name


def test_ranges_lists_and_other_works_are_told_apart():
    (paper,) = (paper for paper in PAPERS if paper.name == "deep_linear")
    text = f"repair of {paper.source}, Lemmas 1-3, 5 and A.1 in (9.55), |w(T)|; Other, A work, 2020, Theorem 7"
    assert cited(paper, text) == ("Lemma 1", "Lemma 2", "Lemma 3", "Lemma 5", "Lemma A.1", "(9.55)")
    assert references("Remark after Theorem 2") == ("Remark after Theorem 2",)
    assert cited(paper, "derived for penchant, Theorem 1") == ()


def test_an_item_without_check_or_reason_is_missing_and_ends_with_one(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PENCHANT_CACHE", str(tmp_path))
    assert main(["coverage", "attention_regression", "--json"]) == 0
    rows = {row["item"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["Lemma 2"]["claims"] == {"attention-regression/lemma-2": "not checked yet"}
    assert rows["Figure 1"]["studies"] == ["attention-regression"]
    assert (rows["(8)"]["status"], rows["(8)"]["kind"]) == ("explained", "equation")
    assert main(["coverage", "networks"]) == 0
    assert "no verdict of this code yet for 1 of these claims: penchant verify" in capsys.readouterr().out
    (paper,) = (paper for paper in PAPERS if paper.name == "attention_regression")
    (row,) = (row for row in coverage([paper], {"attention-regression/lemma-2": "refuted"}) if row["item"] == "Lemma 2")
    assert row["claims"] == {"attention-regression/lemma-2": "refuted"}
    lacking = {"paper": paper.name, "kind": "lemma", "item": "Lemma 99", "words": "nothing", "note": ""}
    monkeypatch.setattr("penchant.commands.verify.items", lambda paper: [lacking])
    assert main(["coverage", "attention_regression"]) == 1
    assert "1 missing: Lemma 99" in capsys.readouterr().out
