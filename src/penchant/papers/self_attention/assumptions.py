"""Claims on the assumptions behind token selection: near-orthogonality, what happens without it, and the arithmetic."""

import numpy as np

from ...lab import Lab, claim, recipe
from ...optimisers.base import normalised_descent
from ...settings.base import Setting
from ...settings.generators import local_pair, signal_tokens
from ...settings.losses import Exponential
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory import token_hypotheses as conditions
from ...theory.selections import detect_limit
from ...training.train import train
from ...verdict import Outcome, Verdict, all_of, at_least, at_most
from .evidence import naive_gradient_error, preset
from .theorems import VASUDEVA


@claim(
    "self-attention/assumption-1-pairs",
    "Assumption 1 in pairwise form holds on Example 1 with d = 300.",
    f"{VASUDEVA}, Assumption 1",
    kind="proved",
)
def orthogonality_certified(lab: Lab, planted: bool) -> Verdict:
    """The pairwise form of Assumption 1 holds on preset E, seeds 0 to 9 (planted: on preset H, where it fails)."""
    ratios = []
    for seed in range(10):
        setting, _ = preset(lab, "H" if planted else "E", seed)
        floor = conditions.attention_floor(setting, setting.start(), 0.05)
        ratios.append(1 - conditions.near_orthogonal_pairs(setting.data, setting.loss, floor).slack)
    return at_most(max(ratios), 1.0, "largest ratio of pull to push, seeds 0-9")


@claim(
    "self-attention/assumption-1-tokens",
    "Assumption 1 token by token, with constant 4nT, holds on Example 1 with d = 300.",
    f"{VASUDEVA}, Assumption 1",
    kind="proved",
    expected=Outcome.refuted,
)
def orthogonality_tokenwise(lab: Lab, planted: bool) -> Verdict:
    """Token-wise near-orthogonality with the constant 4nT, as the paper's Assumption 1 reads, on its own data model."""
    if planted:
        tokens = np.eye(6).reshape(2, 3, 6)
        data = TokenSelection(tokens, scores=np.eye(3)[[0, 0]])
        return at_least(1 - conditions.near_orthogonal_tokens(data).slack, 1.0, "ratio on exactly orthogonal tokens")
    setting, _ = preset(lab, "E")
    return at_most(
        1 - conditions.near_orthogonal_tokens(setting.data).slack,
        1.0,
        "ratio 4nT max|<x, x'>| / min|x|^2 on preset E (d = 300)",
    )


@claim(
    "self-attention/lemma-8",
    "Example 1 in enough dimensions satisfies Assumptions 1 (token by token, constant 4nT) and 2.",
    f"{VASUDEVA}, Lemma 8, constant by us",
    kind="sharpened",
)
def assumptions_of_the_example(lab: Lab, planted: bool) -> Verdict:
    """Example 1 in enough dimensions (n = 4, T = 3, d = 40 000) meets Assumption 1 token by token and Assumption 2, on ten seeds.

    Planted: in 300 dimensions.
    """
    sets = [signal_tokens(4, 3, 300 if planted else 40_000, seed=seed) for seed in range(10)]
    orthogonality = max(1 - conditions.near_orthogonal_tokens(data).slack for data in sets)
    return all_of(
        at_most(orthogonality, 1.0, "largest ratio 4nT max|<x, x'>| / min|x|^2, seeds 0-9"),
        at_least(min(conditions.equal_scores(data).slack for data in sets), 0.0, "smallest slack of equal scores"),
    )


@claim(
    "self-attention/without-assumption-1",
    "Global convergence holds without Assumption 1.",
    f"{VASUDEVA}, discussion of Assumption 1",
    kind="proved",
    expected=Outcome.refuted,
    slow=True,
)
def without_orthogonality(lab: Lab, planted: bool) -> Verdict:
    """'Global convergence needs no near-orthogonality': two samples of two tokens say otherwise."""
    data = local_pair(1.0, 1.0 if planted else 0.1)
    setting = Setting(data, Direct(), Exponential())
    limit = detect_limit(train(setting, normalised_descent(0.05), steps=5000))
    text = f"1 - corr to W_mm after 5000 steps; the run is {limit.kind} on tokens {list(limit.tokens)}"
    if planted:
        return at_least(limit.global_misalignment, 0.5, text, "with equal score gaps the run is global")
    return at_most(
        limit.global_misalignment,
        1e-2,
        text,
        f"1 - corr {limit.misalignment:.2g} to the local direction of those tokens",
    )


@recipe
def _gradient_errors(lab: Lab, margin: float) -> tuple[float, float]:
    return naive_gradient_error(*preset(lab, "H"), margin)


@claim(
    "self-attention/log-space",
    "The gradient direction must be computed in log space beyond margin 36.",
    "numerical",
    kind="observed",
    slow=True,
)
def log_space_needed(lab: Lab, planted: bool) -> Verdict:
    """The plain gradient is wrong in its second digit at margin 36 and noise at 40; the log-space one is right even at 1e6."""
    naive, ours = zip(*(_gradient_errors(lab, margin) for margin in (36.0, 40.0, 1e6)), strict=True)
    error = max(naive if planted else ours)
    form = "plain float64" if planted else "log space"
    return all_of(
        at_most(error, 1e-9, f"largest direction error of the slope at margins 36, 40 and 1e6, {form}"),
        at_least(naive[0], 0.01, "direction error of grad(L) in plain float64 at margin 36"),
        at_least(naive[1], 0.5, "direction error of grad(L) in plain float64 at margin 40"),
    )
