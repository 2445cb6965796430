"""Bad data: typed errors that name the argument and the value."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, DegenerateSample, NonUniqueOptimalToken, PenchantError
from penchant.settings.generators import local_pair, random_tokens, separable, signal_tokens

TOKENS = np.arange(12.0).reshape(2, 3, 2) + 1
LABELS, HEAD = [1, -1], [1.0, 0.5]
NAN = np.where(np.arange(12).reshape(2, 3, 2) == 7, np.nan, TOKENS)
INPUTS = [[1.0, 2.0], [3.0, 4.0]]
DATA = pt.Classification(INPUTS, [1, 1])

# call, argument named in the error, what must be in the text
CASES = {
    "tokens not 3-d": (lambda: pt.TokenSelection(TOKENS[0], LABELS, HEAD), "tokens", "(3, 2)"),
    "tokens with nan": (lambda: pt.TokenSelection(NAN, LABELS, HEAD), "tokens", "nan at (1, 0, 1)"),
    "tokens with inf": (
        lambda: pt.TokenSelection(np.where(NAN == NAN, TOKENS, np.inf), LABELS, HEAD),
        "tokens",
        "inf at (1, 0, 1)",
    ),
    "one token": (lambda: pt.TokenSelection(TOKENS[:, :1], LABELS, HEAD), "tokens", "T = 1"),
    "no sample": (lambda: pt.TokenSelection(TOKENS[:0], [], HEAD), "tokens", "(0, 3, 2)"),
    "ragged tokens": (
        lambda: pt.TokenSelection([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0]]], LABELS, HEAD),
        "tokens",
        "ragged",
    ),
    "masked tokens": (
        lambda: pt.TokenSelection(np.ma.masked_equal(TOKENS, TOKENS[0, 0, 0]), LABELS, HEAD),
        "tokens",
        "masked",
    ),
    "complex tokens": (lambda: pt.TokenSelection(TOKENS * 1j, LABELS, HEAD), "tokens", "complex128"),
    "tokens of words": (lambda: pt.TokenSelection([[["a", "b"], ["c", "d"]]], [1], HEAD), "tokens", "dtype"),
    "huge tokens": (lambda: pt.TokenSelection(TOKENS * 1e120, LABELS, HEAD), "tokens", "e+121"),
    "label 0": (lambda: pt.TokenSelection(TOKENS, [0, 1], HEAD), "labels", "0 at index 0"),
    "label nan": (lambda: pt.TokenSelection(TOKENS, [np.nan, 1], HEAD), "labels", "nan"),
    "too few labels": (lambda: pt.TokenSelection(TOKENS, [1], HEAD), "labels", "1"),
    "no labels": (lambda: pt.TokenSelection(TOKENS, head=HEAD), "labels", "None"),
    "no head": (lambda: pt.TokenSelection(TOKENS, LABELS), "head", "None"),
    "long head": (lambda: pt.TokenSelection(TOKENS, LABELS, [1.0, 2.0, 3.0]), "head", "length 3"),
    "head of zeros": (lambda: pt.TokenSelection(TOKENS, LABELS, [0.0, 0.0]), "head", "only zeros"),
    "scores of wrong shape": (lambda: pt.TokenSelection(TOKENS, scores=[[1.0, 2.0]]), "scores", "(1, 2)"),
    "too few queries": (lambda: pt.TokenSelection(TOKENS, LABELS, HEAD, queries=[[1.0, 2.0]]), "queries", "1"),
    "unknown ties": (lambda: pt.TokenSelection(TOKENS, LABELS, HEAD, ties="drop"), "ties", "'drop'"),
    "selection out of range": (lambda: local_pair().select([0, 2]), "selection", "[0, 2]"),
    "selection too short": (lambda: local_pair().select([0]), "selection", "[0]"),
    "selection of floats": (lambda: local_pair().select([0.0, 1.0]), "selection", "[0.0, 1.0]"),
    "inputs not 2-d": (lambda: pt.Classification([1.0, 2.0], [1, 1]), "inputs", "(2,)"),
    "inputs with nan": (lambda: pt.Classification([[1.0, np.nan]], [1]), "inputs", "nan at (0, 1)"),
    "no inputs": (lambda: pt.Classification(np.zeros((0, 2)), []), "inputs", "(0, 2)"),
    "zero inputs": (lambda: pt.Classification(np.zeros((3, 2)), [1, 1, -1]), "inputs", "only zeros"),
    "labels of 0 and 1": (lambda: pt.Classification(INPUTS, [0, 1]), "labels", "2 * labels - 1"),
    "label 2": (lambda: pt.Classification(INPUTS, [1, 2]), "labels", "2 at index 1"),
    "labels None": (lambda: pt.Classification(INPUTS, None), "labels", "dtype"),
    "too many labels": (lambda: pt.Classification(INPUTS, [1, 1, 1]), "labels", "3"),
    "unbounded loss": (lambda: pt.Setting(DATA, pt.Direct(), pt.settings.Correlation()), "loss", "Correlation"),
    "unknown reduction": (lambda: pt.Setting(DATA, pt.Direct(), pt.Exponential(), "max"), "reduction", "'max'"),
    "scale of zero": (lambda: pt.Setting(DATA, pt.Direct(), pt.Exponential()).start(seed=0, scale=0.0), "scale", "0.0"),
    "seed with gram": (
        lambda: pt.Setting(DATA, pt.settings.Gram(DATA), pt.Exponential()).start(seed=0),
        "seed",
        "origin",
    ),
    "masked step": (lambda: pt.Adam(np.ma.masked_array([0.1, 0.2], [True, False]), 0.0), "step", "MaskedArray"),
    "ragged count": (lambda: pt.settings.q_alpha(0.1, [[1.0], [2.0, 3.0]]), "d", "list"),
    "negative seed": (lambda: pt.Setting(DATA, pt.Direct(), pt.Exponential()).start(seed=-1), "seed", "-1"),
    "origin of wrong shape": (lambda: pt.settings.Gram(DATA, np.zeros(3)), "origin", "(3,)"),
    "origin with nan": (lambda: pt.settings.Gram(DATA, [np.nan, 0.0]), "origin", "nan"),
    "primal of wrong shape": (lambda: pt.bracket(DATA, [1.0, 2.0, 3.0], [1.0, 1.0]), "primal", "(3,)"),
    "dual of wrong shape": (lambda: pt.bracket(DATA, [1.0, 2.0], [1.0]), "dual", "(1,)"),
    "no samples to generate": (lambda: signal_tokens(n=0), "n", "0"),
    "one token to generate": (lambda: signal_tokens(length=1), "length", "Got 1"),
    "no noise": (lambda: signal_tokens(noise=0.0), "noise", "0.0"),
    "unknown position": (lambda: signal_tokens(position="last"), "position", "'last'"),
    "no dimension": (lambda: separable(3, 0), "d", "0"),
    "no gap": (lambda: local_pair(1.0, 0.0), "second", "0.0"),
    "no tokens to generate": (lambda: random_tokens(3, 1, 3, 0), "length", "Got 1"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_argument_is_named_with_its_value(name):
    call, argument, found = CASES[name]
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == argument
    assert f"The '{argument}' argument of" in str(caught.value)
    assert found in str(caught.value)


def test_a_zero_query_is_a_degenerate_sample():
    tokens = TOKENS.copy()
    tokens[1, 0] = 0
    with pytest.raises(DegenerateSample, match="Sample 1") as caught:
        pt.TokenSelection(tokens, LABELS, HEAD)
    assert caught.value.sample == 1


def test_a_tie_names_sample_and_tokens():
    with pytest.raises(NonUniqueOptimalToken, match="Sample 1") as caught:
        pt.TokenSelection(TOKENS, scores=[[1.0, 0.0, 0.0], [0.0, 2.0, 2.0]])
    assert (caught.value.sample, caught.value.tokens, caught.value.gap) == (1, (1, 2), 0.0)


def test_all_samples_with_ties_are_named():
    tokens = np.concatenate([TOKENS, TOKENS + 1])
    scores = [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 2.0, 2.0]]
    with pytest.raises(NonUniqueOptimalToken, match="samples 2, 3") as caught:
        pt.TokenSelection(tokens, scores=scores)
    assert caught.value.samples == (0, 2, 3)


@pytest.mark.parametrize("name", ["tokens", "queries", "scores"])
def test_arrays_of_fewer_digits_are_a_warning(name):
    arrays = {"tokens": TOKENS, "queries": TOKENS[:, 0], "scores": np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0]])}
    with pytest.warns(pt.errors.PenchantWarning, match=f"given {name} in less than float64"):
        found = pt.TokenSelection(**{**arrays, name: arrays[name].astype(np.float32)})
    assert found.tokens.dtype == np.float64


def test_a_near_tie_is_a_tie():
    with pytest.raises(NonUniqueOptimalToken):
        pt.TokenSelection(TOKENS[:1], scores=[[1.0, 1.0 - 1e-12, 0.0]])


def test_a_sample_of_ties_only_is_refused_even_when_ties_are_kept():
    with pytest.raises(NonUniqueOptimalToken, match="Sample 0"):
        pt.TokenSelection(TOKENS[:1], scores=[[1.0, 1.0, 1.0]], ties="keep")


def test_kept_ties_have_no_deficit_and_no_constraint():
    data = pt.TokenSelection(TOKENS[:1], scores=[[1.0, 1.0, 0.0]], ties="keep")
    assert np.asarray(data.deficits()).tolist() == [[0.0, 1.0]]
    assert data.constrained().tolist() == [False, True]


def test_large_scores_are_fine_in_logarithms():
    data = pt.TokenSelection(TOKENS[:1], scores=[[900.0, -900.0, 100.0]])
    run = pt.train(pt.Setting(data, pt.Direct(), pt.Exponential()), pt.normalised_descent(0.1), steps=20)
    assert np.isfinite(run.log_excess).all()
    assert run.status.name == "out_of_steps"


EXTREME = {
    "classification": (
        lambda scale: pt.Classification(scale * np.array([[2.0, 0.0], [0.0, 1.0]]), [1, 1]),
        1,
        np.sqrt(5) / 2,
    ),
    "tokens": (
        lambda scale: pt.TokenSelection(scale * np.array([[[1.0, 0.0], [0.0, 1.0]]]), scores=[[1.0, 0.0]]),
        2,
        np.sqrt(0.5),
    ),
}


def value_or_refusal(make, scale):
    """The reference norm, or the `ArgumentError` that refuses the data; any other error is a failure."""
    try:
        return pt.references.max_margin(make(scale)).value
    except ArgumentError as error:
        return error


@pytest.mark.parametrize("scale", [1e-170, 1e-90, 1e-60, 1e60, 1e90])
@pytest.mark.parametrize("name", EXTREME)
def test_extreme_scales_are_solved_or_refused_but_never_called_infeasible(name, scale):
    make, power, wanted = EXTREME[name]
    found = value_or_refusal(make, scale)
    assert isinstance(found, ArgumentError) or found * scale**power == pytest.approx(wanted, rel=1e-9)


def test_every_error_is_a_penchant_error_and_a_value_error():
    for kind in (ArgumentError, DegenerateSample, NonUniqueOptimalToken):
        assert issubclass(kind, PenchantError)
        assert issubclass(kind, ValueError)
