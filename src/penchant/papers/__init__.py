"""The papers, each in a folder of its own with its theorems, claims and figures: this tuple is the one list.

Their order decides nothing: a theorem that covers the optimiser speaks before any family without one. `predict` opens a paper when it comes to it. Files of claims and studies are imported where they are asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

import equinox as eqx
from jaxtyping import PyTree

from ..errors import ArgumentError
from ..lab import Claim, Lab, Paper, Study
from ..optimisers.base import Optimiser
from ..theory import base as theory
from ..theory.base import Prediction, Theorem

_FOLDERS = (
    "which_margin",
    "networks",
    "notes",
    "self_attention",
    "key_query",
    "deep_linear",
    "attention_regression",
)


class _Papers(Sequence[Paper]):
    """The papers in their order, each imported when it is reached."""

    def __len__(self) -> int:
        return len(_FOLDERS)

    def __getitem__(self, place: int) -> Paper:  # pyright: ignore[reportIncompatibleMethodOverride]
        return import_module(f".{_FOLDERS[place]}", __name__).PAPER


PAPERS: Sequence[Paper] = _Papers()


def theorems() -> Iterator[Theorem]:
    """Every theorem of every paper."""
    return (theorem for paper in PAPERS for theorem in paper.theorems)


def find_papers(names: tuple[str, ...] = ()) -> Sequence[Paper]:
    """The papers of these names, old ones included; all papers without any."""
    known = {name: paper for paper in PAPERS for name in (paper.name, *paper.aliases)}
    for name in names:
        if name not in known:
            raise ArgumentError("PAPER", "penchant", f"one of {', '.join(p.name for p in PAPERS)}", repr(name))
    return tuple(dict.fromkeys(known[name] for name in names)) or PAPERS


def claims() -> tuple[Claim, ...]:
    """Every claim of every paper."""
    return tuple(claim for paper in PAPERS for claim in paper.claims)


def studies() -> tuple[Study, ...]:
    """Every study of every paper."""
    return tuple(study for paper in PAPERS for study in paper.studies)


def new_lab(seed: int = 0, full: bool = False, progress: Callable[[str], None] = lambda text: None) -> Lab:
    """A lab whose predictions know the theorems of all papers."""
    return Lab(seed, full, progress, theorems)


def predict(setting: eqx.Module, optimiser: eqx.Module | Optimiser, start: PyTree = None) -> Prediction:
    """What theory says of training `setting` with `optimiser`: the theorem of the papers that covers it.

    With a `start` the hypotheses about starts are checked too. Which interpolant a regression ends at depends on the `start` of
    training (that of the setting by default); the directions of classification and attention do not.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Regression([[1.0, 1.0]], [2.0]), pt.Direct(), pt.Squared())
    >>> pt.predict(setting, pt.GradientFlow(), [3.0, 1.0]).reference.weight.round(12).tolist()   # the nearest one to (3, 1)
    [2.0, 0.0]
    """
    return theory.predict(theorems(), setting, optimiser, start)
