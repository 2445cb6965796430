"""Sphinx: pages from Markdown, everything on this machine, search that works from a folder.

Terms lead to the glossary at their first use on a page, with their meaning under the pointer; powers are raised.
"""

import re
from html import escape
from pathlib import Path

project = html_title = "penchant"
project_copyright = "the penchant authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_theme_options = {"top_of_page_buttons": []}
html_copy_source = False
html_extra_path = ["_extra"]
html_show_sphinx = False
html_show_search_summary = False  # it would be fetched, which a page opened from a folder may not do
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]
exclude_patterns = ["_extra"]
html_static_path = ["_static"]
html_css_files = ["site.css"]

# Where no term is looked for: sources, code, headings, quotes, tables, formulas, links. Then words that mostly are no terms.
KEPT = r"^## Source$.*|^```.*?^```$|^[#>|<:][^\n]*$|<math>.*?</math>|`[^`\n]*`|!?\[[^\]]*\]\([^)]*\)|<[^>]*>"
COMMON = {"case", "pair", "floor", "resolved", "boundary", "inside", "band", "idle", "width", "window", "threshold", "noise", "querie", "key", "account", "turn", "size", "order", "share", "layer", "flat", "drift", "decay", "unique", "instant", "offset", "escape", "aligned", "stalled", "reading", "settling", "study", "finding", "panel", "divisor", "clock", "dwell", "basin", "explorer", "concentration", "accumulated", "time", "sandwich", "weights"}  # fmt: skip
# Rows of one meaning; what the glossary says of a word "(of something)" is not said of the word elsewhere.
ROWS = re.findall(
    r"^\| ([^|(`]+) \| (.*) \|$", Path(__file__).with_name("glossary.md").read_text("utf-8"), re.MULTILINE
)
MEANINGS = {
    name: (row.split(", ")[0], re.sub(r"[*`\\]", "", said)) for row, said in ROWS[1:] for name in row.split(", ")
}
NAMES = sorted(
    (
        name.removesuffix("s")
        for name in MEANINGS
        if len(name) > 3 and COMMON.isdisjoint({name, name.removesuffix("s")})
    ),
    key=len,
)[::-1]
TERM = re.compile(
    rf"{KEPT}|(?<=[\w)+-])\^(?P<power>-?\w+(?:\.\d+)?)|\b(?P<term>{'|'.join(map(re.escape, NAMES))})s?\b", re.M | re.S
)


def place(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def terms(app: object, page: str, source: list[str]) -> None:
    """Links, and no empty lines at the end of what an example prints."""
    seen = set()

    def link(found: re.Match) -> str:
        if found["power"]:
            return f"<sup>{found['power'].replace('-', '−')}</sup>"
        name = found["term"] if found["term"] in MEANINGS else f"{found['term']}s"
        if found["term"] is None or name in seen:
            return found.group()
        seen.add(name)
        first, said = MEANINGS[name]
        there = f"{'../' * page.count('/')}glossary.html#{place(first)}"
        return f'<a href="{there}" title="{escape(said)}">{found.group()}</a>'

    if page == "glossary":
        source[0] = re.sub(
            r"^\| (?=([^|(,`]+?)(?:,| \(| \|))",
            lambda found: f'| <span id="{place(found[1])}"></span>',
            source[0],
            flags=re.M,
        )
    elif page not in ("index", "api"):
        source[0] = TERM.sub(link, source[0]).replace("\n\n```\n", "\n```\n")


def setup(app) -> None:
    app.connect("source-read", terms)
