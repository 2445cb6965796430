"""What happens where the key-query theorems assume: generic data and starts, narrow heads, large starts, unequal scores."""

import numpy as np

from ..flow.flow import GradientFlow
from ..references.diagonal_margin import diagonal_margin
from ..settings.attention_generators import contrary_pair, equal_score_tokens
from ..settings.base import Setting
from ..settings.diagonal import DiagonalTokens
from ..settings.factored import Hadamard
from ..settings.losses import Exponential
from ..settings.tokens import TokenSelection
from ..training.events import LogTimeAbove, MarginAbove
from ..training.train import train
from ..verdict import Verdict, all_of, at_most, close
from .base import Claim
from .key_query import SHEEN, excess
from .key_query_runs import STEPS, matrix_run

PAPER = "kq_attention"


def generic_data(planted: bool) -> Verdict:
    """Without alignment of data or start the flow still minimises the nuclear norm (8 data sets). Planted: width 1."""
    if planted:
        return _generic(1, width=1)
    return all_of(*(_generic(seed) for seed in range(8)))


def _generic(seed: int, width: int = 5) -> Verdict:
    run, reference = matrix_run(seed, 0.1, width, 0 if width == 1 else None)
    return at_most(
        excess(run.setting.data, run.weight(), reference),
        1e-2,
        f"nuclear excess at margin 1e6, data {seed}, width {width}",
    )


def without_assumption3(planted: bool) -> Verdict:
    """Where Assumption 3 fails the flow can stay above the infimum; it need not. Planted: it always does."""
    checks = []
    for gaps, others, stuck in (
        ((6.0, 1.0), (0.0, 0.0), False),
        ((6.0, 3.0), (-3.0, 0.0), planted),
        ((6.0, 1.0), (-3.0, 0.0), True),
    ):
        data = DiagonalTokens(contrary_pair(gaps, others))
        start = Hadamard().one_sided(data, 0.1, np.random.default_rng(0))
        run = train(
            Setting(data, Hadamard(), Exponential()),
            GradientFlow(),
            start,
            until=(MarginAbove(1e2), LogTimeAbove(40.0)),
            steps=2000,
        )
        final, plateau = (
            float(run.log_excess[-1]),
            float(np.log((np.exp(-others[1]) - np.exp(-others[1] - gaps[1])) / 2)),
        )
        what = f"log(L - L*) at the end, gaps {gaps}, other scores {others}"
        checks.append(close(final, plateau, 1e-3, what) if stuck else at_most(final, -20.0, what))
    return all_of(*checks)


def without_equal_scores(planted: bool) -> Verdict:
    """Unequal non-optimal scores leave the limit unchanged: same l1 value. Planted: other tokens, another optimum."""
    base = equal_score_tokens(4, 4, 12, 5)
    spread = np.random.default_rng(0).uniform(-2.0, 0.0, base.scores.shape)
    scores = np.where(np.asarray(base.scores) > 1, base.scores, base.scores + spread)
    data = DiagonalTokens(TokenSelection(base.tokens, queries=base.queries, scores=scores))
    start = Hadamard().one_sided(data, 1.0, np.random.default_rng(0))
    run = train(Setting(data, Hadamard(), Exponential()), GradientFlow(), start, until=MarginAbove(1e6), steps=STEPS)
    reference = diagonal_margin(DiagonalTokens(equal_score_tokens(4, 4, 12, 6)) if planted else data)
    measured = float(np.abs(run.weight()).sum() / run.smallest_margin()[-1])
    return close(
        measured, reference.value, 1e-3, "l1 norm at margin 1 against its minimum, non-optimal scores spread over 2"
    )


_T = f"{SHEEN}, "
CLAIMS = tuple(
    Claim(f"key-query/{name}", PAPER, statement, citation, check)
    for name, statement, citation, check in (
        (
            "generic",
            "The nuclear norm is minimised without alignment of data or start.",
            "conjecture, not in the paper",
            generic_data,
        ),
        (
            "without-assumption-3",
            "Without Assumption 3 the flow may end on a plateau, and may not.",
            _T + "Assumption 3",
            without_assumption3,
        ),
        (
            "without-assumption-2",
            "Unequal non-optimal scores do not change the limit.",
            "observed",
            without_equal_scores,
        ),
    )
)
