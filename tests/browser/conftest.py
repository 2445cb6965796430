"""Pages in a real browser: Debian's Chromium, driven by Playwright; skipped where either is missing."""

import os
import shutil
from pathlib import Path

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(os.environ.get("PENCHANT_AXE", "node_modules/axe-core/axe.min.js"))
LOCAL = ("file:", "blob:", "data:")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def chromium():
    api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install 'penchant[browser]'"
    )
    if CHROMIUM is None:
        pytest.skip("There is no chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """A function that opens a file and returns its page; whatever it opened must have asked for nothing and said nothing."""
    pages, said = [], []

    def open_page(path, address="", **options):
        page = chromium.new_page(**{"viewport": {"width": 1280, "height": 900}, "bypass_csp": True, **options})
        page.on("console", lambda message: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: None if request.url.startswith(LOCAL) else said.append(request.url))
        page.goto(Path(path).as_uri() + address)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert said == []
