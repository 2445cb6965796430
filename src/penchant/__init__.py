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

These names are the front door, and check what they are given; everything else is reached through its folder, as
`pt.references.nuclear_margin`. All are imported on first use, so that `import penchant` and the command line start at once.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # isort: off
    from .case import Case as Case
    from .flow.flow import GradientFlow as GradientFlow
    from .optimisers.base import Accelerated as Accelerated, Adam as Adam, gradient_descent as gradient_descent
    from .optimisers.base import momentum as momentum, normalised_descent as normalised_descent
    from .optimisers.base import polyak as polyak, sign_descent as sign_descent
    from .papers import predict as predict
    from .papers.attention_regression.setting.problem import AttentionRegression as AttentionRegression
    from .papers.attention_regression.setting.sample import AttentionSample as AttentionSample
    from .papers.attention_regression.training.rules import PreconditionedDescent as PreconditionedDescent
    from .problem import read as read
    from .references.bracket import bracket as bracket
    from .report.page import report as report
    from .settings.base import Setting as Setting
    from .settings.classification import Classification as Classification
    from .settings.deep_linear import DeepLinear as DeepLinear
    from .settings.factored import Hadamard as Hadamard, KeyQuery as KeyQuery
    from .settings.files import load as load
    from .settings.joint import JointTokens as JointTokens
    from .settings.losses import Exponential as Exponential, Logistic as Logistic
    from .settings.losses import Squared as Squared, UserLoss as UserLoss
    from .settings.parametrisations import Direct as Direct
    from .settings.regression import Regression as Regression
    from .settings.parametrisations import SignedSquares as SignedSquares, Squares as Squares
    from .settings.tokens import TokenSelection as TokenSelection
    from .theory.judge import judge as judge
    from .sweeps.sweep import sweep as sweep
    from .training.events import LogExcessBelow as LogExcessBelow, LogTimeAbove as LogTimeAbove
    from .training.events import MarginAbove as MarginAbove
    from .training.train import train as train

