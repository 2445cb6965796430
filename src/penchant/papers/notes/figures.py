"""What the studies of the notes draw: margins and least norms, sparse recovery, label noise."""

import numpy as np

from ...diagnostics.direction import normalised_margins, smooth_margins
from ...diagnostics.sparsity import decompose
from ...exhibits import DEFINITIONS, Figure, Line, Shown, Table
from ...lab import Lab, Study
from ...optimisers.base import gradient_descent
from ...references.interpolation import basis_pursuit, minimum_norm, potential_path
from ...references.l1_uniqueness import strict_dual
from ...settings.generators import sparse_regression
from ...settings.parametrisations import Direct
from ...settings.potentials import q_alpha
from ...settings.regression import Regression
from ...training.events import Every, LogSpaced
from ...training.train import train
from . import designs, max_margin, noise
from . import min_norm as least
from . import q_alpha as q_alpha_claims
from . import sparse_recovery as recovered
from .evidence import sparse, square_setting, summed
from .max_margin import deficits, entropy, flow_run, problem
from .noise import DEVIATION, STEP, chains, mean_and_error, measured_norms, noisy, predicted_norms


def _flows(lab: Lab) -> tuple[Figure, Figure]:
    """Margin deficits of the flow, and its rate in time."""
    flow, twin, reference = flow_run(lab), flow_run(lab, True), problem(lab)[1]
    (mean, top), depth = entropy(reference), -flow.log_excess[1:]
    curves = (
        Line("smooth margin", depth, deficits(smooth_margins(flow), flow, reference)),
        Line("margin", depth, deficits(normalised_margins(flow), flow, reference)),
        Line("smooth margin, logistic loss", -twin.log_excess[1:], deficits(smooth_margins(twin), twin, reference)),
        Line("entropy H(p)", depth, np.full(len(depth), mean), "prediction"),
        Line("H(p) + log max p", depth, np.full(len(depth), mean + np.log(top)), "prediction"),
    )
    late = flow.log_time[-40:]
    tail = (
        Line("gradient flow", flow.log_time[1:], reference.margin - smooth_margins(flow)[1:]),
        Line("H(p) margin / log t", late, mean * reference.margin / late, "prediction"),
    )
    title, axes = "The margin is approached at the constant that theory names", ("-log L", "(best margin - margin) |w|")
    caption = "How far the flow stays below the best margin, times its norm, until the loss is e^-100000. Dashed: the limits that theory predicts, an entropy and its value with the largest multiplier."
    rate, rate_axes = "The 1/log t rate with its constant", ("log t", "best margin - smooth margin")
    rate_caption = "Deficit of the smooth margin against physical time; dashed, the predicted tail."
    return (
        Figure("deficit", title, *axes, curves, caption, "log"),
        Figure("rate", rate, *rate_axes, tail, rate_caption, "log", "log"),
    )


def _nearest_sketch(lab: Lab) -> Figure:
    """Figure 9.1 of the notes from data: one sample in the plane, so that the interpolants are a line."""
    data = Regression(np.array([[0.5, 1.0]]), np.array([1.5]))
    starts = {"0": np.zeros(2), "(1.5, 0)": np.array([1.5, 0.0])}
    runs = [train(summed(data, Direct()), gradient_descent(0.2), start, steps=40) for start in starts.values()]
    first = np.array([-1.0, 2.5])  # ranges in which a right angle looks like one
    lines = [Line("all interpolants: X⁺ y and what is orthogonal to x", first, 1.5 - 0.5 * first)]
    lines += [
        Line(f"descent from {name}", run.params[:, 0], run.params[:, 1], "points")
        for name, run in zip(starts, runs, strict=True)
    ]
    ends = np.stack([minimum_norm(data, start).weight for start in starts.values()])
    lines.append(Line("X⁺ y, and the projection of the other start", ends[:, 0], ends[:, 1], "points"))
    caption = "One sample x = (0.5, 1), y = 1.5. Descent moves along x: it ends at the projection of its start on the line, from 0 at X^+ y."
    return Figure(
        "sketch", "The least norm is the projection of 0 (Figure 9.1)", "beta_1", "beta_2", tuple(lines), caption
    )


_PICKED = (1e3, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)  # starts of the table of norms


