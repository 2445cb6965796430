"""Errors that name the argument, what was required, what was found, the usual causes and the line to type."""

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

import numpy as np


class PenchantError(ValueError):
    """Base of every error penchant raises on purpose."""


class PenchantWarning(UserWarning):
    """Something the user should know, and that does not stop the work."""


def warn(text: str) -> None:
    """A `PenchantWarning` at the line that called into penchant."""
    frame, level = sys._getframe(1), 2
    ours = (__package__, "equinox", "jaxtyping")  # the latter two wrap our methods
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ours:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, PenchantWarning, stacklevel=level)


@contextmanager
def quietly() -> Iterator[None]:
    """No `PenchantWarning` inside: for evidence that breaks an assumption on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PenchantWarning)
        yield


def kind(value: object) -> str:
    """What an argument of a wrong kind is, in a word or two."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _said(first: str, *causes: str, fix: str = "") -> str:
    """The form of a message: what is wrong, the usual causes, the line to type."""
    named = [f"({letter}) {cause}" for letter, cause in zip("abcd", causes, strict=False)] if causes[1:] else causes
    usual = f"\n  Usual cause{'s' * (len(causes) > 1)}: {'; '.join(named)}." if causes else ""
    return first + usual + (f"\n  Fix: {fix}" if fix else "")


class ArgumentError(PenchantError):
    """A bad argument, in one sentence form; a misspelt name is answered with the nearest one."""

    def __init__(self, argument: str, owner: str, required: str, found: object, fix: str = ""):
        self.argument = argument
        names = required.removeprefix("one of ").split(", ") if required.startswith("one of ") else []
        fix = fix or next((f"did you mean {name}?" for name in get_close_matches(str(found).strip("'"), names, 1)), "")
        text = f"The '{argument}' argument of {owner} must be {required}. Got {found} instead."
        PenchantError.__init__(self, _said(text, fix=fix))


class UnknownLimit(PenchantError):
    """An optimiser whose limit on a kind of problem neither a theorem nor a conjecture names."""

    def __init__(self, optimiser: str, norm: str, problem: str):
        text = f"No theorem of the catalogue covers {optimiser}{f' in the {norm} norm' * (norm != 'l2')} on {problem}, and no candidate for its limit is known."
        fix = "`train` runs it without a prediction; `GradientFlow()` and `gradient_descent(step)` have one."
        super().__init__(_said(text, fix=fix))


class FiniteLimit(PenchantError):
    """Data on which no margin grows: training ends at a finite weight, and selects no direction."""

    def __init__(self, size: float):
        text = f"All supports are full: no margin grows, and gradient methods end at a finite weight (from 0 at that of Frobenius norm {size:.10g})."
        fix = "`data.data_weight` is that weight; `train` runs without a prediction. A token that never follows has the count 0."
        super().__init__(_said(text, fix=fix))


class MissingExtra(PenchantError):
    """Something that needs a package which penchant installs only on request."""

    def __init__(self, extra: str, owner: str):
        text = f"{owner} needs the extra '{extra}', which is not installed."
        super().__init__(_said(text, fix=f"pip install 'penchant[{extra}]'"))


class Unproved(PenchantError):
    """A reference that exact arithmetic could not prove; nothing is wrong with it in floats."""

    def __init__(self, norm: str, why: str):
        causes = "data that are degenerate only up to rounding", "a program of a kind that `--exact` does not cover"
        fix = "leave `--exact` out; the bracket in floats stands as printed."
        super().__init__(_said(f"The {norm} reference has no exact proof: {why}.", *causes, fix=fix))


class DataFileError(PenchantError):
    """A file that cannot be read as what it should be."""


class DegenerateSample(PenchantError):
    """A sample whose attention no weight can change."""

    def __init__(self, sample: int, owner: str = "TokenSelection"):
        self.sample = sample
        text = f"Sample {sample} of `{owner}` has the query 0, so its attention is uniform whatever the weights."
        causes = "padding in the first token, which is the default query", "a sample of zeros"
        super().__init__(_said(text, *causes, fix="drop the sample, or pass `queries=` with a non-zero row for it."))


