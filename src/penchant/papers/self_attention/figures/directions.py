"""Figures 2 and 5 of the self-attention paper: four optimisers on token selection with a fixed decoder, and why their gradients need logarithms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ....diagnostics.direction import log_attention_loss, misalignments, optimal_attention
from ....diagnostics.rates import log_log_slope, rate
from ....exhibits import DEFINITIONS, Figure, Line, Table, log_figure, table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study, recipe
from ....problem import read
from ....references.base import Solution
from ....settings.base import Setting
from ....settings.parametrisations import Direct
from ....settings.tokens import TokenSelection
from ....training.events import MarginAbove
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import fixed, sharp
from ..evidence import fleet, outside_support, preset, sharp_constant

# Exponents of 1 - corr: proved by the paper, and ours, sharp in the limit.
_RULES = {
    "GD": ("none", "logarithmic"),
    "NGD": (-1.0, -2.0),
    "NGD, momentum 0.9": ("none", -2.0),
    "Polyak": (-1.0, -2.0),
    "Polyak, cap 100": ("none", "logarithmic"),
    "NGD, cap 100": ("none", "logarithmic"),
    "dual acceleration": ("none", -4.0),
}
_SHOWN = (10, 100, 1000, 10_000)


def seeds(lab: Lab) -> range:
    return range(lab.seed, lab.seed + (10 if lab.full else 4))


def first_runs(lab: Lab, name: str) -> dict[str, Trajectory]:
    """Every rule on the first data set of a preset."""
    return {rule: fleet(lab, rule, name, seeds(lab))[0][0] for rule in _RULES}


@recipe
def flow_of(lab: Lab, name: str) -> Trajectory:
    lab.progress(f"preset {name}: gradient flow to margin 1e6")
    return train(preset(lab, name, lab.seed)[0], GradientFlow(), until=MarginAbove(1e6))


def values_table(lab: Lab, name: str) -> Table:
    """Values of the first run; exponents of all of them."""
    rows = []
    for rule, known in _RULES.items():
        lab.progress(f"preset {name}: {rule}")
        runs = fleet(lab, rule, name, seeds(lab))
        (run, reference), steps = runs[0], runs[0][0].steps[1:]
        distance = np.log(misalignments(run, reference)[1:])
        shown = [float(np.exp(np.interp(np.log(step), np.log(steps), distance))) for step in _SHOWN]
        slope = rate([log_log_slope(one.steps, misalignments(one, found), (1e3, 1e4)) for one, found in runs])
        growth = rate([log_log_slope(one.steps, one.norm, (1e3, 1e4)) for one, _ in runs])
        rows.append((rule, *shown, growth, *known, slope, run.norm[-1], run.log_excess[-1]))
    columns = {
        "rule": "",
        **{f"1 - corr, t={step}": ".3e" for step in _SHOWN},
        "norm exponent": "",
        "1 - corr exponent, proved": "g",
        "sharp": "g",
        "measured": "",
        "norm": ".6g",
        "log excess": ".6g",
    }
    caption = (
        f"Seed {lab.seed}, |W_mm| = {preset(lab, name, lab.seed)[1].value:.10f}. Exponents: least squares of logarithms over steps 1e3 to 1e4, "
        f"mean and 95 % Student interval over {len(seeds(lab))} seeds; on preset H normalised descent is not in the regime of powers yet."
    )
    return table(f"table-{name}", f"Preset {name}: directions, exponents and norms", columns, rows, caption)


def curve_figures(lab: Lab, name: str) -> tuple[Figure, ...]:
    """What the paper's figure shows of every rule, by the step."""
    setting, reference = preset(lab, name, lab.seed)
    infimum, runs = setting.infimum().value, first_runs(lab, name)
    drawn = (
        ("value", "the loss itself", "L", lambda run: infimum + np.exp(run.log_excess),
         f"All curves end at the infimum {infimum:.6g}: what they still differ by is in the log excess."),
        ("loss", "log excess", "-log(L - L*)", lambda run: -run.log_excess,
         "Everything below -36 is invisible to ordinary code."),
        ("norm", "norm of W", "norm", lambda run: run.norm,
         "Like t for normalised and Polyak steps, t^2 with dual acceleration, log t for gradient descent and under a cap."),
        ("optimal-attention", "attention on the optimal token", "s_opt, mean over samples",
         lambda run: optimal_attention(run).mean(axis=1), "From 1/T to 1."),
        ("direction", "direction of W", "1 - corr to W_mm", lambda run: misalignments(run, reference),
         "With a cap, the late curves are those of gradient descent."),
        ("attention", "attention lost on non-optimal tokens", "-log(1 - s_opt), mean over samples",
         lambda run: -log_attention_loss(run).mean(axis=1),
         "Linear in t for normalised descent: attention saturates exponentially fast."),
    )  # fmt: skip
    figures = []
    for key, title, label, series, caption in drawn:
        lines = (Line(rule, run.steps[1:], series(run)[1:]) for rule, run in runs.items())
        figures.append(log_figure(f"{key}-{name}", f"Preset {name}: {title}", "step", label, lines, caption))
    return tuple(figures)


