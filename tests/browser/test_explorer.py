"""The explorer computes what penchant computes, and can be used by anybody."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from urllib.parse import quote

import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import nnls

from penchant.cli import main
from penchant.flow.flow import GradientFlow
from penchant.optimisers.table import OPTIMISERS, Given
from penchant.references.euclidean_margin import max_margin
from penchant.references.interpolation import minimum_potential
from penchant.report.catalogue import _SETTINGS, matrix
from penchant.report.explore import own_spec, presets, setting_of, write_explorer
from penchant.training.events import LogSpaced, MarginAbove
from penchant.training.train import train

from .checks import complaints

PRESETS = presets()
CLOSE = 1e-12
WORDS = ("flow", "gd", "ngd", "polyak", "sign", "adam", "muon")
WAIT = "document.body.dataset.state === 'ready'"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_explorer(tmp_path_factory.mktemp("explorer") / "explorer.html")


def opened(visit, file, **state):
    page = visit(file, f"#{quote(json.dumps(state))}" if state else "")
    page.wait_for_function(WAIT)
    return page


def far(found, wanted):
    """The largest difference, relative to the largest number."""
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def expected(spec):
    """What penchant computes for a description: the records, and where a flow on a regression ends."""
    setting = setting_of(spec)
    _, unravel = ravel_pytree(setting.start() if "seed" not in spec else setting.start(0, 1.0))
    start = unravel(jnp.asarray(spec["start"], float))
    if spec["setting"] == "signed-squares" and spec["optimiser"] == "flow":
        found = minimum_potential(setting.data, setting.parametrisation.potential(start))
        return {"weight": np.ravel(found.weight).tolist()}
    until = MarginAbove(float(spec["margin"])) if "margin" in spec else None
    flowing, steps = spec["optimiser"] == "flow", spec.get("steps")
    rule = GradientFlow() if flowing else OPTIMISERS[spec["optimiser"]].make(Given(spec["size"]))
    run = train(setting, rule, start, steps=steps, until=until, recorder=None if flowing else LogSpaced(100))
    names = ("steps", "log_time", "log_excess", "norm", "margins", "dual")
    found = {name: np.asarray(getattr(run, name)).tolist() for name in names}
    weights = [np.ravel(run.weight(k)).tolist() for k in range(len(run.steps))]
    return {"status": run.status.name, **found, "weights": weights}


@pytest.fixture
def kernel(request, file):
    """What the explorer computes for a description: by Node where that is installed, so that it is compared without a browser too."""
    if not (node := shutil.which("node")):
        return lambda spec: opened(request.getfixturevalue("visit"), file).evaluate("spec => run(spec)", spec)
    source = files("penchant.report").joinpath("explorer/kernel.js").read_text(encoding="utf-8")
    script = f"{source};console.log(JSON.stringify(run(JSON.parse(require('fs').readFileSync(0, 'utf8')))))"
    return lambda spec: json.loads(subprocess.check_output([node, "-e", script], input=json.dumps(spec), text=True))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_what_penchant_computes(kernel, name):
    """Descents at every record; flows, whose steps depend on rounding, where they end. The limit of a flow on squares is a minimum."""
    spec = PRESETS[name]
    found, wanted = kernel(spec), expected(spec)
    if "weight" in wanted:
        assert far(found["records"][-1]["weight"], wanted["weight"]) <= CLOSE
        return
    assert found["status"] == wanted["status"]
    assert [one["steps"] for one in found["records"]] == wanted["steps"]
    places = [-1] if spec["optimiser"] == "flow" else range(1, len(wanted["steps"]))
    for k in places:
        record = found["records"][k]
        assert far(record["weight"], wanted["weights"][k]) <= CLOSE
        assert far(record["margins"], wanted["margins"][k]) <= CLOSE
        assert abs(record["logTime"] - wanted["log_time"][k]) <= CLOSE * max(1, abs(wanted["log_time"][k]))
        if spec["setting"] != "signed-squares":  # a residual is a difference, and known to rounding of the targets only
            assert abs(record["logExcess"] - wanted["log_excess"][k]) <= CLOSE * max(1, abs(wanted["log_excess"][k]))
    assert far(found["records"][-1]["dual"], wanted["dual"][-1]) <= CLOSE


@pytest.mark.parametrize(
    "name", [name for name, spec in PRESETS.items() if spec["setting"] in ("linear", "deep-linear")]
)
def test_references_are_those_of_penchant(visit, file, name):
    """Also where rows depend on each other, as the strips do: 40 points in the plane."""
    found = opened(visit, file).evaluate("spec => references(problem(spec)).l2.value", PRESETS[name])
    bounds = max_margin(setting_of(PRESETS[name]).data).bracket
    assert bounds.lower * (1 - CLOSE) <= found <= bounds.upper * (1 + 1e-9)


def test_margins_are_the_largest_on_data_of_every_kind(visit, file):
    """In the l2 norm against least squares; in the others the multipliers prove it, whose dual norm bounds every margin."""
    page, rng = opened(visit, file), np.random.default_rng(0)
    lists = "rows => { const found = rows.map((x) => Float64Array.from(x)); return [maxMargin(found)?.value, ...['l1', 'linf'].map((norm) => polyhedralMargin(found, norm)).map((one) => one && [[...one.weight], [...one.dual]])]; }"
    for _ in range(60):
        rows = rng.normal(size=(rng.integers(2, 40), rng.integers(1, 13))).round(
            1
        )  # rounded: many depend on each other
        rows *= np.where(rows @ rng.normal(size=rows.shape[1]) < 0, -1.0, 1.0)[:, None]
        answer = nnls(np.vstack([rows.T, np.ones(len(rows))]), [0.0] * rows.shape[1] + [1.0])[0]
        weight = rows.T @ answer
        (l2, *others), least = page.evaluate(lists, rows.tolist()), (rows @ weight).min()
        if least <= 1e-6:
            assert l2 is None or l2 > 1e5
            continue
        assert abs(l2 * least / np.linalg.norm(weight) - 1) < 1e-9
        for order, dual, (found, multipliers) in zip((1, np.inf), (np.inf, 1), others, strict=True):
            upper = np.linalg.norm(found, order) / (rows @ found).min()
            lower = np.sum(multipliers) / np.linalg.norm(rows.T @ multipliers, dual)
            assert 0 < lower <= upper * (1 + 1e-9)
            assert upper / lower - 1 < 1e-9


def test_the_explorer_calls_proved_what_the_catalogue_calls_so(visit, file):
    told, cells = opened(visit, file).evaluate("PROVED"), matrix()
    shown = {PRESETS[preset]["setting"]: name for name, preset in _SETTINGS.items() if preset}
    for kind, name in shown.items():
        known = {rule for rule in WORDS if cells[rule][name].state == "theorem"}
        assert set(told[kind]) == known & set(opened(visit, file).evaluate(f"CHOICES['{kind}']"))


def test_dragging_a_point_gives_the_direction_of_python(visit, file):
    page = opened(visit, file)
    before = page.evaluate("explorer.result.records.at(-1).weight")
    box = page.locator("[data-path='inputs,0']").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 45, steps=5)
    page.mouse.up()
    page.wait_for_function("explorer.state.data.inputs[0][0] !== 1.6")
    page.wait_for_function(WAIT)
    page.wait_for_timeout(300)
    state = page.evaluate("explorer.state")
    found = np.array(page.evaluate("explorer.result.records.at(-1).weight"))
    wanted = np.array(expected(state)["weights"][-1])
    assert far(found / np.linalg.norm(found), wanted / np.linalg.norm(wanted)) <= CLOSE
    assert far(found, before) > 1e-2
    again = visit(file, page.evaluate("location.hash"))
    again.wait_for_function(WAIT)
    assert again.evaluate("explorer.state.data.inputs[0]") == state["data"]["inputs"][0]  # the address holds the state


def test_a_page_is_ready_when_the_last_of_many_moves_is_computed(visit, file):
    page = opened(visit, file)
    page.evaluate("() => { for (const x of [1, 1.2, 1.4]) { state.data.inputs[0][0] = x; train(); } }")
    page.wait_for_function(WAIT)
    shown, wanted = page.evaluate("[explorer.result, run(explorer.state)].map((one) => one.records.at(-1).weight)")
    assert shown == wanted


@pytest.mark.parametrize("optimiser", WORDS)
def test_an_address_may_name_an_optimiser_alone(visit, file, optimiser):
    """As the pages of theorems do: steps and their size are its own, and the run is under way as long as they last."""
    page = opened(visit, file, preset="attention", optimiser=optimiser)
    assert page.evaluate("explorer.state.optimiser") == optimiser
    assert page.evaluate("explorer.result.status") == ("reached_target" if optimiser == "flow" else "out_of_steps")


@pytest.mark.parametrize(("arithmetic", "low", "high"), [("float64", 33, 40), ("float32", 12, 18)])
def test_ordinary_floats_die_where_the_guide_says(visit, file, arithmetic, low, high):
    """Softmax attention loses its gradient where e^-margin falls below the rounding of 1: at margin 36 in float64, 16 in float32."""
    page = opened(visit, file, preset="attention")
    page.check(f"input[value={arithmetic}]")
    page.wait_for_function("explorer.result.plain && explorer.result.plain.died")
    assert low <= page.evaluate("explorer.result.plain.died.margin") <= high
    assert "dies at margin" in page.text_content("#died")
    assert page.evaluate("Math.min(...explorer.result.records.at(-1).margins)") > 9e5  # in logarithms it goes on


@pytest.mark.parametrize(("name", "gap"), [("deep-linear", 0.03), ("key-query", 0.01), ("diagonal", 0.006)])
def test_runs_of_layers_certify_themselves(visit, file, name, gap):
    """What small parameters gather early counts little: counted alike, the gaps were 0.55, 0.06 and 0.06."""
    last = opened(visit, file, preset=name).evaluate("explorer.result.brackets.at(-1)")
    assert last["lower"] <= last["upper"] <= (1 + gap) * last["lower"]


def test_a_lecture_can_drag(visit, file):
    """20 000 normalised steps on n=6, T=8, d=10."""
    times = opened(visit, file).evaluate(
        "spec => Array.from({ length: 12 }, () => { const start = performance.now(); run(spec); return performance.now() - start; })",
        PRESETS["self-attention"],
    )
    print(f"20 000 steps: {min(times):.0f} ms")
    assert min(times) < 300


def test_the_keyboard_reaches_everything(visit, file):
    page = opened(visit, file)
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.dataset?.path || document.activeElement.tagName"
            )
        )
    assert {"preset", "optimiser", "loss", "margin", "reset", "link", "inputs,0", "inputs,7", "BUTTON", "svg"} <= seen
    page.focus("[data-path='inputs,0']")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("explorer.state.data.inputs[0][0] === 1.6 + 0.05")
    page.wait_for_function(WAIT)
    page.evaluate("document.querySelector('#directions svg').focus(); train()")  # a run that ends takes no focus
    page.wait_for_function(WAIT)
    page.keyboard.press("ArrowRight")
    assert "t = " in page.text_content("#directions .tip")


PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
UNREADABLE = """() => {
  const found = [], box = (one) => one.getBoundingClientRect();
  const meet = (a, b) => a.left + 2 < b.right && b.left + 2 < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
  const labels = (where) => [...document.querySelectorAll(`${where} text`)];
  for (const where of ["#plane", "#bar"]) labels(where).forEach((one, k, all) => found.push(...all.slice(k + 1).filter((other) => meet(box(one), box(other))).map((other) => `${one.textContent} on ${other.textContent}`)));
  for (const line of document.querySelectorAll("#bar .rival")) found.push(...labels("#bar").filter((one) => box(one).left < box(line).left && box(line).left < box(one).right && meet({ ...box(line).toJSON(), left: box(line).left - 3, right: box(line).right + 3 }, box(one))).map((one) => `a line through ${one.textContent}`));
  for (const where of ["#directions", "#excess", "#margins"]) for (const anchor of ["middle", "end"])
    if (labels(where).filter((one) => one.matches(`[text-anchor=${anchor}]:not(.name)`)).length < 2) found.push(`${where}: one tick (${anchor})`);
  return found;
}"""


def test_every_picture_can_be_read(visit, file):
    """Labels cover neither each other nor a line of the bar, axes have two ticks or more, and what is below rounding is told so."""
    page = opened(visit, file)
    for name in PRESETS:
        page.select_option("#preset", name)
        page.wait_for_function("name => explorer.state.preset === name", arg=name)
        assert page.evaluate(UNREADABLE) == [], name
        assert not re.search(r"10⁻(1[7-9]|[23].)|to it 0\.$", page.text_content("#verdict").translate(PLAIN)), name


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_the_page_is_for_everybody(visit, file, scheme, width):
    page = visit(file, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.wait_for_function(WAIT)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints(page) == []


def test_in_a_frame_it_fits_and_leads_to_all_of_it(visit, file, tmp_path):
    (tmp_path / "frame.html").write_text(f'<iframe src="{file.as_uri()}" width="700" height="800"></iframe>')
    frame = visit(tmp_path / "frame.html").frames[-1]
    frame.wait_for_function(WAIT)
    assert frame.is_hidden("header")
    assert frame.is_visible("#plane")
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert frame.get_attribute("#whole", "href").startswith(file.as_uri())


def test_own_data_and_hostile_names_and_addresses_are_text(visit, tmp_path, capsys):
    data = tmp_path / "<img src=x onerror=alert(1)>.npz"
    np.savez(data, inputs=[[2.0, 0.5], [0.1, 1.0], [-1.0, -2.0]], labels=[1, 1, -1])
    assert main(["explore", str(data), "--out", str(tmp_path / "own.html")]) == 0
    hostile = {
        "preset": "own",
        "optimiser": "<script>alert(1)</script>",
        "steps": "1e9",
        "data": {"inputs": "x"},
        "__proto__": 3,
    }
    page = opened(visit, tmp_path / "own.html", **hostile)
    assert page.text_content("#title") == data.name
    assert page.evaluate("explorer.state.optimiser") == "flow"
    assert page.evaluate("explorer.state.data") == own_spec(data)["data"]
    assert page.get_attribute("[data-path='inputs,2']", "aria-label").startswith("point 3, class − at (-1, -2)")
    assert page.locator("#plane rect").count() == 1  # its class has another shape
    assert "confirmed" not in capsys.readouterr().out


def test_the_file_is_small_and_whole(visit, file):
    visit(file, bypass_csp=False).wait_for_selector("body[data-state=ready]")  # its own policy forbids all but itself
    text = file.read_text(encoding="utf-8")
    assert file.stat().st_size < 300_000
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_data_that_are_too_large_are_refused(tmp_path):
    np.savez(tmp_path / "large.npz", inputs=np.ones((3000, 10)), labels=np.ones(3000))
    with pytest.raises(ValueError, match="30000 numbers"):
        own_spec(tmp_path / "large.npz")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"inputs": [[1.0, 0.0], [2.0, 0.0]], "targets": [1.0, 2.0]}, "1 independent of 2 samples"),
        ({"tokens": np.eye(3)[None] + 0.1, "scores": [[1.0, 0.0, 0.5]], "mask": [[1, 1, 0]]}, "padded tokens"),
    ],
)
def test_data_that_the_kernel_does_not_know_are_refused(tmp_path, arrays, words):
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(ValueError, match=words):
        own_spec(tmp_path / "data.npz")