def path_of_minimisers(lab: Lab) -> tuple[Figure, Table]:
    """Norms of the selected interpolant over their least values, from alpha = 1000 down to 1e-14."""
    (data, weight), alphas = sparse(lab), np.geomspace(1e3, 1e-14, 69)
    lab.progress("the path of minimisers from alpha = 1000 to 1e-14")
    path = [found for found in potential_path(data, q_alpha(1.0, 100), tuple(np.log(alphas))) if found.resolved]
    alphas = alphas[: len(path)]
    least, short = basis_pursuit(data).value, float(np.linalg.norm(minimum_norm(data).weight))
    l1 = np.array([np.abs(found.weight).sum() for found in path]) - least
    l2 = np.array([np.linalg.norm(found.weight) for found in path]) - short
    error = np.array([np.linalg.norm(found.weight - weight) for found in path])
    guide = l1[-10] * (alphas / alphas[-10]) ** (2 * (1 - strict_dual(data, weight)))
    low = alphas < 1e-3
    lines = (
        Line("l1 norm over its minimum", alphas, np.maximum(l1, 1e-16)),
        Line("l2 norm over its minimum", alphas, np.maximum(l2, 1e-16)),
        Line("distance to the sparse weight", alphas, error),
        Line("predicted slope 2(1 - rho)", alphas[low], guide[low], "prediction"),
    )
    picked = [int(np.argmin(np.abs(np.log(alphas / alpha)))) for alpha in _PICKED if alpha >= alphas[-1]]
    cells = lambda k: (
        (alphas[k], ".3g"),
        (l1[k] + least, ".10g"),
        (l2[k] + short, ".10g"),
        (path[k].bracket.gap, ".1e"),
    )
    rows = tuple(tuple(Shown(*cell) for cell in cells(k)) for k in picked)
    title, axes = "From the kernel regime to the sparse one", ("alpha", "excess over the minimum")
    caption = f"Minimisers of Q_alpha on {data.inputs.shape[0]} samples in {data.inputs.shape[1]} dimensions; every point is certified."
    known = f"Least l1 norm {least:.10g}, least l2 norm {short:.10g}."
    columns = ("alpha", "l1 norm", "l2 norm", "certified gap")
    return (
        Figure("phase", title, *axes, lines, caption, "log", "log"),
        Table("norms", "Norms of the selected interpolant", columns, rows, known),
    )


def _recovery_sketch(lab: Lab) -> Figure:
    """Figure 9.2 of the notes from data: from a small start descent on the empirical loss stays near the sparse weights, where it is as on the population loss; from a large one it does not."""
    data, descent = sparse_regression(60, 200, 1, 2 + lab.seed, signed=False)[0], gradient_descent(0.02)
    small = train(square_setting(data, 1e-3), descent, steps=2_000, recorder=Every())
    large = train(square_setting(data, 0.05), descent, steps=4_000, recorder=LogSpaced(200))
    parts, far, times = decompose(data, small.params), decompose(data, large.params), 0.02 * np.arange(len(small))
    rising = 1 / np.sqrt(1 + (1e6 - 1) * np.exp(-2 * times))  # of the population flow, and its noise
    falling = 1e-3 * np.sqrt(199.0 / (1 + 2e-6 * times))
    lines = (
        Line("descent from alpha = 1e-3", parts.signal, np.linalg.norm(parts.noise, axis=1)),
        Line("descent from alpha = 0.05", far.signal, np.linalg.norm(far.noise, axis=1)),
        Line("on the population loss, from 1e-3", rising, falling, "prediction"),
        Line("the sparse weight", np.ones(1), np.zeros(1), "points"),
        Line(
            "where descent from 0.05 is then, a dense weight",
            far.signal[-1:],
            np.linalg.norm(far.noise[-1:], axis=1),
            "points",
        ),
    )
    title, axes = "Training stays among nearly sparse weights (Figure 9.2)", ("signal r_t", "l2 norm of the noise")
    caption = "One signal in 200 dimensions, 60 samples. Sparse weights are the axis below: there both losses agree, and a small start stays near it."
    return Figure("sketch", title, *axes, lines, caption)


def _interval(steps: np.ndarray, values: np.ndarray) -> Line:
    """Measured points with their 95 % intervals."""
    mean, error = mean_and_error(values)
    return Line("measured, with its 95 % interval", steps, mean, "points", error=1.96 * error)


def _laws(steps: np.ndarray, second: np.ndarray, leading: np.ndarray) -> tuple[Line, ...]:
    named = {"law of second moments": second, "leading order": leading}
    return tuple(Line(name, steps, values, "prediction") for name, values in named.items())


