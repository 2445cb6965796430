"""Errors planted on purpose, one at a time: which of them do the claims of the ledger notice, which do the tests, which does nobody?

`python -m benchmarks.mutants` plants every error in a copy of the source, checks the claims that speak about it (as `penchant verify --claim` does, nothing kept
from before) and the fast tests that should see it, and writes benchmarks/mutants.json and benchmarks/MUTANTS.md; names after it choose some errors,
`none` is the source without any, on which every claim and test must be green. An error counts as caught by the ledger where a claim does not get the verdict it
is known to get, or its twin is not refuted; by the tests where one fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KEPT, TABLE = ROOT / "benchmarks" / "mutants.json", ROOT / "benchmarks" / "MUTANTS.md"
SECONDS = 600


class Mutant(NamedTuple):
    """`old` occurs once in `file` (under src/penchant) and becomes `new`; `claims` by id, `tests` as arguments of pytest, both separated by spaces."""

    name: str
    what: str
    file: str
    old: str
    new: str
    claims: str = ""
    tests: str = ""


_AR, _GEOMETRY = "papers/attention_regression/setting/", "papers/attention_regression/setting/geometry.py"
_CONDITIONS = "theory/selections.py"
_EDGES = "tests/papers/test_boundaries.py"

MUTANTS = (
    # The seven that an earlier trial of fifty errors saw escape both.
    Mutant(
        "lenient-judge",
        "a direction is confirmed at 1 - corr 0.5",
        "theory/judge.py",
        "bound = min(1e-2, prediction.separation / 10)",
        "bound = min(0.5, prediction.separation / 10)",
        "self-attention-joint/theorem-3",
        f"{_EDGES} -k direction",
    ),
    Mutant(
        "gram-without-start",
        "the start outside the span is ignored in 1 - corr of the Gram form",
        "diagnostics/direction.py",
        " + frozen / norm[:, 0] ** 2)",
        " + 0 * frozen)",
        "self-attention/theorem-1-any-start",
        f"{_EDGES} -k gram_form",
    ),
    Mutant(
        "heavy-ball-multipliers",
        "the multipliers of heavy ball are not mixed as its steps are",
        "optimisers/base.py",
        "step, dual = steps = self.after.mix((step, dual), steps)",
        "step, _ = steps = self.after.mix((step, dual), steps)",
        "min-norm/projection",
        "tests/references/test_bracket.py -k dual_of_a_run",
    ),
    Mutant(
        "short-steps",
        "the bound on the length of normalised steps is twice as large",
        _CONDITIONS,
        '    bound = longest_step(data)\n    return at_least_zero("short_steps"',
        '    bound = 2 * longest_step(data)\n    return at_least_zero("short_steps"',
        "self-attention/step-bounds",
        f"{_EDGES} -k steps_of_token",
    ),
    Mutant(
        "small-step-size",
        "the longest possible step of gradient descent is half as long",
        _CONDITIONS,
        "longest, worst = float(step * 0.5 * token_bound",
        "longest, worst = float(step * 0.25 * token_bound",
        "self-attention/step-bounds",
        f"{_EDGES} -k steps_of_token",
    ),
    Mutant(
        "stable-polyak",
        "Polyak's step is called stable up to chi / c = 4",
        _CONDITIONS,
        "ratio < 2, 2 - ratio",
        "ratio < 4, 4 - ratio",
        "self-attention/polyak-multiplier",
        f"{_EDGES} -k polyak",
    ),
    Mutant(
        "floor-without-start",
        "the alignment floor of Lemmas 2 and 8 lacks |W_k(0)|^2",
        "diagnostics/alignment.py",
        "extra[k] + top[k + 1] + top[k]) / now",
        "extra[k] + top[k + 1]) / now",
        "deep-linear/flow-bounds",
        f"{_EDGES} -k alignment_floor",
    ),
    # Those that tests alone, or claims alone, used to see.
    Mutant(
        "momentum-small",
        "the coefficient of momentum is 5 % small",
        "optimisers/step_rules.py",
        "self.beta * v + s",
        "0.95 * self.beta * v + s",
        "self-attention/heavy-ball",
        "tests/optimisers/test_against_plain_loops.py -k momentum",
    ),
    Mutant(
        "polyak-long",
        "Polyak's step, also that of joint training, is twice too long",
        "optimisers/step_rules.py",
        "/ (self.c * dual_norm**2)",
        "/ (0.5 * self.c * dual_norm**2)",
        "self-attention/polyak-multiplier",
        "tests/optimisers/test_against_plain_loops.py -k polyak",
    ),
    Mutant(
        "inverted-holds",
        "a condition holds where its slack is negative",
        "theory/base.py",
        "bool(slack >= 0), float(slack)",
        "bool(slack <= 0), float(slack)",
        "self-attention/step-bounds",
        f"{_EDGES} -k slack",
    ),
    Mutant(
        "adam-bias",
        "Adam corrects the bias of its squares with the beta of the mean",
        "optimisers/base.py",
        "jnp.log1p(-(self.b2 ** (count + 1.0)))",
        "jnp.log1p(-(self.b1 ** (count + 1.0)))",
        "key-query/sign-descent",
        "tests/optimisers/test_against_plain_loops.py -k adam",
    ),
    Mutant(
        "smoothness-halved",
        "the sharp bound on the curvature of deep linear networks is halved",
        "optimisers/layerwise.py",
        "cast(Radius, beta * depth * radius ** (2 * depth - 2) + slope * (depth - 1)",
        "cast(Radius, 0.5 * beta * depth * radius ** (2 * depth - 2) + 0.5 * slope * (depth - 1)",
        "deep-linear/smoothness",
        "tests/optimisers/test_layerwise.py -k plain_loop",
    ),
    Mutant(
        "joint-gradient-doubled",
        "the gradient of joint training by W is doubled",
        "settings/joint.py",
        "push = sign * jnp.exp(log_weights - ",
        "push = 2 * sign * jnp.exp(log_weights - ",
        "self-attention-joint/lemma-3-hessian",
        "tests/settings/test_joint_tokens.py -k automatic",
    ),
    Mutant(
        "logistic-first-order",
        "the excess of the logistic loss over its infimum to first order only",
        "settings/losses.py",
        "return log_softplus(-softplus(best) + _log_expm1(log_deficit))",
        "return -softplus(best) + _log_expm1(log_deficit)",
        "self-attention/theorem-6",
        "tests/settings/test_settings.py -k log_gap",
    ),
    # Attention with a fixed decoder.
    Mutant(
        "longest-token",
        "B is the length of the mean token",
        _CONDITIONS,
        "np.linalg.norm(data.tokens, axis=-1).max(), np.linalg.norm(data.queries, axis=-1).max()",
        "np.linalg.norm(data.tokens, axis=-1).mean(), np.linalg.norm(data.queries, axis=-1).mean()",
        "self-attention/step-bounds",
        "tests/papers/test_attention_conditions.py -k floor",
    ),
    Mutant(
        "attention-floor",
        "the floor of attention forgets the factor 2 of a pair of tokens",
        _CONDITIONS,
        "expit(-2 * token_bound",
        "expit(-token_bound",
        "self-attention/step-bounds",
        "tests/papers/test_attention_conditions.py -k floor",
    ),
    Mutant(
        "orthogonality-constant",
        "Assumption 1 token by token with 2nT in place of 4nT",
        _CONDITIONS,
        "ratio = 4 * n * length * np.abs(gram)",
        "ratio = 2 * n * length * np.abs(gram)",
        "self-attention/lemma-8",
        f"{_EDGES} -k nearly_orthogonal",
    ),
    Mutant(
        "pairs-weakest",
        "Assumption 1 in pairs takes the strongest push of a sample for its weakest",
        _CONDITIONS,
        "weakest = force(np.linspace(floor, 0.5, 4001)).min(axis=1)",
        "weakest = force(np.linspace(floor, 0.5, 4001)).max(axis=1)",
        "self-attention/assumption-1-pairs",
        "tests/papers/test_attention_conditions.py -k pairwise",
    ),
    Mutant(
        "stability-number",
        "chi is that of the curvature with the limit direction left in",
        _CONDITIONS,
        "gram * root[None, :] - np.outer(root, root) / reference.value**2",
        "gram * root[None, :]",
        "self-attention/polyak-multiplier",
        f"{_EDGES} -k polyak",
    ),
    Mutant(
        "decay-late",
        "the schedule of joint training begins one step late",
        "optimisers/step_rules.py",
        "self.length * (count + 1.0) ** -self.decay",
        "self.length * (count + 2.0) ** -self.decay",
        "self-attention-joint/lemma-12",
        "tests/training/test_joint_training.py -k plain_dense",
    ),
    Mutant(
        "joint-step-bound",
        "Condition C4 allows steps of 1/(2 B^2)",
        "papers/self_attention/theorems.py",
        "bound = 1 / (4 * longest_token(data) ** 2)",
        "bound = 1 / (2 * longest_token(data) ** 2)",
        "self-attention/step-bounds",
        f"{_EDGES} -k elsewhere",
    ),
    # Linear models and the lecture notes.
    Mutant(
        "norm-start",
        "the interpolant nearest to a start forgets what the start predicts",
        "references/interpolation.py",
        "((targets - inputs @ start) / units)",
        "(targets / units)",
        "min-norm/projection",
        "tests/references/test_interpolation.py -k projection",
    ),
    Mutant(
        "hyperbolic-scale",
        "the potential of signed squares has arcsinh(z) for arcsinh(z/2) in its slope",
        "settings/potentials.py",
        "np.arcsinh(np.exp(np.where(far, 0.0, log_ratio)) / 2))",
        "np.arcsinh(np.exp(np.where(far, 0.0, log_ratio))))",
        "q-alpha/three-routes",
        "tests/settings/test_potentials.py -k inverts",
    ),
    Mutant(
        "power-rate",
        "the potential of depth D moves at rate D instead of D^2",
        "settings/potentials.py",
        "float(self.depth**2 * np.exp((1 - 2 / self.depth)",
        "float(self.depth * np.exp((1 - 2 / self.depth)",
        "depth/three-routes",
        "tests/settings/test_potentials.py -k speed",
    ),
    Mutant(
        "isometry-samples",
        "the restricted isometry divides by n - 1",
        "diagnostics/sparsity.py",
        "excess = rows.T @ rows / n - np.eye(d)",
        "excess = rows.T @ rows / (n - 1) - np.eye(d)",
        "sparse/coordinates",
        "tests/diagnostics/test_covariance.py -k bounds_hold",
    ),
    Mutant(
        "noise-discrete",
        "the stationary variance is that of the diffusion",
        "diagnostics/noise.py",
        "return np.where(same, total - product, 2 - total + product)",
        "return np.where(same, total, 2 - total)",
        "noise/variance noise/diffusion-limit",
        "tests/diagnostics/test_covariance.py -k stationary_covariance",
    ),
    Mutant(
        "noise-clock",
        "the diffusion forgets at half its rate",
        "diagnostics/noise.py",
        "(basis * np.exp(-sizes * time)) @ basis.T",
        "(basis * np.exp(-sizes * time / 2)) @ basis.T",
        "noise/diffusion-limit",
        "tests/diagnostics/test_relaxation.py -k lags",
    ),
    Mutant(
        "label-noise-second-order",
        "label noise shrinks w by half of what it does",
        "training/noise.py",
        "- 2 * (step**2 * square)[None]",
        "- (step**2 * square)[None]",
        "label-noise/leading-order",
        "tests/training/test_noise_law.py -k plain_simulation",
    ),
    Mutant(
        "smooth-margin-sum",
        "the exponential loss of a classification is a mean where the sum is asked for",
        "diagnostics/direction.py",
        "return -run.log_excess / sizes(run)",
        "return -(run.log_excess - np.log(run.margins.shape[1])) / sizes(run)",
        "max-margin/direction max-margin/direction-constant max-margin/smooth-margin",
        "tests/diagnostics/test_diagnostics.py -k margins_per_norm",
    ),
    Mutant(
        "gradient-split",
        "the part of the gradient that correlated columns add has the other sign",
        "diagnostics/sparsity.py",
        "u = (signal**2 - 1)[:, None] * (np.eye(len(gram))[0] - gram[0])",
        "u = (signal**2 - 1)[:, None] * (gram[0] - np.eye(len(gram))[0])",
        "sparse/decomposition",
        "tests/papers/test_recovery_hypotheses.py",
    ),
    # Deep linear networks.
    Mutant(
        "imbalance-constant",
        "D adds Frobenius norms that are not squared",
        "settings/deep_linear.py",
        "squares = [float(np.sum(np.asarray(layer) ** 2)) for layer in layers]",
        "squares = [float(np.linalg.norm(np.asarray(layer))) for layer in layers]",
        "deep-linear/flow-bounds",
        f"{_EDGES} -k alignment_floor",
    ),
    Mutant(
        "pull-back-threshold",
        "the sharp threshold of Lemma 4 has n - 2 for n",
        "references/support_geometry.py",
        '"sharp": lambertw(samples / np.e).real',
        '"sharp": lambertw((samples - 2) / np.e).real',
        "deep-linear/pull-back deep-linear/pull-back-attained",
        "tests/references/test_support_geometry.py -k strips",
    ),
    Mutant(
        "account-traces",
        "the account of layer descent adds lengths for their squares",
        "optimisers/layerwise.py",
        "memory.traces + factor**2 * squares",
        "memory.traces + factor * squares",
        "deep-linear/lemma-8",
        "tests/optimisers/test_layerwise.py -k imbalances",
    ),
    Mutant(
        "alignment-excess",
        "the excess of a layer leaves out its second singular value",
        "diagnostics/alignment.py",
        "np.sum(values[1:] ** 2) for _, values, _ in parts",
        "np.sum(values[2:] ** 2) for _, values, _ in parts",
        "deep-linear/flow-bounds",
        "tests/diagnostics/test_alignment.py -k digits",
    ),
    # Attention that learns a linear map.
    Mutant(
        "balance-weight",
        "the regulariser has the weight 1/2 with the gradient of 1/4",
        _AR + "problem.py",
        "return 0.25 * jnp.sum((upper.T @ upper - lower.T @ lower) ** 2)",
        "return 0.5 * jnp.sum((upper.T @ upper - lower.T @ lower) ** 2)",
        "attention-regression/lemma-2 attention-regression/theorem-1.2",
        "tests/settings/test_attention_regression.py -k derivatives",
    ),
    Mutant(
        "contraction-alpha",
        "one-point convexity loses r^2 where it loses 5/4 r^2",
        _GEOMETRY,
        "- 1.25 * wide**2 * radius**2",
        "- 1.0 * wide**2 * radius**2",
        "attention-regression/theorem-1.3",
        "tests/settings/test_attention_regression.py -k constants",
    ),
    Mutant(
        "contraction-beta",
        "smoothness with 2 sqrt(2 s_1) r for 3 sqrt(2 s_1) r",
        _GEOMETRY,
        "4 * top + 3 * np.sqrt(2 * top) * length",
        "4 * top + 2 * np.sqrt(2 * top) * length",
        "attention-regression/theorem-1.3 attention-regression/lemma-2",
        "tests/settings/test_attention_regression.py -k constants",
    ),
    Mutant(
        "moment-threshold",
        "Assumption 3 with 1/(2 p^2)",
        _AR + "sample.py",
        "return 1 / (4 * power**2)",
        "return 1 / (2 * power**2)",
        "attention-regression/lemma-7",
        "tests/settings/test_attention_sample.py",
    ),
    Mutant(
        "component-flip",
        "the other component of the minima is taken by the strongest direction, not the weakest",
        _AR + "balanced_minima.py",
        "left = np.concatenate([left[:, :-1], -left[:, -1:]], axis=1)",
        "left = np.concatenate([-left[:, :1], left[:, 1:]], axis=1)",
        "attention-regression/two-components",
        "tests/references/test_balanced_minima.py",
    ),
    Mutant(
        "adaptive-step",
        "the adaptive step is a quarter too long",
        "papers/attention_regression/training/steps.py",
        "return 1 / (self.stretch * (3 * square + 2 * self.largest))",
        "return 1.25 / (self.stretch * (3 * square + 2 * self.largest))",
        "",
        "tests/optimisers/test_preconditioned.py -k safe_step",
    ),
)


def plant(mutant: Mutant | None, folder: Path) -> None:
    """A copy of the source with the error in it."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is None:
        return
    file = folder / "src" / "penchant" / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: the old text occurs {text.count(mutant.old)} times in {mutant.file}")
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def _call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{ROOT}", "PENCHANT_CACHE": "off"}
    environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))  # by program, not by source
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
    )


