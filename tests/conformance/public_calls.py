"""One valid call of every public name, small enough to be made some thousand times."""

from functools import cache

import jax.numpy as jnp
import numpy as np

import penchant as pt
from penchant.norms import L1, Linf
from penchant.papers.attention_regression.setting.geometry import Left

NOT_CALLED = {  # constants, and errors and results that penchant makes and nobody else
    *("PAPERS", "Outcome", "Status", "PenchantError", "PenchantWarning", "NotSeparableError"),
    *(
        "CriticalPointError",
        "StepSizeError",
        "DivergedRun",
        "Trajectory",
        "Reading",
        "Bracket",
        "Infimum",
        "Verdict",
        "Case",
        "Dataset",
    ),
}
INPUTS, LABELS = [[2.0, 0.5, 0.1], [0.1, -1.0, 0.3]], [1, -1]
WIDE = [[1.0, 2.0, 0.5], [0.5, -1.0, 2.0]]
TOKENS = [[[1.0, 0.0], [0.5, 1.0]], [[0.0, 1.0], [2.0, 0.5]]]
HESSIAN, NOISE = [[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.2], [0.2, 1.0]]


NORMAL = {"hessian": HESSIAN, "noise": NOISE, "step": 0.1}


def light_calls(folder):
    """Arguments by name of what computes next to nothing; files go to `folder`."""
    data, fit, polyak = pt.Classification(INPUTS, LABELS), pt.Regression(WIDE, [1.0, 2.0]), pt.polyak()
    diagonal = pt.settings.DiagonalTokens(pt.settings.contrary_pair((6.0, 1.0), (-3.0, 0.0)))
    with open(f"{folder}/points.csv", "w") as file:
        file.write("1,2,1\n-1,-3,-1\n")
    return {
        "Accelerated": {"step": 0.1},
        "Adam": {"step": 0.1, "eps": 0.0, "b1": 0.9, "b2": 0.99, "decay": 0.5},
        "Decayed": {"optimiser": pt.sign_descent(0.1), "weight_decay": 0.1},
        "Minibatches": {"optimiser": pt.sign_descent(0.1), "size": 2, "seed": 0},
        "At": {"steps": (1, 2)},
        "AttentionLayer": {"value": [[1.0, 0.0]], "key_query": [[1.0, 0.0], [0.0, 1.0]]},
        "AttentionRegression": {"covariance": HESSIAN, "planted": [[0.1, 0.0]], "noise": 0.0},
        "Balance": {},
        "BallStep": {"tight": False, "beta": 0.25, "slope": 1.0},
        "Blockwise": {"descents": (polyak, polyak)},
        "block_normalised": {"length": 0.1, "decay_u": 0.0, "decay_W": 0.0, "cap": 1.0, "length_u": 0.1},
        "Classification": {"inputs": INPUTS, "labels": LABELS, "divisor": 1.0, "single": False},
        "ConstantStep": {"step": 0.1},
        "Correlation": {},
        "CrossEntropy": {},
        "DeepLinear": {"widths": (2, 2)},
        "Descent": {"rule": polyak.rule, "geometry": polyak.geometry, "after": None, "before": None},
        "DiagonalTokens": {"tokens": diagonal.tokens},
        "Direct": {},
        "DirectionSettled": {"level": 1e-3},
        "Entrywise": {"p": 3.0},
        "Every": {"interval": 2},
        "Exponential": {},
        "GradientFlow": {"clock": pt.flow.RelativeArc(), "tolerance": 1e-7, "margin_tolerance": 1e-4, "order": 4},
        "Gram": {"data": data, "origin": [0.0, 1.0, 0.0]},
        "Hadamard": {},
        "Hybrid": {"blocks": ((Linf(), 2), (Linf(), 1))},
        "Inaccurate": {"level": 1.0},
        "InsideOutside": {},
        "JointStart": {"u": [1.0, 0.0], "W": HESSIAN},
        "JointTokens": {"tokens": TOKENS, "labels": [1, -1], "optimal": [0, 1], "queries": HESSIAN},
        "KeyQuery": {"width": 2},
        "LayerRule": {"optimiser": pt.Adam(0.1, eps=1e-8)},
        "LayerDescent": {"rule": pt.optimisers.BallStep()},
        "Levels": {"quantity": "margin", "values": [1.0]},
        "LogExcessBelow": {"level": -2.0},
        "LogExcessDrop": {},
        "LogSpaced": {"points": 10},
        "LogTime": {},
        "LogTimeAbove": {"level": 2.0},
        "Logistic": {},
        "MarginAbove": {"level": 2.0},
        "Multiclass": {"inputs": INPUTS, "labels": [0, 1], "classes": 2},
        "NextToken": {"contexts": INPUTS, "weights": [0.5, 0.5], "targets": [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]},
        "NormAbove": {"level": 2.0},
        "PlusMinus": {},
        "PolynomialTail": {"power": 2.0},
        "PreconditionedDescent": {
            "geometry": "left",
            "step": 0.1,
            "balance": pt.papers.attention_regression.Balance(),
            "logit_limit": 2.0,
        },
        "Regression": {"inputs": WIDE, "targets": [1.0, 2.0]},
        "RelativeArc": {},
        "RelativeDrop": {},
        "RiskScaled": {},
        "ScaleFreeBalance": {},
        "Schatten": {"p": 3.0},
        "Setting": {"data": data, "parametrisation": pt.Direct(), "loss": pt.Exponential(), "reduction": "mean"},
        "SharpStep": {"beta": 0.25, "slope": 1.0},
        "SignProduct": {},
        "SignedPowers": {"alpha": 0.1, "depth": 3},
        "SignedSquares": {"alpha": 0.1},
        "Squared": {"scale": 1.0},
        "Squares": {"alpha": 0.1},
        "Stalled": {"level": 1e3},
        "TokenSelection": {
            "tokens": TOKENS,
            "labels": [1, -1],
            "head": [1.0, 0.3],
            "queries": HESSIAN,
            "scores": None,
            "ties": "raise",
        },
        "Unregularised": {},
        "UserLoss": {"log_of_value": lambda z: -z, "log_of_slope": lambda z: -z},
        "WeightedL2": {"scales": [1.0, 2.0]},
        "add_bias": {"inputs": INPUTS, "value": 1.0},
        "basis_pursuit": {"data": fit, "weights": [1.0, 1.0, 2.0], "nonnegative": False},
        "clusters": {"classes": 3, "d": 2, "n": 4, "spread": 0.5, "seed": 0},
        "contrary_pair": {"gaps": (6.0, 1.0), "others": (-3.0, 0.0)},
        "decompose": {"data": fit, "params": [[0.1, 0.1, 0.1]]},
        "deep_linear": {
            "inputs": INPUTS,
            "labels": LABELS,
            "widths": (2,),
            "loss": pt.Exponential(),
            "normalise": True,
        },
        "diffusion_covariance": NORMAL,
        "diffusion_transient": dict(**NORMAL, time=1.0),
        "equal_score_tokens": {"n": 2, "length": 3, "d": 4, "seed": 0, "gap": 6.0},
        "gradient_descent": {"step": 0.1},
        "lag_correlation": dict(**NORMAL, lag=2),
        "lag_covariance": dict(**NORMAL, lag=2),
        "leaning_tokens": {"n": 4, "lean": 0.13, "length": 0.1, "seed": 0},
        "load": {"path": f"{folder}/points.csv"},
        "local_pair": {"first": 1.0, "second": 0.1},
        "local_single": {},
        "marked_tokens": {"n": 3, "length": 2, "d": 12, "noise": 0.1, "factor": 3.0, "seed": 0},
        "max_margin": {"data": data},
        "minimum_norm": {"data": fit, "start": [0.0, 1.0, 0.0]},
        "misalignment": {"weight": [1.0, 2.0], "reference": [1.0, 1.0]},
        "momentum": {"length": 0.1, "beta": 0.9, "cap": 1.0},
        "noisy_covariance": dict(**NORMAL, steps=5),
        "normal_start": {"data": pt.settings.marked_tokens(3, 2, 12, 0.1), "seed": 0, "scale": 0.1},
        "normalised_descent": {"length": 0.1, "cap": 1.0, "decay": 0.5},
        "polyak": {"c": 1.0, "cap": 1.0, "gap": 0.0},
        "prescribed_spectrum": {"m": 3, "sizes": (0.05, 0.03), "condition": 2.0, "seed": 1, "noise": 0.0},
        "q_alpha": {"alpha": 0.1, "d": 3},
        "random_tokens": {"n": 2, "length": 3, "d": 4, "seed": 0, "equal_scores": False},
        "sample_covariance": {"inputs": INPUTS, "targets": [1.0, 2.0], "step": 0.01},
        "heavy_ball": {"optimiser": polyak, "beta": 0.9},
        "muon": {"length": 0.1, "beta": 0.9, "decay": 0.5, "nesterov": True, "orthogonaliser": "ns5", "log_eps": -3.0},
        "steepest": {"length": 0.1, "norm": pt.norms.Linf(), "decay": 0.5, "beta": 0.5, "nesterov": True},
        "scheduled_descent": {"length": 0.1},
        "signum": {"length": 0.1, "beta": 0.9, "decay": 0.5},
        "separable": {"n": 4, "d": 2, "seed": 5},
        "sharp_smoothness": {"radius": 1.0, "depth": 2, "beta": 0.25, "slope": 1.0},
        "sign_descent": {"length": 0.1, "decay": 0.5},
        "signal_tokens": {
            "n": 3,
            "length": 2,
            "d": 4,
            "signal": 2.0,
            "noise": 0.1,
            "seed": 0,
            "antipodal": False,
            "position": "random",
        },
        "smoothness": {"radius": 1.0, "depth": 2, "beta": 0.25, "slope": 1.0},
        "sparse_regression": {"n": 3, "d": 6, "sparsity": 1, "seed": 0, "signed": True, "unit_columns": False},
        "Store": {"path": f"{folder}/runs"},
        "read_spec": {"source": {"generator": "local_pair", "seeds": "0:2"}},
    }


