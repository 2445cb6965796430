"""Keys and queries where the theorem does not speak: small and large starts, plateaus, narrow heads, and steps instead of the flow."""

import jax.numpy as jnp
import numpy as np

from ....exhibits import Figure, Line, log_figure
from ....lab import Lab, Study
from ....norms import L2, Norm, Nuclear, SignProduct
from ....references.base import Solution
from ....references.euclidean_margin import max_margin
from ....settings.factored import Factors
from ....sweeps.sweep import sweep
from ....training.trajectory import Trajectory
from .. import discrete, limits
from ..evidence import keys_and_queries, nuclear
from . import DEFINED, excess_line, path_to

_GRADIENTS = ("gradient descent", "normalised descent")  # all other rules have steps of equal size in every entry


def kernel_figure(lab: Lab) -> Figure:
    """Starts K = scale I, Q = 0 from large to small, against margin / scale^2."""
    setting, lines = keys_and_queries(1)[0], []
    programs = {"nuclear": (nuclear(lab, 1), Nuclear()), "Frobenius": (max_margin(setting.data), L2())}
    for scale in (100.0, 10.0, 3.0, 1.0):
        lab.progress(f"start {scale:g} I")
        run = path_to(setting, Factors(scale * jnp.eye(5), jnp.zeros((5, 5))), max(1e3 * scale**2, 1e3))
        for label, (found, norm) in programs.items():
            lines.append(excess_line(f"{label} excess, start {scale:g}", run, found.value, norm, scale**2))
    caption = "From K = scale I, Q = 0: below margin = scale^2 the flow is at the Frobenius solution, far above it at the nuclear one."
    title = "From the Frobenius to the nuclear solution"
    return log_figure("kernel-to-rich", title, "margin / scale^2", "excess", lines, caption)


def plateaus_figure(lab: Lab) -> Figure:
    """Flows from starts at which Assumption 3 fails."""
    lab.progress("large starts")
    spec = {"generator": "equal_score_tokens", "n": 3, "length": 4, "d": 5, "setting": "attention-kq", "widths": "5"}
    spec |= {"grid": {"scale": [1.0, 2.0, 4.0]}, "seeds": [lab.seed, lab.seed + 1], "start_seed": 0}
    found, lines = sweep(spec | {"log_time": 1e4, "arrays": ["series"]}, engine="here"), []
    for row in found.rows:
        time, excess = (found.arrays[row["key"], f"series_{name}"] for name in ("log_time", "log_excess"))
        lines.append(Line(f"start {row['scale']:g}, data {row['seed']}", time[time > 0], -excess[time > 0]))
    caption = (
        "Each step is a plateau: some samples attend to a wrong token, and only their own e^-margin pull turns them."
    )
    return log_figure("plateaus", "Large starts", "log t", "-log(L - L*)", lines, caption)


def _programs(lab: Lab, number: int) -> tuple[tuple[Solution, Norm], ...]:
    data = discrete.stepped(lab, _GRADIENTS[0], number).setting.data
    least = nuclear(lab, number), max_margin(data), discrete.signs(lab, number)
    return tuple(zip(least, (Nuclear(), L2(), SignProduct()), strict=True))


def _excess(run: Trajectory, record: int, reference: Solution, norm: Norm) -> float:
    return norm.value(run.weight(record)) / float(run.smallest_margin()[record]) / reference.value - 1


def steps_figures(lab: Lab) -> tuple[Figure, ...]:
    """One figure per norm: where each rule stands in it."""
    figures, programs = [], _programs(lab, lab.seed)
    for name, title, (found, norm) in (
        ("steps-nuclear", "Nuclear norm", programs[0]),
        ("steps-signs", "Norm of sign products", programs[2]),
    ):
        lines = []
        for rule in discrete.RULES:
            run = discrete.stepped(lab, rule, lab.seed)
            margin = run.smallest_margin()
            rising = [k for k in range(len(run)) if margin[k] > max(0.5, margin[:k].max(initial=0.0))][::4]
            if len(rising) > 1:
                lines.append(Line(rule, margin[rising], np.array([_excess(run, k, found, norm) for k in rising])))
        caption = "Excess over the minimum of this norm, first data set."
        figures.append(log_figure(name, title, "margin", "excess", lines, caption))
    return tuple(figures)


_SIGNS = "least sum of coefficients of products of sign vectors that make up W; width times the largest |entry| of K and of Q bounds it"
STUDIES = (
    Study(
        "key-query-starts",
        "Keys and queries: scale of the start, plateaus, few columns",
        claims=(
            *(limits.kernel_to_rich, limits.large_start),
            *(limits.wide_as_the_rank, limits.narrow),
        ),
        exhibits=(kernel_figure, plateaus_figure),
        definitions=DEFINED,
        aliases=("key-query-init-scale", "key-query-large-start", "key-query-width", "key-query-basin"),
    ),
    Study(
        "key-query-steps",
        "Keys and queries trained in steps: which norm?",
        claims=(
            *(discrete.descent_follows_flow, discrete.normalised_nuclear),
            *(discrete.sign_norm, discrete.adam_norm, discrete.sign_diagonal),
        ),
        exhibits=(steps_figures,),
        definitions={**DEFINED, "norm of sign products": _SIGNS},
    ),
)
