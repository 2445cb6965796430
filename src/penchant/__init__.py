"""penchant: which of the many solutions does this training select, and how fast does it get there?

The library is one sentence, and its folders are the words:

    setting  ->  prediction (theorem + reference)  ->  training (optimiser | flow)  ->  diagnostics  ->  verdict  ->  report

>>> import penchant as pt
>>> data = pt.Classification([[2.0, 0.5, 0.3], [0.1, 1.0, -1.0]], [1, 1])
>>> setting = pt.Setting(data, pt.Direct(), pt.Exponential())            # data x parametrisation x loss
>>> prediction = pt.predict(setting, pt.GradientFlow())                  # theorem, hypotheses, reference, rivals
>>> run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e6))
>>> print(pt.judge(prediction, run))
confirmed: 1 - corr to the l2 reference = ... <= ...

Names are imported on first use, so that `import penchant` and the command line start at once.
"""

from importlib import import_module
from typing import Any

_PLACES = {
    "settings.base": ("Setting", "Infimum"),
    "settings.classification": ("Classification", "add_bias"),
    "settings.tokens": ("TokenSelection",),
    "settings.diagonal": ("DiagonalTokens",),
    "settings.joint": ("JointTokens", "JointStart", "TokenGram", "marked_tokens", "normal_start"),
    "settings.joint_generators": ("leaning_tokens",),
    "settings.parametrisations": ("Direct", "Gram"),
    "settings.factored": ("KeyQuery", "Hadamard", "PlusMinus"),
    "settings.deep_linear": ("DeepLinear", "deep_linear", "imbalance_constant"),
    "settings.network_starts": ("ensure_assumption2", "named_start"),
    "settings.user_loss": ("UserLoss", "PolynomialTail"),
    "settings.files": ("load",),
    "papers.attention_regression.setting.problem": ("AttentionRegression", "AttentionLayer"),
    "papers.attention_regression.setting.generators": ("attention_experiment", "prescribed_spectrum"),
    "papers.attention_regression.setting.balance": ("Balance", "ScaleFreeBalance", "Unregularised"),
    "papers.attention_regression.setting.sample": ("AttentionSample", "draw_sample", "spectral_layer"),
    "papers.attention_regression.setting.context_sums": ("context_sums",),
    "papers.attention_regression.setting.context_bias": ("loss_bias", "sample_floor", "oracle_shift", "optimal_scale"),
    "papers.attention_regression.setting.gauge_bias": ("best_gauge",),
    "settings.token_generators": ("equal_score_tokens", "aligned_tokens", "contrary_pair"),
    "problem": ("read", "Reading"),
    "references.bracket": ("bracket", "Bracket"),
    "references.interpolation_bracket": ("interpolation_bracket",),
    "references.euclidean_margin": ("max_margin",),
    "references.offset_margin": ("offset_margin",),
    "references.nuclear_margin": ("nuclear_margin",),
    "references.polyhedral_margin": ("diagonal_margin",),
    "papers.attention_regression.setting.balanced_minima": ("nearest_minimum",),
    "settings.square_models": ("Squares", "SignedSquares"),
    "settings.power_models": ("SignedPowers",),
    "references.lasso": ("lasso_path",),
    "references.l1_uniqueness": ("entropic_sparse", "sparse_face", "l1_uniqueness", "strict_dual"),
    "settings.regression": ("Regression",),
    "settings.losses": ("Exponential", "Logistic", "Correlation", "Squared"),
    "settings.generators": (
        "separable",
        "signal_tokens",
        "random_tokens",
        "sparse_regression",
        "local_pair",
        "local_single",
    ),
    "settings.potentials": ("q_alpha",),
    "norms": ("SignProduct",),
    "references.interpolation": ("minimum_norm", "basis_pursuit", "minimum_potential", "potential_path"),
    "optimisers.base": (
        "Descent",
        "Accelerated",
        "gradient_descent",
        "normalised_descent",
        "momentum",
        "polyak",
        "polyak_towards",
        "sign_descent",
    ),
    "optimisers.joint": (
        "JointDescent",
        "BlockNormalised",
        "JointNormalised",
        "JointPolyak",
        "JointHeavyBall",
        "JointAccelerated",
        "scheduled_descent",
    ),
    "optimisers.layerwise": (
        "LayerDescent",
        "BallStep",
        "SharpStep",
        "RiskScaled",
        "ConstantStep",
        "LineSearch",
        "smoothness",
        "sharp_smoothness",
    ),
    "papers.attention_regression.training.preconditioned": ("PreconditionedDescent",),
    "papers.attention_regression.training.layer_rules": ("PlainDescent", "LayerAdam", "LayerShampoo"),
    "optimisers.adam": ("Adam",),
    "flow.flow": ("GradientFlow", "Levels"),
    "papers.attention_regression.training.riccati": ("RiccatiFlow",),
    "flow.clocks": ("RelativeArc", "LogExcessDrop", "RelativeDrop", "LogTime"),
    "training.train": ("train",),
    "training.joint": ("train_joint",),
    "papers.attention_regression.training.population": ("train_population",),
    "papers.attention_regression.training.algorithm1": ("algorithm1", "train_attention"),
    "papers.attention_regression.training.sources": ("Population", "Oracle", "FreshBatches", "FullSample", "Minibatch"),
    "training.events": (
        "MarginAbove",
        "NormAbove",
        "LogTimeAbove",
        "LogExcessBelow",
        "DirectionSettled",
        "Stalled",
        "Inaccurate",
    ),
    "training.noise": ("label_noise", "quadratic_noise", "sample_noise"),
    "training.noise_law": ("moment_descent", "regularised_descent"),
    "training.recorders": ("LogSpaced", "Every", "At"),
    "training.trajectory": ("Trajectory",),
    "training.status": ("Status",),
    "diagnostics.covariance": ("noisy_covariance", "diffusion_covariance", "sample_covariance"),
    "diagnostics.relaxation": (
        "diffusion_transient",
        "lag_covariance",
        "diffusion_lag_covariance",
        "lag_correlation",
        "excess_loss",
        "commutator",
    ),
    "diagnostics.label_noise": ("trace_regulariser", "determinant_regulariser", "tangent_part", "moving_time"),
    "diagnostics.signal_noise": ("decompose",),
    "diagnostics.restricted_isometry": ("restricted_isometry",),
    "diagnostics.direction": ("misalignment", "misalignments"),
    "diagnostics.alignment": (
        "alignments",
        "alignment_limits",
        "alignment_floor",
        "bound_slack",
        "clock_error",
        "conservation_drift",
        "sandwich",
    ),
    "references.support_geometry": ("project_on_support", "support_geometry"),
    "papers.deep_linear.replay": ("replay",),
    "theory.layer_constants": ("network_constants",),
    "papers": ("predict", "PAPERS"),
    "theory.judge": ("judge",),
    "papers.attention_regression.advice": ("advise",),
    "papers.attention_regression.theorems": ("check_assumptions",),
    "papers.attention_regression.trajectory": ("trajectory_moments",),
    "papers.attention_regression.setting.gradient_noise": ("gradient_covariance",),
    "papers.attention_regression.setting.covariates": ("ThreePoint", "Uniform", "NormalMixture"),
    "papers.attention_regression.training.covariate_source": ("CovariatePopulation",),
    "papers.attention_regression.perturbation": ("perturbation",),
    "theory.selections": ("detect_limit", "locally_optimal_selections"),
    "theory.token_hypotheses": ("stability_number", "critical_length"),
    "papers.notes.recovery_hypotheses": ("recovery_hypotheses",),
    "papers.notes.noise_hypotheses": ("noise_hypotheses", "label_noise_hypotheses"),
    "theory.certificates": ("certificates", "certified"),
    "theory.certificate_mix": ("mixture", "race"),
    "theory.uniqueness": ("uniqueness",),
    "references.finite_margin": ("finite_margin", "spectral_finite_margin"),
    "references.sign_product_margin": ("sign_product_margin",),
    "theory.joint_limits": ("detect_joint_limit", "joint_references"),
    "papers.self_attention.joint_hypotheses": ("run_hypotheses",),
    "verdict": ("Verdict", "Outcome"),
    "report.save": ("report",),
    "errors": (
        "PenchantError",
        "PenchantWarning",
        "NotSeparableError",
        "CriticalPointError",
        "StepSizeError",
        "DivergedRun",
    ),
}
_HOME = {name: place for place, names in _PLACES.items() for name in names}
__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'penchant' has no attribute '{name}'")
    value = import_module(".door", __name__).guard(getattr(import_module(f".{_HOME[name]}", __name__), name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