# What `verify --claim` does with a claim, in one process and with nothing kept.
LEDGER = """
import json, sys
from penchant.commands.claims import check
from penchant.commands.verify import find_claims
from penchant.papers import PAPERS, new_lab
labs = {paper.name: new_lab() for paper in PAPERS}
rows = [check(claim, paper, labs[paper.name]) for paper, claim in find_claims(sys.argv[1:], PAPERS)]
print(json.dumps([row["claim"] for row in rows if row["verdict"] != row["expected"] or row["twin"] != "refuted"]))
"""


def ledger(folder: Path, claims: list[str]) -> list[str]:
    """The claims that are not as expected."""
    if not claims:
        return []
    found = _call(folder, "-c", LEDGER, *claims)
    if found.returncode:
        raise SystemExit(found.stderr[-2000:])
    return json.loads(found.stdout.splitlines()[-1])


def failing(folder: Path, tests: str) -> list[str]:
    """The first test that fails."""
    if not tests:
        return []
    words = tests.replace(" -k ", "\n-k\n").split("\n")
    # without the checks of types and shapes at run time, which take longer than these tests
    options = ("-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", "-o", "addopts=--strict-markers")
    found = _call(folder, "-m", "pytest", *options, *words)
    if found.returncode not in (0, 1):
        raise SystemExit(found.stdout[-2000:] + found.stderr[-2000:])
    lines = [line.split(" - ")[0] for line in found.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return [line.split("::", 1)[-1] for line in lines] if found.returncode else []


def trial(mutant: Mutant | None) -> dict:
    """What caught it."""
    claims = (mutant.claims if mutant else " ".join(one.claims for one in MUTANTS)).split()
    tests = [mutant.tests] if mutant else sorted({one.tests for one in MUTANTS if one.tests})
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        plant(mutant, Path(name))
        by_ledger = ledger(Path(name), sorted(set(claims)))
        by_tests = [test for one in tests for test in failing(Path(name), one)]
    return {"ledger": by_ledger, "tests": by_tests, "seconds": round(time.monotonic() - began, 1)}


SURVIVORS: dict[str, str] = {}  # why an error that nobody notices may stay unnoticed


def table(found: dict[str, dict]) -> str:
    rows = [(one, found[one.name]) for one in MUTANTS if one.name in found]
    ledger_count, test_count = (sum(bool(row[by]) for _, row in rows) for by in ("ledger", "tests"))
    caught = sum(bool(row["ledger"] or row["tests"]) for _, row in rows)
    text = [
        "# Errors planted on purpose",
        "",
        "Each alone, in a copy of the source, against the claims that speak about it and the fast tests that should see it"
        " (`python -m benchmarks.mutants`; the errors are data there).",
        "",
        f"{caught} of {len(rows)} caught: {ledger_count} by the ledger, {test_count} by the tests.",
        "",
        "| error | planted in | by the ledger | by the tests |",
        "|---|---|---|---|",
    ]
    for one, row in rows:
        by = [", ".join(row[kind][:2]).replace("|", r"\|") or "-" for kind in ("ledger", "tests")]
        text.append(f"| {one.what} | `{one.file}` | {by[0]} | {by[1]} |")
    survivors = [one for one, row in rows if not (row["ledger"] or row["tests"])]
    text += ["", "## Survivors", ""] if survivors else ["", "No survivors."]
    text += [f"- {one.what}: {SURVIVORS.get(one.name, 'not explained')}" for one in survivors]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="errors to plant (default: all), or none")
    options = parser.parse_args()
    known = {one.name: one for one in MUTANTS}
    for name in options.names or known:
        row = trial(None if name == "none" else known[name])
        print(
            f"{name:28} ledger: {', '.join(row['ledger']) or '-':50} tests: {', '.join(row['tests'])[:90] or '-'} ({row['seconds']} s)",
            flush=True,
        )
        if name != "none":
            kept = (json.loads(KEPT.read_text()) if KEPT.exists() else {}) | {name: row}
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
            TABLE.write_text(table(kept))


if __name__ == "__main__":
    main()
