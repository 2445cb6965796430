"""Every theorem and every claim, in explicit tuples: what is not listed here does not exist."""

from dataclasses import replace
from typing import Any

from ..errors import ArgumentError, kind
from ..settings.attention_regression import AttentionRegression
from ..settings.base import Parametrisation, Setting, is_module
from ..training.batch import single_start
from . import (
    attention_context_claims,
    attention_covariate_claims,
    attention_noise_claims,
    attention_perturbation_claims,
    attention_regression,
    attention_regression_claims,
    attention_sample_claims,
    deep_linear,
    deep_linear_basin,
    deep_linear_claims,
    deep_linear_descent,
    deep_linear_exact,
    deep_linear_idle,
    deep_linear_laws,
    deep_linear_lemmas,
    deep_linear_pull,
    deep_linear_span,
    deep_linear_steps,
    deep_linear_tails,
    depth_claims,
    interpolation,
    interpolation_claims,
    interpolation_rates_claims,
    isometry_claims,
    joint_attention,
    joint_attention_claims,
    joint_attention_findings,
    joint_attention_lemmas,
    joint_growth_claims,
    key_query,
    key_query_claims,
    key_query_discrete_claims,
    key_query_identities_claims,
    key_query_limits_claims,
    key_query_rates_claims,
    key_query_scan_claims,
    key_query_signs,
    key_query_spectral_claims,
    label_noise_claims,
    label_noise_law_claims,
    label_noise_square_claims,
    label_noise_time_claims,
    lasso_claims,
    linear_models,
    linear_models_claims,
    margin_steps_claims,
    mirror_claims,
    noise_claims,
    notes_slips_claims,
    q_alpha_claims,
    self_attention,
    self_attention_assumption_claims,
    self_attention_claims,
    self_attention_loss_claims,
    self_attention_sharp_claims,
    self_attention_stability_claims,
    sign_descent,
    sparse_face_claims,
    sparse_recovery_claims,
    time_window_claims,
)
from .base import Claim, Prediction, Theorem
from .matching import check_same_setting, other_optimiser

# Attention regression comes first: its problems are not a `Setting`, and the others ask for one.
_PAPERS = (
    attention_regression,
    sign_descent,  # before the conjectures that would speak about every optimiser
    linear_models,
    interpolation,
    self_attention,
    joint_attention,
    key_query_signs,
    key_query,
    deep_linear,
)
_EVIDENCE = (
    linear_models_claims,
    margin_steps_claims,
    interpolation_claims,
    mirror_claims,
    interpolation_rates_claims,
    q_alpha_claims,
    depth_claims,
    sparse_face_claims,
    sparse_recovery_claims,
    time_window_claims,
    isometry_claims,
    notes_slips_claims,
    noise_claims,
    label_noise_claims,
    label_noise_law_claims,
    label_noise_square_claims,
    label_noise_time_claims,
    lasso_claims,
    self_attention_claims,
    self_attention_sharp_claims,
    self_attention_stability_claims,
    self_attention_assumption_claims,
    self_attention_loss_claims,
    joint_attention_claims,
    joint_attention_lemmas,
    joint_attention_findings,
    joint_growth_claims,
    key_query_claims,
    key_query_identities_claims,
    key_query_rates_claims,
    key_query_limits_claims,
    deep_linear_basin,
    key_query_scan_claims,
    key_query_spectral_claims,
    key_query_discrete_claims,
    deep_linear_claims,
    attention_regression_claims,
    attention_context_claims,
    attention_sample_claims,
    attention_perturbation_claims,
    attention_noise_claims,
    attention_covariate_claims,
    deep_linear_descent,
    deep_linear_lemmas,
    deep_linear_pull,
    deep_linear_span,
    deep_linear_steps,
    deep_linear_exact,
    deep_linear_laws,
    deep_linear_idle,
    deep_linear_tails,
)
THEOREMS: tuple[Theorem, ...] = tuple(theorem for paper in _PAPERS for theorem in paper.THEOREMS)
CLAIMS: tuple[Claim, ...] = tuple(claim for evidence in _EVIDENCE for claim in evidence.CLAIMS)
PAPERS: tuple[str, ...] = tuple(dict.fromkeys(claim.paper for claim in CLAIMS))


def predict(setting: Any, optimiser: Any, start: Any = None) -> Prediction:
    """What theory says of training `setting` with `optimiser`: the first theorem of the catalogue that speaks about it.

    With a `start` the hypotheses about starts are checked too. Which interpolant a regression ends at depends on the `start` of
    training (that of the setting by default); the directions of classification and attention do not.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Regression([[1.0, 1.0]], [2.0]), pt.Direct(), pt.Squared())
    >>> pt.predict(setting, pt.GradientFlow(), [3.0, 1.0]).reference.weight.round(12).tolist()   # the nearest one to (3, 1)
    [2.0, 0.0]
    """
    _check(setting, optimiser)
    for theorem in THEOREMS:
        if theorem.applies(setting, optimiser):
            if start is None:
                return replace(theorem.predict(setting, optimiser), optimiser=optimiser)
            start = single_start(setting, start, "predict") if _has_arrays(setting) else start
            found = theorem.predict(setting, optimiser, *((start,) if theorem.from_start else ()))
            asked = theorem.at_start(setting, optimiser, start)
            names = {one.name for one in asked}
            kept = tuple(one for one in found.hypotheses if one.name not in names)  # those were about the default start
            return replace(found, hypotheses=kept + asked, optimiser=optimiser)
    found = f"{type(setting.data).__name__} with {type(setting.parametrisation).__name__}"
    raise ArgumentError("setting", "predict", "one that a theorem of the catalogue speaks about", found)


def _has_arrays(setting: Any) -> bool:
    """Whether starts of a setting are trees of arrays; those of joint training and of layers are kinds of their own."""
    return isinstance(setting, Setting) and isinstance(setting.parametrisation, Parametrisation)


def _check(setting: Any, optimiser: Any) -> None:
    if not isinstance(setting, Setting | AttentionRegression):
        wanted, fix = "a Setting or an AttentionRegression", "Setting(data, Direct(), Exponential())"
        raise ArgumentError("setting", "predict", wanted, kind(setting), fix)
    if not is_module(optimiser):
        wanted = "an optimiser such as GradientFlow() or gradient_descent(0.1)"
        raise ArgumentError("optimiser", "predict", wanted, kind(optimiser))


def judge(prediction: Any, run: Any) -> Any:
    """The verdict of the predicting theorem on a run of the same setting; a run by another optimiser is judged, and said to be one."""
    if not isinstance(prediction, Prediction):
        raise ArgumentError("prediction", "judge", "what `predict` returned", kind(prediction))
    check_same_setting(prediction, run)
    verdict, remark = prediction.theorem.judge(prediction, run), other_optimiser(prediction, run)
    return replace(verdict, detail="; ".join(part for part in (remark, verdict.detail) if part))
