"""Studies: optimisers against norms, the turn of Adam with an epsilon next to floats, and Newton-Schulz steps against the polar factor."""

import jax.numpy as jnp
import numpy as np

from ...exhibits import Figure, Line, Table, table
from ...lab import Lab, Study
from ...optimisers.newton_schulz import spread
from ...problem import read
from ...settings.base import Setting
from ...settings.losses import CrossEntropy
from ...settings.parametrisations import Direct
from . import adam, epsilon, muon, next_token, steepest
from .comparison import NAMES
from .evidence import along, best, compared, drawn, features, last, mean_interval

_SHOWN = {
    "frobenius": 0.3,
    "l1": 0.3,
    "max": 0.3,
    "nuclear": 0.3,
    "spectral": 0.3,
    "signum": 0.1,
    "adam": 0.1,
    "default adam": 0.1,
    "muon": 0.3,
    "ns5": 0.3,
}
_SEED = 0


def matrix(lab: Lab) -> Table:
    """Mean share of the best margin, by optimiser and norm."""
    rows = []
    for rule, size in _SHOWN.items():
        found = (mean_interval(last(lab, rule, norm, size=size)) for norm in NAMES)
        rows.append((rule, *(f"{mean:.3f} ± {error:.3f}" for mean, error in found)))
    columns = {"optimiser": "", **dict.fromkeys(NAMES, "")}
    caption = (
        "Share of the best margin in each norm after 3000 steps: means over twenty data sets, with two standard errors."
    )
    return table("matrix", "Optimiser against norm", columns, rows, caption)


def curves(lab: Lab) -> tuple[Figure, ...]:
    """Shares along the runs on the first data set."""
    shown = (
        compared(lab, rule, size=_SHOWN[rule])[_SEED].figure(f"Steps of {rule}")
        for rule in ("max", "spectral", "adam", "ns5")
    )
    return tuple(
        Figure(f"shares-{k}", *[getattr(one, name) for name in ("title", "x_label", "y_label", "lines", "caption")])
        for k, one in enumerate(shown)
    )


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
    return Figure(
        "turn", "The turn of Adam", "margin / log(1/eps)", "share of the best margin", tuple(lines), caption, "log"
    )


def blind_margin(lab: Lab, dtype: type) -> float:
    """The margin from which on softmax minus one-hot labels in this precision gives a gradient that is off by a tenth."""
    data, path = drawn(lab)[_SEED], epsilon.turn(lab, _SEED, 1e-8)
    setting, labels = Setting(data, Direct(), CrossEntropy()), np.asarray(data.labels)
    for weight, margin in zip(path.weights[1:], path.margins[1:], strict=True):
        logits = (np.asarray(data.inputs) @ weight.T).astype(dtype)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = shares / shares.sum(axis=1, keepdims=True) - np.eye(data.classes, dtype=dtype)[labels]
        reading = read(setting, jnp.asarray(weight))
        exact = np.exp(float(reading.log_scale)) * np.asarray(reading.slope) * len(labels)
        found = shares.T.astype(float) @ np.asarray(data.inputs)
        if np.linalg.norm(found - exact) > 0.1 * np.linalg.norm(exact):
            return float(margin)
    return float("inf")


def blind(lab: Lab) -> Table:
    """Where the gradient of ordinary code is lost, next to the margin at which Adam with the default epsilon turns."""
    rows = [(name, blind_margin(lab, dtype)) for name, dtype in (("float32", np.float32), ("float64", np.float64))]
    rows.append(("peak of the max-norm share for eps = 1e-8", epsilon.peak(lab, _SEED, 1e-8)))
    rows.append(("predicted, log(1/eps)", -np.log(1e-8)))
    caption = "Softmax minus one-hot labels, as any code computes it: its gradient is off by a tenth from this margin on. In logarithms there is no such margin."
    return table("blind", "Where floats go blind", {"what": "", "margin": ".4g"}, rows, caption)


def rest_points(lab: Lab) -> Table:
    """The rest point of each of the first four data sets, and how near steps come to it."""
    rows = []
    for seed in range(4):
        found = muon.rest(lab, seed)
        sizes = np.linalg.svd(np.tensordot(found.shares, features(lab, seed), 1), compute_uv=False)
        x = sizes[sizes > 1e-9 * sizes[0]] / np.linalg.norm(sizes)
        shares = [compared(lab, rule, steps=20_000)[seed].last["spectral"] for rule in ("ns5", "muon ns5", "polar")]
        rows.append(
            (
                seed,
                muon.rest_share(lab, seed),
                " ".join(f"{v:.5f}" for v in x),
                " ".join(f"{v:.4f}" for v in np.ravel(spread(x))),
                *shares,
            )
        )
    columns = {
        "data set": "",
        "share at rest": ".6f",
        "x": "",
        "f(x)": "",
        "steps": ".4f",
        "with momentum": ".4f",
        "polar factor": ".4f",
    }
    caption = "Share of the spectral margin at the rest point of the replicator flow, its singular values, and after 20 000 steps."
    return table("rest", "Where Newton-Schulz steps rest", columns, rows, caption)


def gap(lab: Lab) -> Figure:
    """Mean share of the spectral margin with intervals, for steps and for the polar factor."""
    lines = []
    for rule in ("ns5", "polar"):
        found = compared(lab, rule, steps=20_000)
        shares, steps = np.stack([one.shares["spectral"] for one in found]), found[0].steps
        late, error = steps >= 30, 2 * shares.std(axis=0, ddof=1) / np.sqrt(len(found))
        lines.append(Line(rule, steps[late], shares.mean(axis=0)[late], error=error[late]))
    rest = float(np.mean([muon.rest_share(lab, seed) for seed in range(len(best(lab)))]))
    lines.append(Line("rest point", np.array([30.0, 20_000.0]), np.array([rest, rest]), "prediction"))
    caption = "Means over twenty data sets with two standard errors: the gap of Newton-Schulz steps does not close."
    return Figure(
        "newton-schulz",
        "Muon and its orthogonaliser",
        "step",
        "share of the spectral margin",
        tuple(lines),
        caption,
        "log",
    )


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