def _falls(lab: Lab) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Change of log(w+ w-), a mean over coordinates: measured (records x chains), by the law of second moments, to leading order."""
    run, law = noisy(lab), noise.drift(lab)
    second = (law.log_product - law.log_product[0]).mean(axis=1)
    return run.log_product.mean(axis=2), second, -4 * STEP**2 * DEVIATION**2 * run.steps


def _selected(lab: Lab) -> Figure:
    """l1 norms of the noise-off limits with their laws."""
    lab.progress(f"descent without noise, continued from {chains(lab)[1]} of {chains(lab)[0]} noisy chains")
    steps, norms, still = noisy(lab).steps, measured_norms(lab), measured_norms(lab, noise=False)
    second, leading = predicted_norms(lab).T
    lines = (
        _interval(steps, norms),
        *_laws(steps, second, leading),
        Line("without noise", steps, still.mean(axis=1), "points"),
        Line("optimum", steps, np.full(len(steps), basis_pursuit(noisy(lab).data).value), "prediction"),
    )
    caption = "Where descent ends if the noise stops at a given step and it continues without. Both laws are derived; no number in them is fitted."
    axis = "step at which the noise is switched off"
    return Figure("norm", "Label noise walks to the least l1 norm", axis, "l1 norm of the limit", lines, caption)


def _decay(lab: Lab) -> Figure:
    fall, second, leading = _falls(lab)
    steps, quiet = noisy(lab).steps, noisy(lab, noise=False).log_product.mean(axis=(1, 2))
    lines = (_interval(steps, fall), *_laws(steps, second, leading), Line("without noise", steps, quiet, "points"))
    caption = f"Mean over {chains(lab)[0]} chains and 30 coordinates. Leading order: -4 eta^2 sigma^2 c_j per step."
    title = "The effective start shrinks exponentially"
    return Figure("product", title, "step", "mean change of log(w+ w-)", lines, caption)


STUDIES = (
    Study(
        "max-margin",
        "Maximum margin on separable linear data",
        claims=(max_margin.direction, max_margin.direction_constant),
        exhibits=(_flows,),
        definitions={
            **DEFINITIONS,
            "H(p)": "entropy of the normalised dual weights of the maximum-margin program",
            "smooth margin": "-log L / |w|",
        },
    ),
    Study(
        "min-norm",
        "Least-norm interpolation from zero and non-zero starts (Figure 9.1)",
        claims=(least.nearest_solution,),
        exhibits=(_nearest_sketch,),
        definitions={
            **DEFINITIONS,
            "projection (of a start)": "the weight nearest to the start among those that fit all targets: what the theorem says is selected",
        },
    ),
    Study(
        "sparse-recovery",
        "Sparse recovery by squared parameters (Figure 9.2)",
        claims=(designs.window_bound, designs.window_error, recovered.single_repaired),
        exhibits=(_recovery_sketch,),
        definitions={
            **DEFINITIONS,
            "alpha": "size of the start of every parameter",
            "signal r_t, noise": "the coefficient of the one planted signal, and all others",
            "interpolant": "a weight that fits all targets exactly",
        },
    ),
    Study(
        "kernel-to-rich",
        "From the kernel regime to the sparse one: Q_alpha",
        claims=(
            q_alpha_claims.three_routes,
            q_alpha_claims.sparse_rate,
            q_alpha_claims.kernel_limit,
            q_alpha_claims.depth_routes,
        ),
        exhibits=(path_of_minimisers,),
        definitions={
            **DEFINITIONS,
            "alpha": "size of the start of every parameter",
            "w+, w-": "the two squared parameters of each coefficient; at depth D they are raised to the power D",
            "off-support coefficient": "a coefficient of the selected interpolant that is 0 in the sparse weight",
            "excess over the minimum": "a norm of the selected interpolant minus the least such norm of any interpolant",
            "rho": "smallest largest off-support entry of X' mu among mu with X_S' mu = signs; below 1 the l1 solution is unique",
        },
    ),
    Study(
        "label-noise",
        "Label noise as a regulariser",
        claims=(*(noise.selection, noise.stationary, noise.one_dimension, noise.separate_processes),),
        exhibits=(_selected, _decay),
        aliases=("sgd-noise",),
        definitions={
            **DEFINITIONS,
            "w+, w-": "the two squared parameters of each coefficient",
            "noise-off limit": "the interpolant that noise-free training reaches from the present point; measured by continuing descent on all samples until its relative residual is below 1e-4",
            "eta, sigma": "the step size, which multiplies the gradient, and the standard deviation of the noise on the targets",
            "alpha": "size of the start of every parameter",
            "B, c_j": "samples per step (here 1), and mean squares of the columns of the inputs (1 unless the columns are taken as they come)",
            "interpolant": "a weight that fits all targets exactly",
            "standard errors": "confirmed inside the joint 95 % interval of all steps, refuted outside the joint 99.9 % interval, undecided between",
            "leading order": "gradient flow of (eta sigma^2 / 4B) tr Hess: log(w+ w-) falls by 4 eta^2 sigma^2 c_j per step",
            "law of second moments": "the same with the residuals that the noise keeps alive, by their second moments",
        },
    ),
)
