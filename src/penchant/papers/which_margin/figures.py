"""Studies: optimisers against norms, the turn of Adam with an epsilon next to floats, and Newton-Schulz steps against the polar factor."""

from dataclasses import replace

import numpy as np

from ...exhibits import Figure, Line, Table, table
from ...lab import Lab, Study, recipe
from ...optimisers.base import Adam
from ...optimisers.newton_schulz import spread
from ...settings.base import Setting
from ...settings.classification import Multiclass
from ...settings.losses import CrossEntropy
from ...settings.parametrisations import Direct
from ...training.events import Every
from ...training.train import train
from . import adam, epsilon, muon, next_token, steepest
from .comparison import NAMES
from .evidence import along, best, compared, drawn, features, last, mean_interval

_SHOWN = {**dict.fromkeys((*NAMES, "muon", "ns5"), 0.3), **dict.fromkeys(("signum", "adam", "default adam"), 0.1)}
_SEED = 0
_SIZE, _B1, _B2, _STEPS = 0.01, 0.9, 0.95, 3000  # of the Adam that floats of three kinds follow
_LOG_EPS = (float(np.log(1e-8)), -60.0)


def matrix(lab: Lab) -> Table:
    """Mean share of the best margin, by optimiser and norm."""
    rows = []
    for rule, size in _SHOWN.items():
        found = (mean_interval(last(lab, rule, norm, size=size)) for norm in NAMES)
        rows.append((rule, *(f"{mean:.3f} ± {error:.3f}" for mean, error in found)))
    columns = {"optimiser": "", **dict.fromkeys(NAMES, "")}
    caption = (
        "Share of the best margin in each norm after 3000 steps: means over twenty data sets, with two standard errors. A norm stands for steps that are steepest in it; "
        "adam has b2 = 0.95, the default adam 0.999, both without an epsilon."
    )
    return table("matrix", "Optimiser against norm", columns, rows, caption)


def curves(lab: Lab) -> tuple[Figure, ...]:
    """Shares along the runs on the first data set."""
    names = {"max": "Signs", "spectral": "Polar factors", "adam": "Adam", "ns5": "Newton-Schulz steps"}
    shown = [compared(lab, rule, size=_SHOWN[rule])[_SEED].figure(name) for rule, name in names.items()]
    return tuple(replace(one, name=f"shares-{k}") for k, one in enumerate(shown))


def turning(lab: Lab) -> Figure:
    """Both shares along the turn, against the margin."""
    lines = []
    for eps in (1e-4, 1e-8):
        path = epsilon.turn(lab, _SEED, eps)
        seen, unit = path.margins[1:] > 1, -np.log(eps)
        lines += [
            Line(f"{name}, eps = {eps:g}", path.margins[1:][seen] / unit, along(lab, _SEED, path, name)[seen])
            for name in ("max", "frobenius")
        ]
    caption = "Up to a margin of log(1/eps) Adam maximises the max-norm margin, afterwards the Frobenius one."
    labels = "The turn of Adam", "margin / log(1/eps)", "share of the best margin"
    return Figure("turn", *labels, tuple(lines), caption, "log")


def plain_adam(data: Multiclass, dtype: type, eps: float) -> np.ndarray:
    """The weights of Adam as any code has it, on softmax minus one-hot labels."""
    inputs, hot = np.asarray(data.inputs, dtype), np.eye(data.classes, dtype=dtype)[np.asarray(data.labels)]
    weights, mean, square = [np.zeros(data.weight_shape, dtype)], 0.0, 0.0
    for step in range(1, _STEPS + 1):
        shares = np.exp((logits := inputs @ weights[-1].T) - logits.max(axis=1, keepdims=True))
        slope = (shares / shares.sum(axis=1, keepdims=True) - hot).T @ inputs / dtype(len(inputs))
        mean, square = _B1 * mean + (1 - _B1) * slope, _B2 * square + (1 - _B2) * slope**2
        root = np.sqrt(square / (1 - _B2**step))
        weights.append(weights[-1] - _SIZE * mean / (1 - _B1**step) / (root + dtype(eps)))
    return np.asarray(weights, float)


