"""What the key-query studies draw: which norm is minimised, over astronomical times, and for diagonal keys and queries; curves against margin or time."""

import numpy as np

from ...exhibits import DEFINITIONS, Figure, Line, log_figure
from ...lab import Lab, Study, recipe
from ...norms import L1, L2, Norm, Nuclear
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.linear_programs import diagonal_margin, polyhedral_margin
from ...references.norm_margin import nuclear_margin
from ...settings.base import Setting
from ...settings.factored import KeyQuery
from ...settings.generators import Aligned, aligned_tokens, equal_score_tokens
from ...settings.losses import Exponential
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory.judge import KINDS, certificates, certified
from ...training.trajectory import Trajectory
from . import flow, limits, proof
from .evidence import W0, diagonal, flow_to

DEFINED = {
    **DEFINITIONS,
    "nuclear norm": "sum of the singular values of W",
    "excess": "norm at margin 1 (norm / margin) over its minimum, minus 1; 0 at the solution of that norm's program",
    "accumulated, window, instant": "lower bounds from the multipliers gathered since the start, since margin^0.8, and at this moment",
}


def path_to(setting: Setting, start: object, top: float = 1e6) -> Trajectory:
    return flow_to(setting, start, top, tuple(np.geomspace(1.0, top, int(4 * np.log10(top)) + 1)[:-1]))


def late(run: Trajectory) -> list[int]:
    """Records with a positive margin and a time."""
    return [int(k) for k in np.flatnonzero((run.smallest_margin() > 0) & np.isfinite(run.log_time))]


def curve(label: str, x: np.ndarray, y: np.ndarray, style: str = "line") -> Line:
    """A line on a logarithmic axis, rounding included."""
    return Line(label, x, np.maximum(y, 1e-16), style)


def excess_line(label: str, run: Trajectory, value: float, norm: Norm) -> Line:
    """The excess against the margin."""
    margin = run.smallest_margin()
    excesses = np.array([norm.value(run.weight(k)) / margin[k] / value - 1 for k in late(run)])
    return curve(label, margin[late(run)], excesses)


def distances(run: Trajectory, target: np.ndarray) -> np.ndarray:
    """Relative distance of W / margin to a solution, at the late records."""
    gaps = np.array([run.weight(k) / run.smallest_margin()[k] - target for k in late(run)])
    return np.linalg.norm(gaps, axis=tuple(range(1, gaps.ndim))) / np.linalg.norm(target)


def certificate_figure(name: str, run: Trajectory, norm: Norm, reference: Solution) -> Figure:
    found, records = certificates(run, norm), late(run)
    margin, value = found.margin[records], reference.value
    lines = [curve(f"1 - {kind} / optimum", margin, 1 - getattr(found, kind)[records] / value) for kind in KINDS]
    caption = "Upper and lower bounds on the best norm from the run's own weights and multipliers; the optimum is used for the plot only."
    upper = curve("norm / margin / optimum - 1", margin, found.upper[records] / value - 1)
    axes = "margin", "relative distance from the optimum"
    return log_figure(f"certificates-{name}", "Each run certifies itself", *axes, (upper, *lines), caption)


def paths_figure(name: str, run: Trajectory, title: str) -> Figure:
    margin, time = run.smallest_margin(), run.log_time[late(run)]
    values = np.array([np.linalg.svd(run.weight(k) / margin[k], compute_uv=False) for k in late(run)])
    lines = [curve(f"singular value {k + 1}", time, values[:, k]) for k in range(min(values.shape[1], 6))]
    caption = "Log t is the natural logarithm of physical time."
    return log_figure(f"singular-values-{name}", title, "log t", "singular values of W / margin", lines, caption)


@recipe
def programs(lab: Lab) -> dict[str, tuple[Solution, Norm]]:
    """The data of the contrast are those of these programs; the l1 norm of the entries is a rival that neither training minimises."""
    data = contrast_data(lab)
    lab.progress("references: nuclear, Frobenius, l1 of the entries")
    return {
        "nuclear": (nuclear_margin(data), Nuclear()),
        "Frobenius": (max_margin(data), L2()),
        "l1 of the entries": (polyhedral_margin(data, L1()), L1()),
    }


@recipe
def contrast_data(lab: Lab) -> TokenSelection:
    return equal_score_tokens(*((20, 8, 32) if lab.full else (6, 5, 10)), lab.seed, gap=1.0)


@recipe
def contrast(lab: Lab) -> dict[str, Trajectory]:
    """The flows on K and Q and on W, from the same data."""
    data, top = contrast_data(lab), 1e6 if lab.full else 1e8
    product, direct = Setting(data, KeyQuery(), Exponential()), Setting(data, Direct(), Exponential())
    lab.progress(f"gradient flow on K and Q to margin {top:g}")
    keys = path_to(product, product.start(lab.seed + 1, 1e-3), top)
    lab.progress("gradient flow on W")
    return {"K Q": keys, "W": path_to(direct, None, 1e6)}


