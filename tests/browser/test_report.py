"""The report: filter, figures on demand, hostile text, and access for everybody."""

import json

import numpy as np
import pytest

from penchant.papers import PAPERS
from penchant.report.figures import _edges
from penchant.report.page import render

from .checks import complaints

LINE = {"label": "run", "x": [1.0, 10.0, 100.0], "y": [1.0, 0.1, 0.01], "style": "line"}
FIGURE = {
    "name": "rate",
    "title": "Rate of <b>the</b> run",
    "x_label": "step",
    "y_label": "gap",
    "caption": "1 - corr <= 1/t",
}
FIGURE |= {"lines": [LINE, LINE | {"label": "predicted", "style": "prediction"}], "x_scale": "log", "y_scale": "log"}
EMPTY = FIGURE | {"name": "empty", "title": "Nothing", "lines": [LINE | {"y": [0.0, -1.0, None]}]}
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)> it\'s "quoted" & <= 1'


def row(paper, claim):
    return {
        "claim": claim.name, "paper": paper.name, "kind": claim.kind, "statement": claim.statement, "citation": claim.citation,
        "verdict": claim.expected.value, "expected": claim.expected.value, "inequality": "gap = 0.5 <= 1", "detail": "of <20>",
        "predicted": 1.0, "measured": 0.5, "twin": "refuted", "seconds": 0.1, "repair": claim.repair, "repaired": "",
    }  # fmt: skip


ROWS = [row(paper, claim) for paper in PAPERS for claim in paper.claims]
EVIL = ROWS[0] | {"claim": 'evil/"quote"', "statement": HOSTILE, "citation": HOSTILE}


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    findings = [
        {
            "statement": ROWS[3]["statement"],
            "verdict": {"outcome": "confirmed", "inequality": "gap = 0 <= 1"},
            "citation": HOSTILE,
        }
    ]
    table = {
        "name": "hypotheses",
        "title": HOSTILE,
        "columns": ["name", "slack"],
        "rows": [["separable", "1.5"], ["small", "-0.2"]],
        "caption": HOSTILE,
    }
    study = {
        "format": "penchant study 1",
        "name": "tiny",
        "title": HOSTILE,
        "findings": findings,
        "figures": [FIGURE, EMPTY],
        "tables": [table],
        "definitions": {"gap": HOSTILE},
    }
    (root / "tiny").mkdir()
    (root / "tiny" / "study.json").write_text(json.dumps(study))
    (root / "ledger.json").write_text(json.dumps({"format": "penchant ledger 1", "claims": [*ROWS, EVIL]}))
    return render(root)


def test_the_filter_narrows_to_the_right_claims(visit, page_file):
    page = visit(page_file)
    shown = lambda: {
        one.removeprefix("claim-")
        for one in page.evaluate("[...document.querySelectorAll('.claim:not([hidden])')].map((one) => one.id)")
    }
    assert len(shown()) == len(ROWS) + 1
    page.select_option("#filter-verdict", "refuted")
    assert shown() == {one["claim"] for one in ROWS if one["verdict"] == "refuted"}
    page.select_option("#filter-paper", "notes")
    wanted = {one["claim"] for one in ROWS if one["verdict"] == "refuted" and one["paper"] == "notes"}
    assert shown() == wanted
    assert page.text_content("#shown") == f"{len(wanted)} of {len(ROWS) + 1} claims"
    page.select_option("#filter-verdict", "")
    page.fill("#words", "theorem 9.25")
    assert shown()
    assert all("Theorem 9.25" in one["citation"] for one in ROWS if one["claim"] in shown())
    assert page.locator("#tiny").is_visible()  # studies are no claims
    page.fill("#words", "")
    page.select_option("#filter-paper", "")
    assert page.locator(".paper[open]").count() == 0


def test_a_square_is_a_claim_and_leads_to_it(visit, page_file):
    page = visit(page_file)
    assert page.locator(".units a").count() == len(ROWS) + 1
    assert page.locator(".units a.refuted").count() == sum(one["verdict"] == "refuted" for one in ROWS)
    page.fill("#words", "nothing that any claim says")
    page.locator(".units a.refuted").first.click()
    assert page.locator(".claim[open]").get_attribute("data-verdict") == "refuted"
    assert page.locator(".claim[open]").is_visible()


def test_opening_a_claim_shows_its_figure_with_values(visit, page_file):
    page = visit(page_file, viewport={"width": 1280, "height": 700})
    claim = page.locator(f"[id='claim-{ROWS[3]['claim']}']")
    assert claim.locator("svg").count() == 0
    page.evaluate("id => { location.hash = id; }", f"claim-{ROWS[3]['claim']}")
    claim.locator(".chart svg").wait_for()
    claim.locator(".chart svg").focus()
    page.keyboard.press("ArrowRight")
    assert "run: step 1, gap 1" in claim.locator(".tip").text_content()
    assert claim.locator("path[stroke-dasharray='7 5']").count() == 1  # the prediction is dashed
    assert claim.locator(".gauge i").evaluate("one => one.style.left") == "25%"


def test_empty_figures_are_left_out_with_a_sentence(visit, page_file):
    text = visit(page_file).locator("#tiny").text_content()
    assert "Left out: Nothing, because" in text


def test_hostile_text_is_shown_as_text(visit, page_file):
    page = visit(page_file)
    text = page.locator('[id="claim-evil/\\"quote\\""]').text_content()
    assert "<script>alert(1)</script" in text
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def test_the_index_is_small_and_formulas_need_no_script(page_file):
    text = page_file.read_text(encoding="utf-8")
    assert page_file.stat().st_size < 2_000_000
    assert text.count("<math>") > 100
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_axes_of_less_than_two_decades_have_ticks_between_the_powers(visit, page_file):
    page = visit(page_file)
    told = lambda low, high: page.evaluate(f"logTicks({low}, {high}, 7).map(([, text]) => text)")
    assert told(-0.8, 0.4) == ["0.2", "0.5", "1", "2"]
    assert told(0.5, 1.0) == ["4", "6", "8", "10"]
    assert told(-2, 1) == ["10⁻²", "10⁻¹", "1", "10¹"]
    assert page.evaluate("linearTicks(-0.03, 1.0).map(([, text]) => text)") == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


@pytest.mark.parametrize(
    ("points", "scale"), [([0.05, 0.2, 1.0], "linear"), ([0.01, 0.1, 1.0], "log"), ([2.0], "linear")]
)
def test_the_cells_of_a_map_lie_around_their_points_as_in_the_drawing(points, scale, visit, page_file):
    assert visit(page_file).evaluate(f"edges({points}, '{scale}')") == pytest.approx(_edges(np.array(points), scale))


def test_print_shows_every_claim_and_the_figures_that_are_open(visit, page_file):
    page = visit(page_file, color_scheme="dark")
    page.wait_for_function("received.has('tiny')")  # loaded without being looked at
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".claim > summary").last.is_visible()
    assert page.locator("#tiny--rate--first .chart svg").is_visible()
    assert not page.locator("#studies").is_visible()  # none of them is open: no heading without a text
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')") == "#ffffff"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".paper[open]").count() == 0


def test_the_keyboard_opens_a_claim(visit, page_file):
    page = visit(page_file)
    page.locator(".paper > summary").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".claim[open]").count() == 1


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_the_page_is_for_everybody(visit, page_file, scheme, width):
    page = visit(page_file, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.evaluate(
        "document.querySelectorAll('.paper, .claim:nth-of-type(3), #tiny, #tiny details').forEach((one) => (one.open = true))"
    )
    page.locator(".plot").first.scroll_into_view_if_needed()
    page.locator(".chart svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints(page) == []
