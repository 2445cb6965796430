"""What the studies of self-attention draw: a fixed decoder, joint training, and phases where global convergence fails."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.direction import (
    joint_misalignments,
    log_attention_loss,
    log_joint_attention,
    misalignment,
    misalignments,
    optimal_attention,
    optimal_entries,
)
from ...diagnostics.rates import log_log_slope, rate
from ...exhibits import DEFINITIONS, Figure, Line, Table, log_figure, table
from ...lab import Lab, Study, claims_in, recipe
from ...problem import read
from ...references.base import Solution
from ...settings.base import Setting
from ...settings.joint import joint_setting, marked_tokens
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...sweeps.sweep import Runs, sweep
from ...theory.joint import JointReferences, joint_references
from ...theory.selections import locally_optimal_selections
from ...training.events import LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from . import bounds, drawn, fixed, joint, joint_findings
from . import joint_evidence as evidence
from .evidence import fleet, preset

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
    return range(lab.seed, lab.seed + 10)


def first_runs(lab: Lab, name: str) -> dict[str, Trajectory]:
    """Every rule on the first data set of a preset."""
    return {rule: fleet(lab, rule, name, seeds(lab))[0][0] for rule in _RULES}


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
    rows = (
        ("value", "the loss itself", "L", "linear", lambda run: infimum + np.exp(run.log_excess),
         f"All curves end at the infimum {infimum:.6g}: what they still differ by is in the log excess."),
        ("loss", "log excess", "-log(L - L*)", "log", lambda run: -run.log_excess,
         "Everything above 36 is invisible to ordinary code."),
        ("norm", "norm of W", "norm", "log", lambda run: run.norm,
         "Like t for normalised and Polyak steps, t^2 with dual acceleration, log t for gradient descent and under a cap."),
        ("optimal-attention", "attention on the optimal token", "s_opt, mean over samples", "linear",
         lambda run: optimal_attention(run).mean(axis=1), "From 1/T to 1."),
        ("direction", "direction of W", "1 - corr to W_mm", "log", lambda run: misalignments(run, reference),
         "With a cap, the late curves are those of gradient descent."),
        ("attention", "attention lost on non-optimal tokens", "-log(1 - s_opt), mean over samples", "log",
         lambda run: -log_attention_loss(run).mean(axis=1),
         "Linear in t for normalised descent: attention saturates exponentially fast."),
    )  # fmt: skip
    return _panels(rows, runs, 1, f"-{name}", f"Preset {name}: ")


def _panels(
    rows: Sequence[tuple], runs: dict[str, Trajectory], first: int, tag: str = "", heading: str = ""
) -> tuple[Figure, ...]:
    """A figure by the step for every row: name, title, label and scale of its axis, series of a run, caption."""
    figures = []
    for key, title, label, scale, series, caption in rows:
        lines = tuple(Line(rule, run.steps[first:], series(run)[first:]) for rule, run in runs.items())
        figures.append(Figure(f"{key}{tag}", f"{heading}{title}", "step", label, lines, caption, "log", scale))
    return tuple(figures)


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
_EXHIBITS = (values_table, curve_figures)


@recipe
def shown_runs(lab: Lab) -> tuple[dict[str, Trajectory], JointReferences]:
    data, runs = marked_tokens(seed=lab.seed), {}
    for name, rule in evidence.RULES.items():
        lab.progress(f"Figure 3 data: {name}")
        runs[name] = train(joint_setting(data), rule, steps=10_000, recorder=LogSpaced(161))
    return runs, joint_references(data)


def joint_table(lab: Lab) -> tuple:
    """Where the rules stand, and with `full` their runs."""
    (runs, found), rows = shown_runs(lab), []
    for name, one in runs.items():
        distance = joint_misalignments(one, found.attention.weight)
        at = [distance[int(np.flatnonzero(one.steps >= step)[0])] for step in _SHOWN]
        ends = misalignment(one.named()["u"], found.decoder.weight), one.log_excess[-1], one.norm_W[-1], one.norm_u[-1]
        lab.progress(f"exponents over seeds 0-9: {name}")
        rates = *(evidence.norm_rate(lab, name, block) for block in ("W", "u")), evidence.attention_rate(lab, name)
        capped = one.header["first_capped"]
        rows.append((name, *at, *ends, "" if capped is None else str(capped), *rates))
    columns = {
        "rule": "",
        **{f"1 - corr of W, t={step}": ".3g" for step in _SHOWN},
        "1 - corr of u": ".3g",
        "log L": ".5g",
        "|W|": ".4g",
        "|u|": ".4g",
        "cap binds at": "",
        "exponent of |W|": "",
        "of |u|": "",
        "of 1 - corr of W": "",
    }
    caption = (
        f"|W_mm| = {found.attention.value:.10f}, |u_mm| = {found.decoder.value:.10f}. Exponents: least squares of logarithms over steps 1e3 to 1e4; "
        "mean and 95 % Student interval over seeds 0-9."
    )
    kept = {"".join(c for c in name.replace(" ", "-") if c.isalnum() or c == "-"): run for name, run in runs.items()}
    return table("values", "Joint training, 10 000 steps", columns, rows, caption), kept if lab.full else {}


def joint_figures(lab: Lab) -> tuple[Figure, ...]:
    """Every panel of the paper's Figure 3, by the step."""
    runs, found = shown_runs(lab)
    rows = (
        ("value", "Joint loss", "L", "linear", lambda run: np.exp(run.log_excess), "The train loss as the paper plots it."),
        ("loss", "Joint loss, in logarithms", "-log L", "log", lambda run: np.maximum(-run.log_excess, 1e-3),
         "Polyak is fastest; block and joint normalisation coincide."),
        ("norm-W", "Norm of W", "|W|", "log", lambda run: run.norm_W,
         "Like t where W has a norm of its own to be divided by, like log t where it shares that of u, and under Eq. (13)."),
        ("norm-u", "Norm of u", "|u|", "log", lambda run: run.norm_u, "Like t under normalised and Polyak steps, like t^(1/3) under Eq. (13)."),
        ("optimal-attention", "Attention on the optimal token", "s_opt, mean over samples", "linear",
         lambda run: np.exp(optimal_entries(run, log_joint_attention(run))).mean(axis=1), "From 1/2 to 1."),
        ("direction-W", "Direction of W", "1 - corr to W_mm", "log", lambda run: joint_misalignments(run, found.attention.weight),
         "Block normalisation overtakes Polyak by step 100: whatever divides W by the whole gradient lets |W| grow only like log t."),
        ("direction-u", "Direction of u", "1 - corr to u_mm", "log", lambda run: joint_misalignments(run, found.decoder.weight, "u"),
         "The decoder aligns fastest under Polyak steps; under Eq. (13), whose |u| grows like t^(1/3), hardly within 10 000 steps."),
    )  # fmt: skip
    return _panels(rows, runs, 2)