def excess_figure(lab: Lab) -> Figure:
    lines = (
        excess_line(f"{label} excess, flow on {name}", run, found.value, norm)
        for label, (found, norm) in programs(lab).items()
        for name, run in contrast(lab).items()
    )
    caption = (
        "The same data and loss; only what is trained differs. The l1 norm of the entries is a rival that neither training minimises; "
        "the l1 norm of a trained diagonal is the study `key-query-diagonal`."
    )
    return log_figure("excess", "Each training minimises its own norm", "margin", "excess", lines, caption)


def own_figures(lab: Lab) -> tuple:
    """Singular values of both flows, what the flow on K and Q certifies, and both runs with their bounds."""
    runs, (nuclear, frobenius, _) = contrast(lab), (found for found, _ in programs(lab).values())
    own = {"key-query": certified(runs["K Q"], Nuclear(), nuclear), "direct": certified(runs["W"], L2(), frobenius)}
    return (
        paths_figure("key-query", runs["K Q"], "Singular values when K and Q are trained"),
        paths_figure("direct", runs["W"], "Singular values when W is trained"),
        certificate_figure("key-query", runs["K Q"], Nuclear(), nuclear),
        own,
    )


@recipe
def aligned_path(lab: Lab) -> tuple[Trajectory, Aligned]:
    lab.progress("gradient flow on aligned data to margin 1e6")
    aligned = aligned_tokens(seed=1 + lab.seed)
    return path_to(Setting(aligned.data, KeyQuery(7), Exponential()), aligned.start(W0, 7, 5 + lab.seed)), aligned


def aligned_figures(lab: Lab) -> tuple:
    run, aligned = aligned_path(lab)
    reference, margin = nuclear_margin(aligned.data), run.smallest_margin()[late(run)]
    error = distances(run, aligned.solution())
    lines = (
        Line("measured", margin, error),
        Line("error at the end * (last margin / margin)", margin, error[-1] * margin[-1] / margin, "prediction"),
    )
    caption = "On aligned data the nuclear and the Frobenius solution are the same matrix: this theorem cannot tell the two biases apart."
    axes = "margin", "|W/margin - W*| / |W*|"
    return (
        log_figure("closed-form", "Distance to the closed form", *axes, lines, caption),
        paths_figure("aligned", run, "Singular values on aligned data"),
        certificate_figure("aligned", run, Nuclear(), reference),
        {"aligned": certified(run, Nuclear(), reference)},
    )


_ALIGNED = {
    "aligned": "data whose optimal tokens and queries are orthogonal frames with the other tokens in pairs around them; K and Q diagonal in those frames",
    "W*": "the closed form of the solution, sum_i u_i v_i' / b_i with the frames u, v and b_i = (1 - c_i) |optimal token| |query|",
}


@recipe
def shown_run(lab: Lab) -> tuple[Trajectory, Solution]:
    lab.progress("gradient flow on diagonal K and Q to margin 1e6")
    run = path_to(*diagonal(5 + lab.seed, 1.0))
    return run, diagonal_margin(run.setting.data)


def coordinates_figure(lab: Lab) -> Figure:
    run, reference = shown_run(lab)
    records, margin = late(run), run.smallest_margin()
    weights, on = np.array([np.abs(run.weight(k)) / margin[k] for k in records]), np.abs(reference.weight) > 1e-9
    style = lambda j: "line" if on[j] else "prediction"
    lines = (curve(f"|w_{j}| / margin", run.log_time[records], weights[:, j], style(j)) for j in range(len(on)))
    caption = f"The l1 solution has {int(on.sum())} non-zero entries; the others are dashed."
    return log_figure("coordinates", "Coordinates of the diagonal", "log t", "|w| / margin", lines, caption)


def certificates_figure(lab: Lab) -> tuple:
    run, reference = shown_run(lab)
    return certificate_figure("diagonal", run, L1(), reference), {"diagonal": certified(run, L1(), reference)}


STUDIES = (
    Study(
        "key-query",
        "Keys and queries: nuclear against Frobenius against l1 norm",
        claims=(flow.contrast, limits.narrow, flow.sign_norm),
        exhibits=(excess_figure, own_figures),
        definitions=DEFINED,
        aliases=(
            *("key-query-starts", "key-query-steps", "key-query-init-scale", "key-query-large-start"),
            *("key-query-width", "key-query-basin"),
        ),
    ),
    Study(
        "key-query-aligned",
        "Keys and queries on aligned data (Theorem 5.1)",
        claims=(flow.lemma51, flow.theorem51),
        exhibits=(aligned_figures,),
        definitions={**DEFINED, **_ALIGNED},
    ),
    Study(
        "key-query-diagonal",
        "Diagonal keys and queries: the l1 norm (Theorem 4.1)",
        claims=(proof.theorem41, proof.lemma42, limits.without_assumption3),
        exhibits=(coordinates_figure, certificates_figure),
        definitions=DEFINED,
    ),
)
