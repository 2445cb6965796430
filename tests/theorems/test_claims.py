"""Every claim of the catalogue: its evidence has the verdict the ledger expects, and its twin is refuted."""

import pytest

from penchant.theorems.catalogue import CLAIMS, THEOREMS
from penchant.verdict import Outcome

# More than some one and a half seconds of one core, mostly compilation; claims that share such a run stand together. `penchant verify` checks them all.
SLOW = {
    "attention-regression-best-scale",
    "attention-regression-bias-gradient",
    "attention-regression-bias-leave-one-out",
    "attention-regression-bias-minimum",
    "attention-regression-bias-own-weight",
    "attention-regression-bias-regulariser",
    "attention-regression-covariates-kurtosis",
    "attention-regression-covariates-preconditioner",
    "attention-regression-equivariance",
    "attention-regression-exact-rate",
    "attention-regression-gradient-covariance",
    "attention-regression-gradient-covariance-early",
    "attention-regression-gradient-covariance-path",
    "attention-regression-guaranteed-rate",
    "attention-regression-law-ends-at-a3",
    "attention-regression-law-ends-at-half",
    "attention-regression-lemma-1",
    "attention-regression-lemma-4",
    "attention-regression-lemma-4-samples",
    "attention-regression-minibatch-floor",
    "attention-regression-minibatch-full-keys",
    "attention-regression-monotone",
    "attention-regression-oracle-bound",
    "attention-regression-oracle-bound-attained",
    "attention-regression-oracle-floor",
    "attention-regression-sample-floor",
    "attention-regression-scale-restores-law",
    "attention-regression-start-excess",
    "attention-regression-theorem-1.1",
    "deep-linear/aligned",
    "deep-linear/alignment-exponent",
    "deep-linear/balanced",
    "deep-linear/clock",
    "deep-linear/conservation",
    "deep-linear/descent",
    "deep-linear/descent-aligns",
    "deep-linear/descent-max-margin",
    "deep-linear/descent-risk",
    "deep-linear/direction-exponent",
    "deep-linear/excess-limit",
    "deep-linear/first-layer-exponent",
    "deep-linear/gradient",
    "deep-linear/idle-support",
    "deep-linear/idle-support-plain",
    "deep-linear/max-margin",
    "deep-linear/no-span",
    "deep-linear/no-span-inside",
    "deep-linear/norm-growth",
    "deep-linear/offset",
    "deep-linear/one-layer",
    "deep-linear/other-starts",
    "deep-linear/polynomial-tail",
    "deep-linear/ratio-exponent",
    "deep-linear/risk",
    "deep-linear/saddle",
    "deep-linear/single-sample",
    "deep-linear/size",
    "deep-linear/tails",
    "deep-linear/time",
    "key-query/assumption-3",
    "key-query/conserved-diagonal",
    "key-query/conserved-matrix",
    "key-query/contrast",
    "key-query/direct-rate",
    "key-query/finite-margin",
    "key-query/generic",
    "key-query/kernel-to-rich",
    "key-query/large-start",
    "key-query/lemma-4.1",
    "key-query/lemma-4.2",
    "key-query/lemma-5.1",
    "key-query/lemma-a.1",
    "key-query/narrow",
    "key-query/off-alignment",
    "key-query/rank-one-rate",
    "key-query/theorem-4.1",
    "key-query/theorem-5.1",
    "key-query/weak-duality",
    "key-query/wide-as-the-rank",
    "key-query/without-assumption-2",
    "key-query/without-assumption-3",
    "label-noise/control",
    "label-noise/hessian-trace",
    "label-noise/log-determinant",
    "label-noise/noise-off",
    "label-noise/plain-norm",
    "label-noise/product",
    "label-noise/selection",
    "label-noise/selection-leading-order",
    "label-noise/squares-limit",
    "label-noise/squares-selection",
    "label-noise/time-scale",
    "label-noise/weighted-limit",
    "label-noise/weighted-norm",
    "max-margin/deficit-constant",
    "max-margin/direction",
    "max-margin/orthogonal",
    "min-norm/closed-form",
    "min-norm/projection",
    "mirror/equal-decrease",
    "mirror/optimal-at-all-times",
    "noise/covariance",
    "noise/single-sample",
    "q-alpha/accumulated",
    "q-alpha/kernel-constants-as-printed",
    "q-alpha/kernel-limit",
    "q-alpha/three-routes",
    "q-alpha/tiny-start",
    "self-attention-joint/block-alignment",
    "self-attention-joint/lemma-12",
    "self-attention-joint/lemma-13",
    "self-attention-joint/lemma-3",
    "self-attention-joint/lemma-3-hessian",
    "self-attention-joint/optimal-tokens",
    "self-attention-joint/polyak-alignment",
    "self-attention-joint/polyak-loss",
    "self-attention-joint/support-from-orthogonality",
    "self-attention-joint/theorem-10",
    "self-attention-joint/theorem-2",
    "self-attention-joint/theorem-3",
    "self-attention-joint/theorem-3-rate",
    "self-attention-joint/theorem-3-repaired",
    "self-attention-joint/theorem-3-repaired-block",
    "self-attention-joint/theorem-3-repaired-scheduled",
    "self-attention-joint/theorem-3-softmax",
    "self-attention-joint/theorem-3-without-support",
    "self-attention-joint/theorem-4",
    "self-attention-joint/theorem-8",
    "self-attention-joint/theorem-9",
    "self-attention/acceleration",
    "self-attention/attention-slope",
    "self-attention/capped-rate",
    "self-attention/critical-length",
    "self-attention/lemma-2",
    "self-attention/lemma-5",
    "self-attention/log-space",
    "self-attention/polyak-drop",
    "self-attention/sharp-constant-flow",
    "self-attention/theorem-1",
    "self-attention/theorem-1-bound",
    "self-attention/theorem-1-rate",
    "self-attention/without-assumption-1",
    "sparse/limit-program",
    "sparse/population",
}


def marks(claim):
    """One worker per paper, because claims of a paper share their runs."""
    group = pytest.mark.xdist_group(claim.paper)
    return (group, pytest.mark.slow) if claim.name in SLOW else group


GROUPED = [pytest.param(claim, id=claim.name, marks=marks(claim)) for claim in CLAIMS]


@pytest.mark.parametrize("claim", GROUPED)
def test_evidence_has_the_expected_verdict_and_the_planted_falsehood_is_refuted(claim):
    verdict = claim.check(False)
    assert verdict.outcome is claim.expected, verdict
    twin = claim.check(True)
    assert twin.outcome is Outcome.refuted, twin


def test_names_are_unique_and_every_entry_is_sourced():
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert set(names) >= SLOW
    assert all(claim.statement and claim.citation and claim.paper for claim in CLAIMS)
    assert all(theorem.name and theorem.statement and theorem.citation for theorem in THEOREMS)
