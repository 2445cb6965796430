"""What the studies of deep linear networks draw: layers that align, the laws of their rates, and AlexNet."""

from collections.abc import Callable
from itertools import product

import numpy as np
from jaxtyping import PyTree

from ...diagnostics.alignment import alignments, sandwich, sine
from ...errors import quietly
from ...exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table, table
from ...lab import Lab, Study, recipe
from ...optimisers.layerwise import LayerDescent, LineSearch
from ...settings.base import Setting
from ...training.events import Every, LogExcessBelow
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_least
from . import laws, lemmas
from .alignment import theorem4
from .drawn import lemma8, theorem1
from .evidence import FINEST, descent, flow, geometry, levels, mirrored, problem
from .theorems import JI

WORDS = {
    "-log R": "minus the natural logarithm of the mean risk: the clock in which the laws are powers",
    "ratio": "spectral over Frobenius norm of a layer; 1 means rank one",
    "alignment": "|<v_{k+1}, u_k>|, top right singular vector of a layer with the top left one of the layer below",
    "excess": "Frobenius norm squared minus spectral norm squared",
    "D": "largest squared Frobenius norm of a layer minus that of the last one, plus the spectral norms of the imbalances W_k W_k' - W_{k+1}' W_{k+1}, at the start",
    "R_0": "the risk of the start",
    "traces": "of a layer: the sum over the steps of the squared step size times the squared gradient norm",
    "violation": "log R after a step minus the log of what the descent inequality promises; negative means that it was kept",
}


def words(*names: str) -> dict[str, str]:
    """The common definitions, and those of these networks that a study needs."""
    return {**DEFINITIONS, **{name: WORDS[name] for name in names}}


@recipe
def _runs(lab: Lab) -> tuple[Trajectory, Trajectory, Trajectory]:
    """Four layers, four layers from a small start, and one layer from 0."""
    steps, seed = 1000 if lab.full else 250, 1 + lab.seed
    lab.progress("line search")
    one = problem(lab, 1, logistic=True)[0]
    single = train(one, LayerDescent(LineSearch(one)), (np.zeros((1, 2)),), steps=steps, recorder=Every())
    return descent(lab, steps=steps, seed=seed), descent(lab, steps=steps, scale=0.15, seed=seed), single


def _angles(lab: Lab, run: Trajectory) -> np.ndarray:
    unit = geometry(lab).direction
    weights = [run.weight(k) for k in range(len(run))]
    return np.array([np.degrees(np.arcsin(min(1.0, sine(w, unit)))) if w.any() else np.nan for w in weights])


def risks(lab: Lab) -> tuple[Figure, Figure]:
    deep, small, single = _runs(lab)
    named = {"start 0.4": deep, "start 0.15": small, "1 layer": single}
    lines = tuple(Line(name, run.steps, levels(run)) for name, run in named.items())
    plain = tuple(Line(name, run.steps, np.exp(run.log_excess)) for name, run in list(named.items())[:2])
    caption = "The first panel on a linear axis, where it looks finished after ten steps."
    return (
        Figure("risk", "Risk against the step", "step", "-log R", lines, "Logistic risk, uncapped line search."),
        Figure("risk-linear", "Risk against the step, as the paper draws it", "step", "R", plain, caption),
    )


def aligned(lab: Lab) -> tuple[Figure, Figure]:
    run = _runs(lab)[1]
    found, step = alignments(run), np.maximum(run.steps, 1)
    ratios = tuple(Line(f"layer {k + 1}", step, 1 - found.deficit[:, k]) for k in range(4))
    misfits = tuple(Line(f"layers {k + 1} and {k + 2}", step, found.misfit[:, k]) for k in range(3))
    caption = "Start 0.15. The last layer is a row, so its ratio is always 1."
    title, label = "Adjacent layers align", "1 - |<v, u>|"
    return (
        Figure("ratios", "Every layer tends to rank one", "step", "spectral / Frobenius", ratios, caption, "log"),
        Figure("alignment", title, "step", label, misfits, "Start 0.15.", "log", "log"),
    )


def angles(lab: Lab) -> tuple[Figure, Table]:
    deep, _, single = _runs(lab)
    lines = tuple(
        Line(name, run.steps[1:], _angles(lab, run)[1:]) for name, run in (("4 layers", deep), ("1 layer", single))
    )
    caption = "Not monotone: the line search works at the edge of stability."
    rows = tuple(
        (name, k, *_of_direction(lab, run, k), f"{np.exp(run.log_excess[k]):.2g}")
        for name, run in (("4 layers, start 0.4", deep), ("1 layer, start 0", single))
        for k in (0, 1, 10, 100, 250, *((1000,) if lab.full else ()))
    )
    columns = ("network", "step", "degrees to the maximum margin", "margin / best margin", "risk")
    return (
        Figure("angle", "Angle to the maximum margin", "step", "degrees", lines, caption, "log", "log"),
        Table("angles", "Angles, margins and risks", columns, rows, "Strips in the plane, n = 40."),
    )


