"""Separately trained keys and queries: which norm is minimised, seen in the singular values over astronomical times."""

from ....exhibits import Figure, Line, log_figure
from ....lab import Lab, Study, recipe
from ....norms import L1, L2, Norm, Nuclear
from ....references.base import Solution
from ....references.euclidean_margin import max_margin
from ....references.norm_margin import nuclear_margin
from ....references.polyhedral_margin import polyhedral_margin
from ....settings.base import Setting
from ....settings.factored import KeyQuery
from ....settings.generators import Aligned, aligned_tokens, equal_score_tokens
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct
from ....settings.tokens import TokenSelection
from ....theory.certificates import certified
from ....training.trajectory import Trajectory
from .. import discrete, flow, limits, rates
from ..evidence import W0
from . import DEFINED, certificate_figure, distances, excess_line, late, path_to, paths_figure


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
STUDIES = (
    Study(
        "key-query",
        "Keys and queries: nuclear against Frobenius against l1 norm",
        claims=(
            *(flow.contrast, limits.generic_data, limits.narrow, rates.accumulated_rate),
            *(discrete.descent_follows_flow, discrete.sign_norm, discrete.adam_norm),
        ),
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
        claims=(flow.lemma51, flow.theorem51, flow.aligned_closed_form),
        exhibits=(aligned_figures,),
        definitions={**DEFINED, **_ALIGNED},
    ),
)
