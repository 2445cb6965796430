"""The laboratory: sentences with their checks, evidence that is computed once, and the papers that own both.

A *claim* is its check with a decorator: `check(lab, planted)` is the evidence, a verdict or several that it yields, and with `planted` the
same check of a near falsehood, which must come out refuted. A *recipe* is a piece of evidence: a lab computes it once, however the call is spelled. A *paper* is its
theorems, its files of claims and its studies; nothing is registered anywhere else.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from importlib import import_module
from types import ModuleType
from typing import Concatenate, ParamSpec, TypeVar, cast

import equinox as eqx
from jaxtyping import PyTree

from .errors import ArgumentError
from .exhibits import Figure, Finding, Result, Saved, Table, only
from .optimisers.base import Optimiser
from .problem import Problem
from .theory.base import Prediction, Theorem, predict
from .verdict import Outcome, Verdict, all_of

P = ParamSpec("P")
T = TypeVar("T")
Check = Callable[..., Verdict | Iterator[Verdict]]
Exhibit = Figure | Table | Mapping[str, Saved]

KINDS = {
    "proved": "a sentence of a paper",
    "sharpened": "a sentence of a paper with constants, exponents or cases that the paper leaves open",
    "repaired": "a sentence of a paper that fails as printed, mended",
    "ours": "derived for penchant",
    "observed": "seen on data, not proved",
}


class Lab:
    """Where evidence is computed, each piece once. Studies and claims may read its `seed` and whether it is `full`, and say what they do to `progress`.

    Predictions of a lab come from its `theorems`.
    """

    def __init__(
        self,
        seed: int = 0,
        full: bool = False,
        progress: Callable[[str], None] = lambda text: None,
        theorems: Callable[[], Iterable[Theorem]] = tuple,
    ):
        self.seed, self.full, self.progress, self.theorems = seed, full, progress, theorems
        self.kept: dict[tuple, object] = {}

    def predict(self, setting: Problem, optimiser: eqx.Module | Optimiser, start: PyTree = None) -> Prediction:
        return predict(self.theorems(), setting, optimiser, start)


def recipe(compute: Callable[Concatenate[Lab, P], T]) -> Callable[Concatenate[Lab, P], T]:
    """Evidence that a lab computes once, keyed by what is asked and not by how the call is spelled.

    >>> @recipe
    ... def cube(lab, base, power=3):
    ...     print("computing")
    ...     return base**power
    >>> lab = Lab()
    >>> cube(lab, 2), cube(lab, base=2), cube(lab, 2, power=3)
    computing
    (8, 8, 8)
    """
    signature = inspect.signature(compute)

    @wraps(compute)
    def once(lab: Lab, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(lab, *args, **kwargs)
        bound.apply_defaults()
        key = (compute, *list(bound.arguments.values())[1:])
        if key not in lab.kept:
            lab.kept[key] = compute(lab, *args, **kwargs)
        return cast(T, lab.kept[key])

    return once


class Claim(eqx.Module):
    """One sentence with its evidence. `expected` is the verdict it is known to get: "refuted" marks a finding, a sentence that does not hold,
    and `repair` names the claim that says what holds in its place.

    `slow` claims take more than some one and a half seconds of one core; the tests check them with `--slow` only.
    """

    name: str
    statement: str
    citation: str
    check: Check
    kind: str
    expected: Outcome = Outcome.confirmed
    slow: bool = False
    repair: str = ""

    @property
    def place(self) -> str:
        """Where the check stands: file and line, from the folder of the package on."""
        code = inspect.unwrap(getattr(self.check, "func", self.check)).__code__
        return f"penchant/{code.co_filename.replace(os.sep, '/').rpartition('/penchant/')[2]}:{code.co_firstlineno}"

    def __call__(self, lab: Lab, planted: bool = False, *args: object, **kwargs: object) -> Verdict:
        found = self.check(lab, planted, *args, **kwargs)
        return found if isinstance(found, Verdict) else all_of(*found)


def claim(
    name: str,
    citation: str,
    kind: str,
    *,
    statement: str = "",
    expected: Outcome = Outcome.confirmed,
    slow: bool = False,
    repair: str = "",
) -> Callable[[Check], Claim]:
    """Make a check a claim: the first line of its docstring is the sentence, unless it is given as `statement`. Nothing global happens: the paper lists the file.

    >>> from penchant.verdict import at_most
    >>> @claim("toy/halves", "arithmetic", "proved")
    ... def halves(lab, planted):
    ...     "Two halves are at most one."
    ...     return at_most(0.5 + 0.5, 0.9 if planted else 1.0, "sum")
    >>> halves.statement, str(halves(Lab())), halves(Lab(), planted=True).outcome.value
    ('Two halves are at most one.', 'confirmed: sum = 1 <= 1', 'refuted')
    """
    if kind not in KINDS:
        raise ArgumentError("kind", "claim", f"one of {', '.join(KINDS)}", repr(kind))

    def made(check: Check) -> Claim:
        sentence = statement or (check.__doc__ or "").partition("\n")[0]
        if not sentence:
            raise ArgumentError("check", "claim", "a docstring whose first line is the sentence", f"none on {name!r}")
        return Claim(name, sentence, citation, check, kind, expected, slow, repair)

    return made


derived = partial(claim, citation="derived for penchant", kind="ours")
conjectured = partial(claim, citation="conjecture, not in the paper", kind="observed")
observed = partial(claim, citation="observed", kind="observed")


def claims_in(*modules: ModuleType) -> tuple[Claim, ...]:
    """Every claim of these files, in their order; a file may use the claims of another."""
    found = only(Claim, (one for module in modules for one in vars(module).values()))
    return tuple({claim.name: claim for claim in found}.values())


class Study(eqx.Module):
    """A named experiment as data: claims, whose verdicts are its findings, and exhibits, which draw what a lab found.

    An exhibit returns a figure, a table, a dict of runs to save, or a tuple of these. In place of both, `run` may make the
    whole `Result`. A study that draws nothing at random is not `seeded`, and its page names no seed.
    """

    name: str
    title: str
    run: Callable[[Lab], Result] | None = None
    seeded: bool = True
    claims: tuple[Claim, ...] = ()
    exhibits: tuple[Callable[[Lab], Exhibit | tuple[Exhibit, ...]], ...] = ()
    definitions: dict[str, str] = eqx.field(default_factory=dict)
    aliases: tuple[str, ...] = ()  # names of studies that this one has taken in

    def result(self, lab: Lab) -> Result:
        """One finding per claim, then figures, tables and runs of the exhibits, in their order."""
        if self.run is not None:
            return self.run(lab)
        findings = []
        for one in self.claims:
            lab.progress(f"claim {one.name}")
            findings.append(Finding(one.statement, one(lab), one.citation))
        returned = [exhibit(lab) for exhibit in self.exhibits]
        shown = [part for found in returned for part in (found if isinstance(found, tuple) else (found,))]
        runs = {name: run for part in only(dict, shown) for name, run in part.items()}
        return Result(tuple(findings), only(Figure, shown), only(Table, shown), runs, self.definitions)


class Paper(eqx.Module):
    """A folder of `papers`: theorems about the user's own data, files of claims, files of studies. Claims and studies are imported on demand."""

    name: str
    source: str
    package: str
    theorems: tuple
    claim_files: tuple[str, ...]
    study_files: tuple[str, ...]
    aliases: tuple[str, ...] = ()

    def module(self, file: str) -> ModuleType:
        return import_module(f"{self.package}.{file}")

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every claim of the listed files, in their order."""
        return claims_in(*map(self.module, self.claim_files))

    @property
    def studies(self) -> tuple[Study, ...]:
        """Every study of the listed files, in their order."""
        return tuple(study for file in self.study_files for study in self.module(file).STUDIES)