_WORDS = {
    **DEFINITIONS,
    "W_mm": "maximum-margin direction of the optimal tokens",
    "u_mm": "maximum-margin decoder of the optimal tokens",
    "Eq. (13)": "u moves by length/(t+1)^(2/3) and W by length/(t+1), each along its normalised gradient",
    "NGD": "each block normalised by its own gradient norm; joint NGD: both by the norm of the whole gradient",
    "support-only program": "maximum-margin direction of the samples that support the decoder",
    "offset program": "largest smallest sum of attention margin and decoder margin over unit W",
}


_LOCAL_RULES: dict[str, dict] = {
    "GD": {"optimiser": "gd", "step_size": 1.0, "steps": 5_000},
    "NGD": {"optimiser": "ngd", "step_size": 0.05, "steps": 5_000},
    "Polyak, cap 50": {"optimiser": "polyak", "cap": 50.0, "steps": 2_000},
    "flow": {"optimiser": "flow", "log_time": 12.0},
}


@recipe
def phases(lab: Lab) -> dict[str, Runs]:
    """Two samples whose score gaps are 1 and D2, over D2 by every rule, from zero."""
    lab.progress(f"score gaps by {', '.join(_LOCAL_RULES)}")
    spec = {"generator": "local_pair", "measures": ["limit"]}
    spec["grid"] = {"second": np.geomspace(0.02, 2.0, 41 if lab.full else 21)}
    return {name: sweep(spec | rule, engine="here") for name, rule in _LOCAL_RULES.items()}