class NonUniqueOptimalToken(PenchantError):
    """Two tokens share the best score, so 'the' optimal token is not defined."""

    def __init__(
        self, sample: int, tokens: Sequence[int], gap: float, more: Sequence[int] = (), all_tied: bool = False
    ):
        self.sample, self.tokens, self.gap, self.samples = sample, tuple(tokens), gap, (sample, *more)
        shown = f"{', '.join(str(other) for other in more[:20])}{', ...' if len(more) > 20 else ''}"
        text = f"Sample {sample} of `TokenSelection` has no unique optimal token: tokens {list(tokens)} have scores within {gap:.3g} of the best one."
        text += f"\n  The same is true of sample{'s' * (len(more) > 1)} {shown}." if more else ""
        causes = "a duplicated token", "a head orthogonal to the difference of two tokens"
        fix = "remove the duplicate, or pass `ties='keep'` to leave tied tokens out of the margin constraints."
        fix = "leave the sample out, or score its tokens differently: nothing is left to select." if all_tied else fix
        super().__init__(_said(text, *causes, fix=fix))


class CriticalPointError(PenchantError):
    """A start whose gradient is exactly zero: no descent can leave it."""

    def __init__(self, owner: str):
        text = f"`{owner}` was given a start at which the gradient is exactly 0, so training can never leave it."
        causes = "two or more layers that are zero", "a product of the later layers that is 0"
        fix = "`setting.start(seed=0, scale=0.1)`, or `zero_first(setting, seed, scale)` for a network that starts at weight 0."
        super().__init__(_said(text, *causes, fix=fix))


class NotSeparableError(PenchantError):
    """Data on which no weight has all margins positive; `weights` proves it, and `full` says of diagonal weights whether a matrix would do."""

    def __init__(
        self,
        text: str,
        weights: np.ndarray,
        norm: float,
        combine: str,
        largest: str,
        causes: Iterable[str] = (),
        fix: str = "",
        full: bool = False,
    ):
        self.weights, self.norm, self.full = np.asarray(weights), norm, full
        exact = f"that is 0 (of norm {norm:.1e} for the weights as they are rounded)" if norm else "that is 0"
        proof = f"  Proof: `error.weights` ({len(weights)} nonnegative numbers, sum 1) combine {combine} {exact}."
        super().__init__(_said(f"{text}\n{proof}{largest}", *causes, fix=fix))


def _largest(weights: np.ndarray, pairs: str = "", shown: int = 5) -> str:
    """The pairs, or else the samples, that carry most of a proof, so that who cannot see `error.weights` can find them."""
    heavy = [int(sample) for sample in np.argsort(-weights, kind="stable") if weights[sample] > 0.01]
    named = ", ".join(f"{weights[sample]:.2g} on sample {sample}" for sample in heavy[:shown])
    more = f", and above 0.01 on {len(heavy) - shown} more" if len(heavy) > shown else ""
    return f"\n  Largest weights: {pairs or (named or 'all below 0.01') + more}."


def _cause(weights: np.ndarray, what: str) -> str:
    """What a proof by one or two samples means; one by more has no simple reading."""
    samples = [int(sample) for sample in np.flatnonzero(weights > 1e-9)]
    if len(samples) == 1:
        return f"\n  Cause: the {what} of sample {samples[0]} is zero, so that its margin is 0 whatever the direction."
    if len(samples) == 2:
        return f"\n  Cause: samples {samples[0]} and {samples[1]} contradict each other: their {what}s, times their labels, point in opposite directions."
    return ""