def collapse_figure(lab: Lab, name: str) -> Figure:
    (setting, reference), flow = preset(lab, name, lab.seed), flow_of(lab, name)
    constant = sharp_constant(setting, reference, float(outside_support(flow, reference)[-1]))
    runs = {**first_runs(lab, name), "gradient flow": flow}
    scaled = lambda run: (run.norm**2 * misalignments(run, reference))[1:]
    lines = [Line(rule, run.norm[1:], scaled(run)) for rule, run in runs.items()]
    grid = np.geomspace(1.0, float(flow.norm[-1]), 20)
    caption = (
        "Compared at equal norm, descent, momentum, Polyak and the flow (to margin 1e6) approach one constant. It is predicted from the "
        "support pairs; what the flow leaves outside their span is added where some pair does not support."
    )
    lines.append(Line("predicted", grid, np.full(20, constant), "prediction"))
    title = f"Preset {name}: every rule ends with the same constant"
    return log_figure(f"collapse-{name}", title, "norm", "norm^2 (1 - corr)", lines, caption)


def naive_error(setting: Setting, reference: Solution, scale: float) -> float:
    """Direction error of the plain float64 gradient at scale * W_mm, against the slope in log space."""
    data: TokenSelection = setting.data

    def loss(weight: jax.Array) -> jax.Array:
        share = jax.nn.softmax(data.logits(weight), axis=1)
        return jnp.mean(setting.loss.value((share * data.scores).sum(axis=1)))

    weight = jnp.asarray(scale * reference.weight)
    naive, slope = (
        np.asarray(one) for one in (jax.grad(loss)(weight), read(Setting(data, Direct(), setting.loss), weight).slope)
    )
    size = np.linalg.norm(naive)
    return float(np.linalg.norm(naive / size - slope / np.linalg.norm(slope))) if size > 0 else 1.0


def naive_figure(lab: Lab) -> Figure:
    scales = np.array([1, 5, 10, 15, 20, 25, 30, 33, 36, 38, 40, 60, 100, 400, 1e3, 1e4, 1e5, 1e6], float)
    errors = np.array([naive_error(*preset(lab, "H", lab.seed), scale) for scale in scales])
    caption = (
        "Distance between the unit gradient in float64 and the one in log space, which 60-digit arithmetic confirms to 1e-9 at margin 1e6, "
        "at W = margin * W_mm. An error of 1 or more means that the direction is noise (or that the gradient is 0)."
    )
    title, lines = (
        "Why penchant exists: the plain gradient dies at margin 36",
        (Line("grad(L) in float64", scales, errors),),
    )
    return log_figure("why-logarithms", title, "margin", "error of the gradient direction", lines, caption)


WORDS = {
    **DEFINITIONS,
    "W_mm": "shortest W that gives the optimal token of every sample a logit larger by 1 than all others; 1 - corr is to its direction",
    "s_opt": "attention (softmax weight) on the optimal token",
    "preset E": "n=10, T=6, d=300: nearly orthogonal tokens; antipodal: the same with classes in opposite directions",
    "preset H": "n=20, T=5, d=50: hard",
}
_EXHIBITS = (values_table, curve_figures, collapse_figure)
STUDIES = (
    Study(
        "self-attention",
        "Self-attention with a fixed decoder (Figures 2 and 5)",
        claims=(
            fixed.theorem1,
            fixed.theorem1_rate,
            fixed.theorem6,
            fixed.theorem7,
            fixed.figure5,
            fixed.lemma1,
            sharp.constants_agree,
            sharp.heavy_ball,
            sharp.acceleration,
            sharp.critical_steps,
        ),
        exhibits=(
            naive_figure,
            *(partial(exhibit, name=name) for name in ("E", "H") for exhibit in _EXHIBITS),
            *(partial(exhibit, name="antipodal") for exhibit in _EXHIBITS[:2]),
        ),
        definitions=WORDS,
        aliases=("self-attention-antipodal", "self-attention-rates", "momentum-and-acceleration", "polyak-stability"),
    ),
)
