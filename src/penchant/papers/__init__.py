"""The papers, each in a folder of its own with its theorems, claims and figures: `NAMES` is the one list.

Their order decides nothing: a theorem that covers the optimiser speaks before any family without one. Files of claims and studies are
imported where they are asked for.
"""

from collections.abc import Callable
from importlib import import_module

from jaxtyping import PyTree

from ..errors import ArgumentError
from ..lab import Claim, Lab, Paper, Study
from ..theory import base as theory
from ..theory.base import Prediction, Theorem

NAMES = (
    "which_margin",
    "notes",
    "self_attention",
    "key_query",
    "deep_linear",
    "attention_regression",
)
PAPERS: tuple[Paper, ...] = tuple(import_module(f"{__name__}.{name}").PAPER for name in NAMES)
THEOREMS: tuple[Theorem, ...] = tuple(theorem for paper in PAPERS for theorem in paper.theorems)


def find_papers(names: tuple[str, ...] = ()) -> tuple[Paper, ...]:
    """The papers of these names, old ones included; all papers without any."""
    known = {name: paper for paper in PAPERS for name in (paper.name, *paper.aliases)}
    for name in names:
        if name not in known:
            raise ArgumentError("PAPER", "penchant verify", f"one of {', '.join(p.name for p in PAPERS)}", repr(name))
    return tuple(dict.fromkeys(known[name] for name in names)) or PAPERS


def claims() -> tuple[Claim, ...]:
    """Every claim of every paper."""
    return tuple(claim for paper in PAPERS for claim in paper.claims)


def studies() -> tuple[Study, ...]:
    """Every study of every paper."""
    return tuple(study for paper in PAPERS for study in paper.studies)


def new_lab(seed: int = 0, full: bool = False, progress: Callable[[str], None] = lambda text: None) -> Lab:
    """A lab whose predictions know the theorems of all papers."""
    return Lab(seed, full, progress, THEOREMS)


def predict(setting: object, optimiser: object, start: PyTree = None) -> Prediction:
    """What theory says of training `setting` with `optimiser`: the theorem of the papers that covers it.

    With a `start` the hypotheses about starts are checked too. Which interpolant a regression ends at depends on the `start` of
    training (that of the setting by default); the directions of classification and attention do not.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Regression([[1.0, 1.0]], [2.0]), pt.Direct(), pt.Squared())
    >>> pt.predict(setting, pt.GradientFlow(), [3.0, 1.0]).reference.weight.round(12).tolist()   # the nearest one to (3, 1)
    [2.0, 0.0]
    """
    return theory.predict(THEOREMS, setting, optimiser, start)