@cache
def heavy_calls(folder):
    """Arguments by name of what solves programs, or needs runs."""
    data, fit = pt.Classification(INPUTS, LABELS), pt.Regression(WIDE, [1.0, 2.0])
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    deep = pt.settings.deep_linear(INPUTS, LABELS, (2,), pt.Exponential(), normalise=True)
    tokens = pt.TokenSelection(TOKENS, scores=[[1.0, 0.0], [1.0, 0.0]])
    diagonal = pt.settings.DiagonalTokens(pt.settings.contrary_pair((6.0, 1.0), (-3.0, 0.0)))
    joint = pt.settings.marked_tokens(3, 2, 12, 0.1)
    reference, best, layers = (
        pt.references.max_margin(data),
        pt.references.basis_pursuit(fit),
        pt.settings.named_start(deep, "normal", 0),
    )
    flow, _polyak = pt.GradientFlow(), pt.polyak()
    run = pt.train(setting, flow, until=pt.MarginAbove(10.0))
    deep_run = pt.train(deep, pt.optimisers.LayerDescent(pt.optimisers.BallStep()), layers, steps=5)
    clock = pt.GradientFlow(pt.flow.RelativeDrop(), 1e-9, 1e-6, order=6)
    deep_flow = pt.train(deep, clock, layers, until=pt.LogExcessBelow(-1.0))
    thin = pt.train(pt.Setting(diagonal, pt.Hadamard(), pt.Exponential()), flow, until=pt.MarginAbove(5.0))
    joint_run = pt.train(pt.settings.joint_setting(joint), pt.optimisers.block_normalised(0.1), steps=5)
    problem = pt.papers.attention_regression.prescribed_spectrum(3, (0.05, 0.03), 2.0, 1, noise=1e-3)
    start, sample = (
        pt.papers.attention_regression.spectral_layer(problem),
        pt.papers.attention_regression.draw_sample(problem, 12, np.random.default_rng(0)),
    )
    rule = pt.PreconditionedDescent("two_sided", 0.3)
    attention_run = pt.papers.attention_regression.train_attention(
        pt.papers.attention_regression.FullSample(sample), rule, start, steps=3, truth=problem
    )
    noisy = {"data": fit, "start": [0.5, 0.5, 0.5], "step": 0.01, "deviation": 0.1, "steps": 3}
    return {
        "AttentionSample": {"inputs": sample.inputs, "targets": sample.targets, "ridge": 0.0},
        "FreshBatches": {"truth": problem, "count": 5, "batches": 2, "seed": 0},
        "FullSample": {"sample": sample},
        "LineSearch": {"setting": deep, "capped": False},
        "Minibatch": {"sample": sample, "size": 4, "keys": "batch", "seed": 7},
        "Population": {"truth": problem},
        "joint_setting": {"data": joint, "start": pt.settings.normal_start(joint, 0, 0.1), "loss": pt.Exponential()},
        "TokenGram": {"data": joint, "start": pt.settings.normal_start(joint, 0, 0.1)},
        "advise": {"sample": sample, "truth": problem, "start": start, "key_norm": 1.0},
        "algorithm1": {
            "sample": sample,
            "steps": 2,
            "gauge": "identity",
            "batch": 4,
            "keys": "batch",
            "recorder": pt.training.Every(1),
        },
        "aligned_tokens": {
            "lengths": (1.0, 1.5),
            "query_lengths": (1.0, 0.7),
            "shares": (0.05, -0.05),
            "tokens": 3,
            "d": 4,
            "score": 12.0,
            "outside": 1.0,
            "parallel": True,
            "seed": 1,
        },
        "alignment_floor": {"layers": deep_run.at(), "start": layers, "traces": None},
        "alignment_limits": {"start": layers, "end": deep_run.at()},
        "alignments": {"run": deep_run},
        "attention_experiment": {"m": 4, "d": 2, "n": 20, "seed": 0, "largest": 0.05, "noise": 0.001},
        "bound_slack": {"run": deep_flow, "found": None},
        "bracket": {"data": data, "primal": reference.weight, "dual": reference.dual, "norm": L1()},
        "certificates": {"run": thin, "norm": L1()},
        "certified": {"run": thin, "norm": L1(), "reference": None},
        "check_assumptions": {"problem": problem, "power": 2.0, "samples": 100, "strict": False, "key_norm": 1.0},
        "clock_error": {"run": deep_flow},
        "conservation_drift": {"run": deep_flow},
        "context_sums": {
            "inputs": sample.inputs,
            "targets": sample.targets,
            "value": start.value,
            "key_query": start.key_query,
            "queries": None,
            "include_self": True,
        },
        "critical_length": {"data": tokens, "reference": pt.references.max_margin(tokens)},
        "detect_limit": {
            "run": pt.train(pt.Setting(tokens, pt.Direct(), pt.Exponential()), flow, until=pt.MarginAbove(5.0))
        },
        "diagonal_margin": {"data": diagonal},
        "draw_sample": {"problem": problem, "count": 5, "rng": np.random.default_rng(0)},
        "ensure_assumption2": {"setting": deep, "params": layers},
        "finite_margin": {"data": diagonal, "scales": 0.5, "margin": 2.0},
        "imbalance_constant": {"layers": layers},
        "interpolation_bracket": {"data": fit, "primal": best.weight, "dual": best.dual, "objective": L1()},
        "joint_references": {"data": joint, "selection": None, "ratio": 1.0},
        "judge": {"prediction": pt.predict(setting, flow), "run": run},
        "l1_uniqueness": {"data": fit, "weight": best.weight, "weights": None, "nonnegative": False},
        "label_noise": dict(**noisy, chains=2, batch=1, seed=0),
        "locally_optimal_selections": {"data": tokens, "limit": 16, "around": None},
        "loss_bias": {"problem": problem, "layer": start, "include_self": True},
        "minimum_potential": {"data": fit, "potential": pt.settings.q_alpha(0.1, 3)},
        "misalignments": {"run": run, "reference": reference},
        "moment_descent": dict(**noisy, batch=1),
        "named_start": {"setting": deep, "name": "normal", "seed": 0, "scale": 0.3},
        "nearest_minimum": {"problem": problem, "whitened": problem.whiten(start), "geometry": Left()},
        "network_constants": {"setting": deep, "start": layers, "reference": pt.references.max_margin(deep.data)},
        "constrained_gap": {
            "setting": pt.Setting(data, pt.Direct(), pt.Exponential()),
            "weight": [1.0, 1.0, 1.0],
            "norm": Linf(),
            "decay": 0.1,
        },
        "norm_margin": {"data": tokens, "norm": Linf(), "gap": 1e-9},
        "nuclear_margin": {"data": tokens, "gap": 1e-9},
        "offset_margin": {"data": tokens, "offsets": [0.1, 0.2]},
        "optimal_scale": {"problem": problem},
        "oracle_shift": {"problem": problem, "gauge": "identity", "sample_balance": True},
        "potential_path": {"data": fit, "potential": pt.settings.q_alpha(1.0, 3), "log_factors": [0.0, -1.0]},
        "predict": {"setting": setting, "optimiser": flow, "start": [0.0, 0.0, 0.0]},
        "quadratic_noise": dict(**NORMAL, steps=3, chains=2, seed=0),
        "read": {"setting": setting, "params": jnp.ones(3)},
        "recovery_hypotheses": {"data": fit, "alpha": 0.01, "step": 0.1, "sparsity": 1},
        "regularised_descent": dict(**noisy, batch=1),
        "replay": {"run": deep_run},
        "report": {"findings": [pt.judge(pt.predict(setting, flow), run)], "directory": f"{folder}/page"},
        "restricted_isometry": {"inputs": WIDE, "sparsity": 1, "seed": 0, "most": 10},
        "run_hypotheses": {"run": joint_run},
        "sample_floor": {"problem": problem, "factor": 1.0},
        "sample_noise": {
            "inputs": INPUTS,
            "targets": [1.0, 2.0],
            "step": 0.01,
            "steps": 3,
            "chains": 2,
            "seed": 0,
            "start": [0.0, 0.0, 0.0],
        },
        "sandwich": {"run": deep_flow},
        "sign_product_margin": {"data": tokens},
        "sparse_face": {"data": fit, "nonnegative": False},
        "spectral_layer": {"problem": problem, "gauge": "identity"},
        "stability_number": {"data": tokens, "reference": pt.references.max_margin(tokens)},
        "strict_dual": {"data": fit, "weight": best.weight, "weights": None, "nonnegative": False},
        "support_geometry": {"data": data, "solution": reference},
        "sweep": {
            "spec": {"generator": "local_pair", "optimiser": "ngd", "steps": 3},
            "store": None,
            "engine": "here",
            "jobs": 1,
            "scheduler": "",
            "retry": False,
            "progress": lambda *_: None,
        },
        "train": {
            "setting": setting,
            "optimiser": pt.normalised_descent(0.1),
            "start": [0.0, 0.0, 0.0],
            "steps": 3,
            "until": pt.MarginAbove(5.0),
            "recorder": pt.training.LogSpaced(9),
            "progress": lambda *_: None,
            "throw": False,
        },
        "train_attention": {
            "source": pt.papers.attention_regression.FullSample(sample),
            "rule": rule,
            "start": start,
            "steps": 2,
            "recorder": pt.training.Every(1),
            "truth": problem,
            "throw": False,
        },
        "train_population": {
            "problem": problem,
            "rule": rule,
            "start": start,
            "steps": 2,
            "recorder": pt.training.Every(1),
        },
        "trajectory_moments": {"run": attention_run, "power": 2.0, "truth": problem, "samples": 100},
        "uniqueness": {"data": data, "solution": reference},
    }
