"""The papers, each in a folder of its own with its theorems, claims and figures: this tuple is the one list.

`predict` asks the theorems in this order. Files of claims and studies are imported where they are asked for.
"""

from typing import Any

from ..errors import ArgumentError
from ..lab import Claim, Lab, Paper, Study
from ..theory import predict as theory
from ..theory.base import Prediction, Theorem
from . import attention_regression, deep_linear, key_query, notes, self_attention, which_margin

PAPERS: tuple[Paper, ...] = (
    which_margin.PAPER,  # before the conjectures that would speak about every optimiser
    notes.PAPER,
    self_attention.PAPER,
    key_query.PAPER,
    deep_linear.PAPER,
    attention_regression.PAPER,
)
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


def new_lab(seed: int = 0, full: bool = False, progress: Any = None) -> Lab:
    """A lab whose predictions know the theorems of all papers."""
    return Lab(seed, full, progress or (lambda text: None), THEOREMS)


def predict(setting: Any, optimiser: Any, start: Any = None) -> Prediction:
    """What theory says of training `setting` with `optimiser`: the first theorem of the papers that speaks about it.

    With a `start` the hypotheses about starts are checked too. Which interpolant a regression ends at depends on the `start` of
    training (that of the setting by default); the directions of classification and attention do not.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Regression([[1.0, 1.0]], [2.0]), pt.Direct(), pt.Squared())
    >>> pt.predict(setting, pt.GradientFlow(), [3.0, 1.0]).reference.weight.round(12).tolist()   # the nearest one to (3, 1)
    [2.0, 0.0]
    """
    return theory.predict(THEOREMS, setting, optimiser, start)