def phase_figure(lab: Lab) -> tuple[Figure, Table]:
    """Where training stops to find the global direction."""
    lines, rows = [], []
    for name, found in phases(lab).items():
        gaps, limits = found.column("second"), found.column("limit")
        lines.append(Line(name, gaps, found.column("smallest_margin") / found.column("norm")))
        ends = max(gaps[limits == "local"], default=np.nan), min(gaps[limits == "global"], default=np.nan)
        rows.append((name, *ends, *(int((limits == kind).sum()) for kind in ("local", "undecided", "global"))))
    caption = "Gaps D1 = 1 and D2; from zero. Below its threshold D2* the second sample attends to its other token, whose margin is then negative."
    columns = {"rule": "", "largest D2, local": ".4g", "smallest D2, global": ".4g"}
    columns |= dict.fromkeys(("local", "undecided", "global"), "")
    text = "GD: 5000 steps of step size 1; NGD: 5000 steps of length 0.05; Polyak: 2000 steps with a cap of 50; flow: to time e^12."
    title, axes = "The threshold between local and global directions", ("D2", "smallest margin / norm")
    return (
        Figure("phases", title, *axes, tuple(lines), caption, "log"),
        table("phases", "Where the runs ended", columns, rows, text),
    )


def selections_table(lab: Lab) -> Table:
    rows = [
        (case, str(list(found.tokens)), found.slack, "" if found.solution is None else found.solution.value)
        for case, make in fixed.CASES.items()
        for found in locally_optimal_selections(make())
    ]
    columns = {"data": "", "tokens": "", "score slack": ".4g", "norm of the direction": ".6f"}
    return table("selections", "Locally optimal selections", columns, rows, "By enumeration.")


_LOCAL_WORDS = {
    **DEFINITIONS,
    "W_mm": "maximum-margin direction of the optimal tokens",
    "GD, NGD, Polyak": "gradient descent; steps of fixed length along the gradient; steps (L - L*) / |gradient|^2 times the gradient, that multiplier at most the cap",
    "global, local, undecided": "all samples give 0.9 of their attention to an optimal token; some to another one; some to none yet (open)",
    "locally optimal": "a selection whose maximum-margin direction exists, and whose tokens have higher scores than their active neighbours; score slack: by how much",
}


STUDIES = (
    Study(
        "self-attention",
        "Self-attention with a fixed decoder (Figures 2 and 5)",
        claims=(
            *(fixed.theorem1, fixed.theorem6, fixed.theorem7, fixed.figure5, drawn.lemma1),
            *(bounds.constants_agree, bounds.heavy_ball),
        ),
        exhibits=(
            naive_figure,
            *(partial(exhibit, name="E") for exhibit in _EXHIBITS),
            *(partial(exhibit, name="antipodal") for exhibit in _EXHIBITS),
        ),
        definitions=WORDS,
        aliases=("self-attention-antipodal", "self-attention-rates", "momentum-and-acceleration"),
    ),
    Study(
        "self-attention-hard",
        "Self-attention on hard data, where step lengths matter",
        claims=(bounds.polyak_multiplier, drawn.theorem1_bound, drawn.lemma2),
        exhibits=tuple(partial(exhibit, name="H") for exhibit in _EXHIBITS),
        definitions=WORDS,
        aliases=("polyak-stability",),
    ),
    Study(
        "self-attention-joint",
        "Self-attention and decoder trained together (Figure 3)",
        claims=(joint.theorem2, joint.theorem3_direction, joint.theorem4, *claims_in(joint_findings)),
        exhibits=(joint_table, joint_figures),
        definitions=_WORDS,
    ),
    Study(
        "local-directions",
        "Local directions: when global convergence fails",
        claims=(fixed.without_orthogonality,),
        exhibits=(phase_figure, selections_table),
        definitions=_LOCAL_WORDS,
        aliases=("local-global-phase",),
    ),
)
