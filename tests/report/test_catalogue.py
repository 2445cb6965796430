"""The site: what training selects by optimiser and setting, every public name explained, and a strict build."""

import re

import pytest

from penchant.cli import main
from penchant.papers import PAPERS
from penchant.report.catalogue import RELATIONS, _related, _writer, claim_page, matrix, page_of, public_names


@pytest.fixture(scope="module")
def cells():
    return matrix()


def test_the_matrix_knows_theorems_and_what_nobody_has_looked_at(cells):
    assert {cell.state for cell in cells["flow"].values()} == {"theorem"}
    assert cells["polyak"]["softmax attention, W"].state == "theorem"
    assert cells["sign"]["linear classification"].theorem.name == "linear-steepest-margin"
    assert cells["adam"]["attention, keys and queries"].state == "conjecture"
    assert (
        cells["ngd"]["regression"].state == "unknown"
    )  # claims on the margins of normalised descent say nothing of a fit
    assert cells["sign"]["regression"].state == "unknown"
    assert cells["muon"]["several classes"].theorem.name == "momentum-margin"
    states = {cell.state for row in cells.values() for cell in row.values()}
    assert {"theorem", "conjecture", "unknown"} <= states <= {"theorem", "conjecture", "refuted", "unknown"}


def test_what_a_person_wrote_is_about_cells_and_claims_that_exist(cells):
    known = {claim.name for paper in PAPERS for claim in paper.claims}
    for optimiser, row in RELATIONS["measured"].items():
        for setting, names in row.items():
            assert cells[optimiser][setting].state in ("conjecture", "refuted")
            assert set(names) <= known
    for relation in ("implies", "contradicts"):
        for name, others in RELATIONS[relation].items():
            assert {name, *others} <= known
            assert name not in others


def test_relations_fit_the_verdicts_and_point_both_ways():
    """What holds implies nothing that fails, and contradicts nothing that holds."""
    expected = {claim.name: claim.expected.value for paper in PAPERS for claim in paper.claims}
    assert all(expected[one] == "confirmed" for names in RELATIONS["implies"].values() for one in names)
    for name, others in RELATIONS["contradicts"].items():
        assert {expected[name], *(expected[one] for one in others)} == {"confirmed", "refuted"}
    back = {"implies": "implied by", "contradicts": "contradicts", "what holds instead": "holds instead of"}
    for paper in PAPERS:
        found = {claim.name: _related(claim, paper) for claim in paper.claims}
        for name, related in found.items():
            assert all(name in found[other][back[one]] for one in back for other in related[one])


def test_pages_have_names_of_their_own(cells):
    found = {cell.theorem.name: page_of(cell.theorem) for row in cells.values() for cell in row.values()}
    assert len(set(found.values())) == len(found)
    claims = [claim_page(claim.name) for paper in PAPERS for claim in paper.claims]
    assert len(set(claims)) == len(claims)


def test_every_public_name_is_explained():
    import penchant

    assert [name for name, _, _ in public_names()] == penchant.__all__


HOSTILE = "a](http://evil) ![x](http://evil/x.png) <script>alert(1)</script>\n\n# 'quoted' \"it\" & |w| <= 1"


def test_a_report_of_somebody_else_is_shown_as_text(tmp_path):
    """What a ledger and a study say makes no tag, link or picture on the page of a claim."""
    paper, figure = PAPERS[0], {"title": HOSTILE, "caption": HOSTILE}
    row = {"twin": HOSTILE, "inequality": HOSTILE, "verdict": HOSTILE}
    given = {"claim": paper.claims[0], "paper": paper, "row": row, "history": {"0.1": HOSTILE}, "related": {}}
    _writer(tmp_path)("claim", "claim", figure=({}, figure), drawn="one.svg", **given)
    text = (tmp_path / "claim.md").read_text(encoding="utf-8")
    assert text.count("alert(1)") == 5
    assert "<script" not in text
    assert "](http" not in text
    assert "# 'quoted'" not in text.splitlines()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of what MyST asks of Sphinx
def test_the_site_is_built_without_a_warning(tmp_path, capsys):
    pytest.importorskip("furo", reason="the theme is not installed: pip install 'penchant[docs]'")
    assert main(["docs", "--report", str(tmp_path / "none"), "--out", str(tmp_path / "site")]) == 0
    start = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "What does training select?" in start
    assert (tmp_path / "site" / "explorer.html").exists()
    assert "searchindex.js" in (tmp_path / "site" / "search.html").read_text(encoding="utf-8")
    pages = list((tmp_path / "site" / "claims").glob("*.html"))
    assert len(pages) == sum(len(paper.claims) for paper in PAPERS)
    assert not any("https://fonts" in page.read_text(encoding="utf-8") for page in pages)
    known = set(re.findall(r'<span id="([^"]+)"></span>', (tmp_path / "site" / "glossary.html").read_text("utf-8")))
    linked = re.findall(
        r'glossary.html#([^"]+)" title',
        (tmp_path / "site" / "tutorials" / "1-first-five-minutes.html").read_text("utf-8"),
    )
    assert {"setting", "margins", "reference"} <= set(linked) <= known
    capsys.readouterr()