def _of_direction(lab: Lab, run: Trajectory, record: int) -> tuple[str, str]:
    """Angle and relative margin; the weight 0 has neither."""
    if not run.weight(record).any():
        return "no direction", ""
    return f"{_angles(lab, run)[record]:.4g}", f"{sandwich(run)[0][record] / geometry(lab).margin:.6g}"


def separators(lab: Lab) -> Figure:
    """Signed points, and the line each network separates them with."""
    deep, _, single = _runs(lab)
    signed, reach = np.asarray(deep.setting.data.signed), np.linspace(-1, 1, 2)
    half = len(signed) // 2
    points = {"+1": signed[:half], "-1": -signed[half:]}
    lines = [Line(name, those[:, 0], those[:, 1], "points") for name, those in points.items()]
    across = lambda w: np.outer([-w[1], w[0]], reach) / np.linalg.norm(w)
    for name, weight in (("1 layer", single.weight()), ("4 layers", deep.weight())):
        lines.append(Line(name, *across(weight)))
    lines.append(Line("maximum margin", *across(geometry(lab).direction), style="prediction"))
    title, caption = "Separators of one and of four layers", "After the last step; all three lines coincide to the eye."
    return Figure("separators", title, "x1", "x2", tuple(lines), caption)


def _escape(setting: Setting, start: PyTree) -> float:
    with quietly():
        run = train(setting, FINEST, start, until=LogExcessBelow(float(np.log(0.5))), steps=20_000)
    return float(np.exp(run.log_time[-1]))


