"""What every page must pass: names for controls, enough contrast, and the axe rules, without which a test is skipped by name."""

import pytest

from .conftest import AXE

# Contrast of every text with the nearest background that is not transparent, by the WCAG formula; and controls without a name.
_OWN = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((s, c, k) => s + c * [0.2126, 0.7152, 0.0722][k], 0);
  const under = (element) => { for (let at = element; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    if (!element.checkVisibility() || element.closest("svg, math, :disabled")) continue;
    const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (words) {
      const [a, b] = [light(parse(getComputedStyle(element).color)), light(under(element))].sort((x, y) => y - x);
      if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`contrast: ${element.textContent.slice(0, 40)}`);
    }
    if (element.matches("button, select, input") && !(element.labels?.length || element.textContent.trim() || element.ariaLabel)) found.push(`name: ${element.outerHTML.slice(0, 60)}`);
  }
  for (const svg of document.querySelectorAll("svg[role=img]")) if (!svg.ariaLabel) found.push("an image without a label");
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.filter((one) => one === id).length > 1) found.push(`id twice: ${id}`);
  return found;
}"""


def complaints(page):
    """What is wrong with a page for people who see, read or steer it in other ways."""
    if found := page.evaluate(_OWN):
        return found
    if not AXE.exists():
        pytest.skip(
            f"The axe rules were not checked, all else was: '{AXE}' is missing. Type: npm install --no-save axe-core"
        )
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in page.evaluate("axe.run()")["violations"]]