@recipe
def precisions(lab: Lab, log_eps: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Margins and max-norm shares after every step of one Adam: in logarithms, and in ordinary floats of two lengths."""
    data, found = drawn(lab)[_SEED], best(lab)[_SEED]["max"]
    optimiser = Adam(_SIZE, b1=_B1, b2=_B2, log_eps=log_eps)
    run = train(Setting(data, Direct(), CrossEntropy()), optimiser, steps=_STEPS, recorder=Every(1))
    weights = {"logarithms": np.asarray(run.params)}
    weights |= {one.__name__: plain_adam(data, one, float(np.exp(log_eps))) for one in (np.float64, np.float32)}
    lowest = {
        name: np.tensordot(found_of, features(lab, _SEED), ((1, 2), (1, 2))).min(axis=1)
        for name, found_of in weights.items()
    }
    size = lambda name: np.abs(weights[name][1:]).max(axis=(1, 2))
    return {name: (margin[1:], margin[1:] / size(name) / found.margin) for name, margin in lowest.items()}


def blind(lab: Lab) -> Table:
    """Where Adam in ordinary floats leaves the Adam in logarithms, next to the margin at which that one turns."""
    rows = []
    for log_eps in _LOG_EPS:
        (margin, share), *floats = precisions(lab, log_eps).values()
        apart = [np.append(np.abs(of_floats - share) > 0.01, True) for _, of_floats in floats]
        leaves = [np.append(margin, np.inf)[int(one.argmax())] for one in apart]
        rows.append((f"e^{log_eps:.4g}", -log_eps, float(margin[share.argmax()]), *leaves))
    of_margins = "predicted turn", "peak of the share", "float64 leaves", "float32 leaves"
    columns = {"eps": "", **dict.fromkeys(of_margins, ".4g")}
    caption = (
        f"Margins of {_STEPS} steps {_SIZE:g} of Adam with b = ({_B1:g}, {_B2:g}): where the share of the max-norm margin is largest, and where that of the same Adam on softmax minus "
        "one-hot labels in ordinary floats is off by 0.01 (inf: not within these steps)."
    )
    return table("blind", "Where floats go blind", columns, rows, caption)


def rest_points(lab: Lab) -> Table:
    """The rest point of each of the first four data sets, and how near steps come to it."""
    rows = []
    for seed in range(4):
        found = muon.rest(lab, seed)
        sizes = np.linalg.svd(np.tensordot(found.shares, features(lab, seed), 1), compute_uv=False)
        x = sizes[sizes > 1e-9 * sizes[0]] / np.linalg.norm(sizes)
        texts = " ".join(f"{v:.5f}" for v in x), " ".join(f"{v:.4f}" for v in np.ravel(spread(x)))
        shares = [compared(lab, rule, steps=20_000)[seed].last["spectral"] for rule in ("ns5", "muon ns5", "spectral")]
        rows.append((seed, muon.rest_share(lab, seed), *texts, *shares))
    of_steps = dict.fromkeys(("steps", "with momentum", "polar factor"), ".4f")
    columns = {"data set": "", "share at rest": ".6f", "x": "", "f(x)": "", **of_steps}
    caption = "Share of the spectral margin at the rest point of the replicator flow, its singular values, and after 20 000 steps."
    return table("rest", "Where Newton-Schulz steps rest", columns, rows, caption)


def gap(lab: Lab) -> Figure:
    """Mean share of the spectral margin with intervals, for steps and for the polar factor."""
    lines = []
    for name, rule in (("ns5", "ns5"), ("polar", "spectral")):
        found = compared(lab, rule, steps=20_000)
        shares = np.stack([one.shares["spectral"] for one in found])
        times = np.mean([one.log_time for one in found], axis=0)
        late, error = found[0].steps >= 30, 2 * shares.std(axis=0, ddof=1) / np.sqrt(len(found))
        lines.append(Line(name, times[late], shares.mean(axis=0)[late], error=error[late]))
    rest = float(np.mean([muon.rest_share(lab, seed) for seed in range(len(best(lab)))]))
    lines.append(Line("rest point", lines[0].x[[0, -1]], np.array([rest, rest]), "prediction"))
    caption = "Means over twenty data sets with two standard errors: the gap of Newton-Schulz steps does not close."
    labels = "Muon and its orthogonaliser", "mean log time", "share of the spectral margin"
    return Figure("newton-schulz", *labels, tuple(lines), caption)


STUDIES = (
    Study(
        "which-margin",
        "Optimiser against norm (NSD)",
        claims=(steepest.own_norm, steepest.other_norms, adam.fresh, muon.exact, steepest.losses, next_token.selects),
        exhibits=(matrix, curves),
    ),
    Study(
        "adam-epsilon",
        "The turn of Adam from the max-norm to the Frobenius margin",
        claims=(epsilon.limit, epsilon.where, epsilon.angle, adam.speed_limit, adam.stale),
        exhibits=(turning, blind),
    ),
    Study(
        "newton-schulz",
        "Newton-Schulz steps against the polar factor (MUON)",
        claims=(muon.rests, muon.exact, muon.no_norm, muon.shipped, muon.frank_wolfe),
        exhibits=(rest_points, gap),
    ),
)