@recipe
def _escapes(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of perturbations of the start w1 = -w2, and the times they need."""
    sizes = np.array([10.0**-k for k in range(2, 13, 1 if lab.full else 2)])
    lab.progress("perturbations of the saddle")
    return sizes, np.array([_escape(*mirrored(lab, float(size))) for size in sizes])


def escapes(lab: Lab) -> tuple[Figure, Table]:
    """The antisymmetric start and perturbations of it: the time is log(1/perturbation) plus a constant."""
    sizes, found = _escapes(lab)
    slope = float(np.polyfit(np.log(1 / sizes[1:]), found[1:], 1)[0])
    law = found[-1] + np.log(1 / sizes) - np.log(1 / sizes[-1])
    lines = (Line("flow", sizes, found), Line("log(1/e) + constant", sizes, law, "prediction"))
    caption = "Starts w1 = -w2 moved by e along (w, w)."
    rows = tuple((f"{size:.0e}", f"{time:.3f}") for size, time in zip(sizes, found, strict=True))
    text = f"Slope {slope:.6f} in log(1/perturbation). Rounding is a perturbation too: unperturbed runs must not be read beyond t = 20."
    return (
        Figure("escape", "Escape from the saddle", "perturbation", "time to risk 1/2", lines, caption, "log"),
        Table("escape", "Escape times", ("perturbation", "time to risk 1/2"), rows, text),
    )


def exponents(lab: Lab) -> tuple:
    """Exponents for depths 2, 3, 4, 6 against theory, with intervals over starts, for both losses."""
    seeds, rows, figures = range(1 + lab.seed, (13 if lab.full else 7) + lab.seed), [], []
    for depth, logistic, start in product(laws.DEPTHS, (False, True), seeds):
        lab.progress(f"depth {depth}, start {start}, {'logistic' if logistic else 'exponential'}")
        flow(lab, depth, logistic, start)
    for depth in laws.DEPTHS:
        slopes = [laws.measured_exponents(lab, depth, logistic, seeds) for logistic in (False, True)]
        for name, wanted in laws.exponents(depth).items():
            rows.append((depth, name, f"{wanted:.4f}", *(str(found[name]) for found in slopes)))
    caption = "Exponential loss, to risk e^-1000000. Slopes in the table."
    for name in laws.exponents(2):
        curves = []
        for depth in laws.DEPTHS:
            at, values = levels(flow(lab, depth, seed=seeds[0])), laws.series(lab, depth, seed=seeds[0])[name]
            curves.append(Line(f"L = {depth}", at[at > 1], values[at > 1]))
        title = f"The law of the {name}"
        figures.append(Figure(name.replace(" ", "-"), title, "-log R", name, tuple(curves), caption, "log", "log"))
    text = (
        f"Slopes over -log R from 1e5 to 1e6, mean over {len(seeds)} starts; ± is the 95 % interval over starts plus the drift since the decade before. "
        "The first layer's is the slope of the root mean square over the starts from 1e4 to 1e6, and its drift that since 1e2 to 1e4: its constant is a "
        "signed number that some starts nearly lack."
    )
    columns = ("L", "quantity", "theory", "exponential loss", "logistic loss")
    return *figures, Table("exponents", "Exponents in -log R", columns, tuple(rows), text)


def result(found: dict, curves: Callable, runs: dict[str, list[dict]]) -> Result:
    """Ratios of spectral to Frobenius norm of the three dense layers from both starts, and the loss."""
    layers = [name for name in found["runs"][0]["norms"] if name.startswith("ratio")]
    settings = found["settings"]
    about = f"{settings['samples']} pictures, {settings['epochs']} epochs, {len(settings['seeds'])} seeds; {found['device']}."
    draw = lambda name, title, label, read, scale: Figure(
        name, title, "epoch", label, curves(found, read), about, "linear", scale
    )
    ratios = (
        draw(f"layer-{k}", f"Dense layer {k}", "spectral / Frobenius", lambda one, n=name: one["norms"][n], "linear")
        for k, name in enumerate(layers, 1)
    )
    loss = draw("loss", "Train loss", "train loss", lambda one: one["train_loss"], "log")
    return Result(_findings(runs, layers), (*ratios, loss), (_table(runs, layers, about),))


def _findings(runs: dict[str, list[dict]], layers: list[str]) -> tuple[Finding, ...]:
    """What is said of alignment is said of runs that left the plateau of equal probabilities, and how many did is a finding of its own."""
    every = [one for those in runs.values() for one in those]
    left = lambda one: one["train_loss"][-1] <= 0.9 * one["train_loss"][0]
    gain = lambda one: np.array([one["norms"][name][-1] / one["norms"][name][0] for name in layers])
    gains = {start: np.array([gain(one) for one in those if left(one)]) for start, those in runs.items()}
    rise = min((float(rows.min()) for rows in gains.values() if len(rows)), default=np.nan)
    none = np.full((1, 2), np.nan)
    default, equal = (
        gains[name][:, :2] if len(gains.get(name, ())) else none for name in ("default start", "equal norms")
    )
    more: Verdict = at_least(
        float(equal.min() / default.max()), 1.0, "least growth from equal norms over most from the default"
    )
    count = sum(map(left, every))
    return (
        Finding(
            "The ratios of dense layers rise while the loss falls.", at_least(rise, 1.0, "least growth of a ratio"), JI
        ),
        Finding("The two wide layers align more from layers of equal norm.", more, JI),
        Finding("Every run trains.", at_least(count, len(every), "runs whose loss falls"), JI),
    )


def _table(runs: dict[str, list[dict]], layers: list[str], about: str) -> Table:
    ends = lambda one: (value for name in layers for value in (one["norms"][name][0], one["norms"][name][-1]))
    head = lambda start, one: (start, one["seed"], one["rate"], one["train_loss"][-1], one["test_accuracy"][-1])
    rows = [(*head(start, one), *ends(one)) for start, those in runs.items() for one in those]
    columns = {"start": "", "seed": "", "rate": "g", "train loss": ".4f", "test accuracy": ".4f"}
    columns |= {f"{when} {k}": ".4f" for k in range(1, len(layers) + 1) for when in ("first", "last")}
    return table("layers", "Ratios of the dense layers", columns, rows, about)


STUDIES = (
    Study(
        "deep-linear",
        "Deep linear networks: aligned layers, maximum margin (Figure 1)",
        claims=(theorem1, theorem4, lemma8, lemmas.steady_descent),
        exhibits=(separators, risks, aligned, angles),
        definitions=words("-log R", "ratio", "alignment", "excess", "D", "R_0", "traces", "violation"),
        aliases=("step-rules",),
    ),
    Study(
        "deep-linear-basin",
        "The saddle (appendix A)",
        claims=(lemmas.appendix,),
        exhibits=(escapes,),
        definitions=words()
        | {
            "E1(q), q, q0": "the exponential integral, the integral of e^-s / s from q on, of q = |w_1|^2, which is q0 at the start; the risk is e^q",
            "e, perturbation": "length of what is added to both w_1 and w_2 = -w_1, along w_1",
        },
    ),
    Study(
        "deep-linear-laws",
        "Deep linear networks: rates and constants to risk e^-1000000",
        claims=(
            *(laws.offset, laws.time, laws.ratio_exponent, laws.alignment_exponent),
            *(laws.first_layer_exponent, laws.no_span, laws.critical),
        ),
        exhibits=(exponents,),
        definitions=words("-log R", "ratio", "alignment")
        | {"offset": "the part of the network orthogonal to the maximum margin"},
        aliases=("deep-linear-no-span", "deep-linear-discretisation"),
    ),
)