_FRONT = {
    "settings.base": "Setting",
    "settings.classification": "Classification",
    "settings.tokens": "TokenSelection",
    "settings.joint": "JointTokens",
    "settings.regression": "Regression",
    "papers.attention_regression.setting.problem": "AttentionRegression",
    "papers.attention_regression.setting.sample": "AttentionSample",
    "settings.files": "load",
    "settings.parametrisations": "Direct Squares SignedSquares",
    "settings.factored": "KeyQuery Hadamard",
    "settings.deep_linear": "DeepLinear",
    "settings.losses": "Exponential Logistic Squared UserLoss",
    "flow.flow": "GradientFlow",
    "optimisers.base": "gradient_descent normalised_descent momentum polyak sign_descent Accelerated Adam",
    "papers.attention_regression.training.rules": "PreconditionedDescent",
    "training.events": "MarginAbove LogTimeAbove LogExcessBelow",
    "problem": "read",
    "training.train": "train",
    "sweeps.sweep": "sweep",
    "papers": "predict",
    "theory.judge": "judge",
    "case": "Case",
    "references.bracket": "bracket",
    "report.page": "report",
}
_FOLDERS = {  # public names of the folders; a name of the same spelling as its file is the name, not the file
    "data": "Dataset",
    "settings.base": "Infimum",
    "settings.classification": "add_bias Multiclass",
    "settings.factored": "DiagonalTokens PlusMinus",
    "settings.next_token": "InsideOutside NextToken",
    "settings.joint": "JointStart TokenGram joint_setting leaning_tokens marked_tokens normal_start",
    "settings.parametrisations": "Gram SignedPowers",
    "settings.deep_linear": "deep_linear ensure_assumption2 imbalance_constant named_start",
    "papers.attention_regression.setting.problem": "AttentionLayer Balance ScaleFreeBalance Unregularised",
    "papers.attention_regression.setting.sample": "attention_experiment prescribed_spectrum draw_sample spectral_layer",
    "papers.attention_regression.setting.context_sums": "context_sums",
    "papers.attention_regression.setting.context_bias": "loss_bias sample_floor oracle_shift optimal_scale",
    "problem": "Reading",
    "references.bracket": "Bracket",
    "references.interpolation_bracket": "interpolation_bracket",
    "references.euclidean_margin": "max_margin",
    "references.offset_margin": "offset_margin",
    "references.norm_margin": "constrained_gap norm_margin nuclear_margin",
    "references.linear_programs": "diagonal_margin sign_product_margin",
    "papers.attention_regression.setting.balanced_minima": "nearest_minimum",
    "references.l1_uniqueness": "sparse_face l1_uniqueness strict_dual",
    "settings.losses": "Correlation CrossEntropy PolynomialTail",
    "settings.generators": "clusters separable signal_tokens random_tokens sparse_regression local_pair local_single equal_score_tokens aligned_tokens contrary_pair",
    "settings.potentials": "q_alpha",
    "norms": "Entrywise Hybrid Schatten SignProduct WeightedL2",
    "references.interpolation": "minimum_norm basis_pursuit minimum_potential potential_path",
    "optimisers.base": "Descent Blockwise Decayed Minibatches block_normalised heavy_ball muon scheduled_descent signum steepest",
    "optimisers.layerwise": "LayerDescent BallStep SharpStep RiskScaled ConstantStep LineSearch smoothness sharp_smoothness",
    "papers.attention_regression.training.rules": "LayerRule",
    "flow.flow": "Levels",
    "flow.clocks": "RelativeArc LogExcessDrop RelativeDrop LogTime",
    "papers.attention_regression.training.algorithm1": "algorithm1 train_attention train_population",
    "papers.attention_regression.training.sources": "Population FreshBatches FullSample Minibatch",
    "training.events": "NormAbove DirectionSettled Stalled Inaccurate LogSpaced Every At",
    "training.noise": "label_noise quadratic_noise sample_noise moment_descent regularised_descent",
    "training.trajectory": "Trajectory",
    "training.status": "Status",
    "sweeps.store": "Store",
    "sweeps.spec": "read_spec",
    "diagnostics.noise": "noisy_covariance diffusion_covariance sample_covariance diffusion_transient lag_covariance lag_correlation",
    "diagnostics.sparsity": "decompose restricted_isometry",
    "diagnostics.direction": "misalignment misalignments",
    "diagnostics.alignment": "alignments alignment_limits alignment_floor bound_slack clock_error conservation_drift sandwich",
    "references.support_geometry": "support_geometry",
    "papers.deep_linear.theorems": "replay",
    "theory.families.layers": "network_constants",
    "papers": "PAPERS",
    "papers.attention_regression.advice": "advise",
    "papers.attention_regression.theorems": "check_assumptions",
    "papers.attention_regression.diagnostics": "trajectory_moments",
    "theory.selections": "detect_limit locally_optimal_selections stability_number critical_length",
    "papers.notes.theorems": "recovery_hypotheses",
    "theory.judge": "certificates certified",
    "theory.uniqueness": "uniqueness",
    "references.finite_margin": "finite_margin",
    "theory.joint": "joint_references",
    "papers.self_attention.theorems": "run_hypotheses",
    "verdict": "Verdict Outcome",
    "errors": "PenchantError PenchantWarning NotSeparableError CriticalPointError StepSizeError DivergedRun",
}
_HOME = {name: place for places in (_FRONT, _FOLDERS) for place, names in places.items() for name in names.split()}
__all__ = sorted(" ".join(_FRONT.values()).split())  # pyright: ignore[reportUnsupportedDunderAll]
__version__ = "0.1.0"


def _folder(name: str) -> str:
    """Where a name is reached: the folder of its file, for papers that of the paper, or a file that is in no folder."""
    parts = _HOME[name].split(".")
    return ".".join(parts[: 2 if parts[0] == "papers" and len(parts) > 2 else 1])


def _fetch(name: str) -> Any:
    return import_module(".door", __name__).guard(getattr(import_module(f".{_HOME[name]}", __name__), name))


class _House(ModuleType):
    """The package, and each of its folders: public names appear on first use, and no file of the same name hides them."""

    def __getattr__(self, name: str) -> Any:
        if name in _HOME and self._owns(name):
            self.__dict__[name] = _fetch(name)
            return self.__dict__[name]
        if any(f"{place}.".startswith(f"{self.__name__}.{name}."[len(__name__) + 1 :]) for place in _HOME.values()):
            return import_module(f"{self.__name__}.{name}")
        place = f"; it is `penchant.{_folder(name)}.{name}`" if name in _HOME and name not in __all__ else ""
        text = f"module '{self.__name__}' has no attribute '{name}'{place}"
        raise AttributeError(text, name=name, obj=self)  # Python then names the nearest one

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):  # the import system puts a part into its folder
            _open(value)
            if name in _HOME and self._owns(name):
                return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *filter(self._owns, _HOME)})

    def _owns(self, name: str) -> bool:
        if self.__name__ == __name__:
            return name in __all__
        return name not in __all__ and f"{__name__}.{_folder(name)}" == self.__name__


def _open(part: ModuleType) -> None:
    """Make a folder, and what it has imported of its own folders, one of the house."""
    if hasattr(part, "__path__") and part.__name__.startswith(f"{__name__}."):
        part.__class__ = _House
        for inner in list(vars(part).values()):
            if isinstance(inner, ModuleType) and inner.__name__.startswith(f"{part.__name__}."):
                _open(inner)


sys.modules[__name__].__class__ = _House