def inseparable_inputs(weights: np.ndarray, norm: float, pairs: str = "", bias: bool = False) -> NotSeparableError:
    """Of classification data; `pairs` names the largest weights where they are of tokens, and with a `bias` column among the inputs none is asked for."""
    causes = ["label noise", "labels in the wrong order", "an input of zeros", *(["no bias column"] * (not bias))]
    cause = "" if pairs else _cause(weights, "input")
    text = (
        "`Classification` needs data that some direction classifies correctly, but no direction has a positive margin."
    )
    add = "" if bias else "`Classification(add_bias(inputs), labels)` (`--bias` from a shell), or "
    fix = f"{add}remove the samples with the largest weights."
    if add and "contradict" in cause:
        fix = f"remove one of the two, or, unless their inputs are equal, {add.removesuffix(', or ')}."
    causes, named = [] if pairs or cause else causes, _largest(weights, pairs) + cause
    return NotSeparableError(text, weights, norm, "the signed inputs to a vector", named, causes, fix)


def inseparable_classes(weights: np.ndarray, norm: float, labels: np.ndarray, others: np.ndarray) -> NotSeparableError:
    """Of multiclass data."""
    samples = [k // others.shape[1] for k in np.argsort(-weights, kind="stable") if weights[k] > 0.01]
    named = ", ".join(f"sample {i} (class {labels[i]})" for i in dict.fromkeys(samples[:8]))
    text = "`Multiclass` needs data that some weight classifies correctly, but no weight has a positive margin."
    causes = ["label noise", "no bias column", "too many samples for the dimension"]
    fix = "`Multiclass(add_bias(inputs), labels)`, or remove the samples with the largest weights."
    if len(set(samples)) == 1:
        causes = [f"the input of sample {samples[0]} is zero, so that its margins are 0 whatever the weight"]
        fix = "remove that sample."
    largest = f"\n  Largest weights: {named}."
    return NotSeparableError(text, weights, norm, "the pairs (e_y - e_c) x' to a matrix", largest, causes, fix)


def inseparable_decoder(tokens: Sequence[int], weights: np.ndarray, norm: float) -> NotSeparableError:
    """Of the selected tokens of joint data."""
    cause = _cause(weights, "token")
    causes = () if cause else ("the same tokens under opposite labels", "too many samples for the dimension")
    text = f"No decoder u classifies the tokens {list(tokens)} of `JointTokens` correctly: no direction has a positive margin."
    fix = "remove the samples with the largest weights, or name other tokens in `optimal`."
    combine = "these tokens, times their labels, to a vector"
    return NotSeparableError(text, weights, norm, combine, _largest(weights) + cause, causes, fix)


def inseparable_tokens(weights: np.ndarray, norm: float, pairs: str = "") -> NotSeparableError:
    """Of token data, whose optimal tokens cannot all be selected."""
    text = "No weight matrix selects the wanted token in every sample: no direction has a positive margin."
    causes = "two samples with the same query but contradictory best tokens", "too many samples for the dimension"
    causes += ("a token equal to the best one of its sample, with another score",)
    fix = "training is still possible (`train`), but there is no direction to predict; drop the samples with large weights."
    named = f"\n  Largest weights: {pairs}." if pairs else ""
    return NotSeparableError(text, weights, norm, "the pair features to a matrix", named, causes, fix)


def inseparable_diagonal(weights: np.ndarray, norm: float, full: bool, pairs: str) -> NotSeparableError:
    """Of token data and diagonal matrices."""
    whole = "separable by a full matrix, not by a diagonal one" if full else "not separable by any matrix"
    text = f"No diagonal weight matrix selects the optimal token in every sample: the data are {whole}."
    fix = (
        "train a full matrix, `KeyQuery()` on the token data themselves."
        if full
        else "drop the samples with large weights."
    )
    combine, named = "the diagonals of the pair features to a vector", f"\n  Largest weights: {pairs}."
    return NotSeparableError(text, weights, norm, combine, named, fix=fix, full=full)


class UndecidedMargin(PenchantError):
    """Data too ill-conditioned for float64 to say whether there is a positive margin."""

    def __init__(self, norm: float, longest: float, witness: float = float("nan")):
        size = f"while the longest feature has length {longest:.1e}"
        found = f"Cannot decide in float64 whether these data have a positive margin: if they have, it is at most {norm:.1e}, {size}."
        if witness > 0:
            found = f"These data are separable (a direction has margin {witness:.3g}), but their maximum margin is lost in float64: it is at most {norm:.1e}, {size}."
        fix = "rescale the columns to similar size (this changes the l2 norm, and so the question)."
        super().__init__(_said(found, "columns of very different scale", "nearly contradictory samples", fix=fix))


class InterpolationError(PenchantError):
    """Targets that no (nonnegative) weight interpolates; `weights` proves it."""

    def __init__(self, weights: np.ndarray, size: float, nonnegative: bool = False):
        self.weights, self.norm = weights, size
        kind, found = (
            "weight",
            f"`error.weights`, the part of the targets orthogonal to all inputs, is {size:.3g} of their norm.",
        )
        fix = "more input columns than samples; `minimum_norm` also accepts such targets and returns the least-squares solution"
        if nonnegative:
            kind, fix = "nonnegative weight", "`SignedSquares(alpha)`, whose weights have both signs"
            found = f"`error.weights` = mu has X' mu >= 0 and <mu, y> = {size:.3g} < 0, so X theta = y would need a negative coefficient."
        super().__init__(_said(f"No {kind} interpolates the targets of `Regression`.\n  Proof: {found}", fix=f"{fix}."))


INFEASIBLE = NotSeparableError, InterpolationError  # what comes with a proof that there is nothing to find


class UndecidedInterpolation(PenchantError):
    """Data too ill-conditioned for float64 to say whether a nonnegative weight interpolates."""

    def __init__(self, residual: float):
        text = f"Cannot decide in float64 whether a nonnegative weight interpolates the targets of `Regression`: the best one found leaves a relative residual of {residual:.1e}, and no proof against the others holds to the last digit."
        fix = "rescale the columns to similar size, or `SignedSquares(alpha)`, whose weights have both signs."
        cause = "columns of very different scale, or samples that are nearly dependent"
        super().__init__(_said(text, cause, fix=fix))


UNDECIDED = UndecidedMargin, UndecidedInterpolation


class StepSizeError(PenchantError):
    """A step size outside the region where the statement holds."""

    def __init__(self, step: float, bound: float, why: str):
        self.step, self.bound = step, bound
        super().__init__(_said(f"The step size {step:.3g} is too large: {why}.", fix=f"a step below {bound:.3g}."))


class AssumptionError(PenchantError):
    """Assumptions of a theorem that a problem does not meet, each with its slack and worst offender."""

    def __init__(self, owner: str, failed: Sequence[str], fix: str):
        self.failed = tuple(failed)
        lines = "\n  ".join((f"`{owner}` is outside the assumptions of its theorems:", *failed))
        super().__init__(_said(lines, fix=f"{fix}."))


class DivergedRun(PenchantError):
    """A run that could not go on; `run` is its trajectory up to there."""

    def __init__(self, run: object, status: str, steps: int, ending: str):
        self.run = run
        super().__init__(f"The run ended as `{status}` after {steps} steps; `error.run` holds it.\n  {ending}")


class ThresholdError(PenchantError):
    """A quantity of the theory that is infinite beyond a threshold, asked for beyond it."""

    def __init__(self, quantity: str, condition: str, value: float, threshold: float):
        self.value, self.threshold = value, threshold
        text = f"{quantity} is infinite here: it needs {condition} < {threshold:g}, and that is {value:.6g}."
        fix = "the layer (c U, V/c) with c > 1 has the same population loss and smaller logits; `optimal_scale(problem)` finds the best c."
        super().__init__(_said(text, "logits so large that a few samples carry all the weight", fix=fix))
