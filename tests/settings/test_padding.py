"""Padded tokens: the same answers as without them, whatever stands in their place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.cli import main
from penchant.diagnostics.direction import log_attention_loss
from penchant.errors import ArgumentError, NonUniqueOptimalToken
from penchant.references.base import watching
from penchant.references.exact import programs
from penchant.theory.selections import locally_optimal_selections


@pytest.fixture
def arrays(rng):
    tokens, scores = rng.standard_normal((3, 3, 4)), rng.standard_normal((3, 3))
    junk = 50 * rng.standard_normal((3, 2, 4))
    mask = np.tile([True, True, False, True, False], (3, 1))
    wide = np.stack([tokens[:, 0], tokens[:, 1], junk[:, 0], tokens[:, 2], junk[:, 1]], axis=1)
    padded = np.stack([scores[:, 0], scores[:, 1], np.full(3, 9.0), scores[:, 2], np.full(3, -9.0)], axis=1)
    return tokens, scores, wide, padded, mask


@pytest.fixture
def pair(arrays):
    """The same data without and with padding in the middle and at the end."""
    tokens, scores, wide, padded, mask = arrays
    return pt.TokenSelection(tokens, scores=scores), pt.TokenSelection(wide, scores=padded, mask=mask)


def test_loss_and_its_slope_do_not_see_padding(pair, rng):
    weight = jnp.asarray(rng.standard_normal((4, 4)))
    for loss in (pt.Logistic(), pt.Exponential()):
        plain, padded = (data.weigh(data.margins(weight), loss) for data in pair)
        assert padded.log_excess == pytest.approx(float(plain.log_excess), rel=1e-14)
        slopes = [
            data.adjoint(jnp.exp(one.log_scale) * one.weights) for data, one in zip(pair, (plain, padded), strict=True)
        ]
        assert slopes[1] == pytest.approx(np.asarray(slopes[0]), rel=1e-12)


def test_samples_of_different_length_against_their_own_softmax(rng):
    tokens, scores = rng.standard_normal((2, 3, 2)), np.array([[1.0, 0.0, 7.0], [0.3, 1.0, 0.5]])
    data = pt.TokenSelection(tokens, scores=scores, mask=[[1, 1, 0], [1, 1, 1]])
    weight = jnp.asarray(rng.standard_normal((2, 2)))
    logits = np.einsum("ntd,de,ne->nt", tokens, weight, tokens[:, 0])
    shares = [np.asarray(jax.nn.softmax(jnp.asarray(logits[i, :length]))) for i, length in enumerate((2, 3))]
    excess = sum(
        np.log1p(np.exp(-share @ scores[i, : len(share)])) - np.log1p(np.exp(-1)) for i, share in enumerate(shares)
    )
    assert float(jnp.exp(data.weigh(data.margins(weight), pt.Logistic()).log_excess)) == pytest.approx(excess)
    assert np.exp(np.asarray(data.log_attention(data.margins(weight))))[0] == pytest.approx([*shares[0], 0.0])


@pytest.mark.parametrize(
    "solve",
    [
        pt.references.max_margin,
        pt.references.nuclear_margin,
        lambda data: pt.references.diagonal_margin(pt.settings.DiagonalTokens(data)),
    ],
)
def test_references_constrain_real_tokens_alone(pair, solve):
    with watching() as calls:
        plain, padded = (solve(data) for data in pair)
    assert padded.value == pytest.approx(plain.value, rel=1e-8)
    assert padded.weight == pytest.approx(plain.weight, abs=1e-6)
    proofs = [prove() for found, prove in programs(calls) if found.norm == plain.norm]
    assert proofs[0].upper == pytest.approx(proofs[1].upper, rel=1e-8)


@pytest.mark.parametrize("form", [pt.Direct(), pt.KeyQuery()])
def test_predictions_and_runs_are_those_of_the_real_tokens(pair, form):
    settings = [pt.Setting(data, form, pt.Exponential()) for data in pair]
    plain, padded = (pt.predict(setting, pt.GradientFlow(), setting.start(0, 1e-2)) for setting in settings)
    for one, other in zip(plain.hypotheses, padded.hypotheses, strict=True):
        assert (one.name, one.holds) == (other.name, other.holds)
    runs = [pt.train(one, pt.gradient_descent(0.1), one.start(0, 1e-2), steps=20) for one in settings]
    assert runs[1].weight() == pytest.approx(runs[0].weight(), rel=1e-10)
    assert log_attention_loss(runs[1]) == pytest.approx(log_attention_loss(runs[0]), rel=1e-10)
    found = [pt.theory.detect_limit(run) for run in runs]
    assert found[1].kind == found[0].kind


def test_padding_is_never_selected(pair):
    plain, padded = ([one.tokens for one in locally_optimal_selections(data)] for data in pair)
    places = np.array([0, 1, 3])
    assert padded == [tuple(places[list(tokens)]) for tokens in plain]


def test_the_default_query_is_a_token(rng):
    tokens = rng.standard_normal((1, 3, 2))
    data = pt.TokenSelection(tokens, scores=[[5.0, 1.0, 0.0]], mask=[[False, True, True]])
    assert np.asarray(data.queries)[0].tolist() == tokens[0, 1].tolist()
    assert data.optimal.tolist() == [1]


def test_a_tie_names_no_padding():
    tokens, scores, mask = [[[1.0], [2.0], [3.0]]], [[5.0, 1.0, 1.0]], [[False, True, True]]
    with pytest.raises(NonUniqueOptimalToken, match=r"tokens \[1, 2\]"):
        pt.TokenSelection(tokens, scores=scores, mask=mask)


@pytest.mark.parametrize("mask", [[[1, 0, 0]], [[1, 1]], [[1, 1, 0.5]], "mask", [[0, 0, 0]]])
def test_masks_that_make_no_sense(mask):
    with pytest.raises(ArgumentError, match="mask"):
        pt.TokenSelection(np.ones((1, 3, 2)), scores=[[1.0, 0.0, 0.0]], mask=mask)


def test_a_mask_in_a_file(arrays, tmp_path, capsys):
    tokens, scores, wide, padded, mask = arrays
    np.savez(tmp_path / "plain.npz", tokens=tokens, scores=scores)
    np.savez(tmp_path / "padded.npz", tokens=wide, scores=padded, mask=mask, labels=np.ones(3), head=np.ones(4))
    shown = []
    for name in ("plain", "padded"):
        assert main(["predict", str(tmp_path / f"{name}.npz"), "--setting", "attention"]) == 0
        shown.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("reference")])
    assert shown[0] == shown[1]
    assert main(["predict", str(tmp_path / "padded.npz"), "--joint"]) == 2
    assert "no padding" in capsys.readouterr().err
