"""Answers that are right but say little come with a warning that says so; sound ones come without."""

import warnings

import numpy as np
import pytest

import penchant as pt
from penchant.cli import main
from penchant.errors import ArgumentError, StepSizeError
from penchant.settings.generators import sparse_regression
from penchant.settings.potentials import q_alpha
from penchant.training.noise import quadratic_noise, sample_noise

DATA, _ = sparse_regression(6, 12, 2, 1)


def setting(data, parametrisation=None):
    return pt.Setting(data, parametrisation or pt.Direct(), pt.Squared())


def tall(rng):
    return pt.Regression(rng.standard_normal((8, 3)), rng.standard_normal(8))


def test_a_unique_solution_leaves_nothing_to_predict(rng):
    with pytest.warns(pt.errors.PenchantWarning, match="8 samples determine all 3 coefficients") as caught:
        prediction = pt.predict(setting(tall(rng)), pt.GradientFlow())
    assert len(caught) == 1
    assert any(note.startswith("not over-parametrised: rank 3 in 3 dimensions") for note in prediction.notes)


def test_dependent_samples_are_named_and_the_prediction_stands():
    inputs = np.vstack([DATA.inputs, DATA.inputs[:1] + DATA.inputs[1:2]])
    data = pt.Regression(inputs, np.append(DATA.targets, DATA.targets[0] + DATA.targets[1]))
    with pytest.warns(pt.errors.PenchantWarning, match="7 samples have rank 6"):
        found = pt.predict(setting(data), pt.GradientFlow()).reference.weight
    assert found == pytest.approx(pt.references.minimum_norm(DATA).weight, abs=1e-12)


def test_a_start_below_the_resolution_of_float64_is_said():
    with pytest.warns(pt.errors.PenchantWarning, match="below what float64 resolves"):
        pt.predict(setting(sparse_regression()[0], pt.SignedSquares(1e-30)), pt.GradientFlow())


def test_repeated_support_vectors_are_said():
    data = pt.Classification([[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [1, 1, 1])
    with pytest.warns(pt.errors.PenchantWarning, match="1 support vectors repeat"):
        pt.predict(pt.Setting(data, pt.Direct(), pt.Exponential()), pt.GradientFlow())


def test_sound_data_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pt.predict(setting(DATA), pt.GradientFlow())
        pt.predict(setting(DATA, pt.SignedSquares(0.1)), pt.GradientFlow())
        pt.predict(pt.Setting(pt.settings.separable(), pt.Direct(), pt.Logistic()), pt.GradientFlow())


def test_the_command_line_prints_warnings_in_one_line(rng, tmp_path, capsys):
    data, path = tall(rng), tmp_path / "tall.npz"
    np.savez(path, inputs=data.inputs, targets=data.targets)
    assert main(["predict", str(path)]) == 0
    err = capsys.readouterr().err.splitlines()
    assert [line for line in err if line.startswith("warning: 8 samples determine all 3 coefficients")]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: q_alpha(0.0, 3), "alpha"),
        (lambda: pt.SignedSquares(-1.0), "alpha"),
        (lambda: pt.SignedSquares([0.1, 0.0]), "alpha"),
        (lambda: pt.references.minimum_norm(DATA, [1.0]), "start"),
        (lambda: pt.references.basis_pursuit(DATA, np.zeros(12)), "weights"),
        (lambda: pt.settings.sparse_regression(4, 6, 0), "sparsity"),
        (lambda: quadratic_noise([[1.0, 2.0], [0.0, 1.0]], np.eye(2), 0.1, 1, 1), "hessian"),
        (lambda: quadratic_noise(np.eye(2), -np.eye(2), 0.1, 1, 1), "noise"),
        (lambda: quadratic_noise(np.eye(2), np.eye(3), 0.1, 1, 1), "noise"),
        (lambda: quadratic_noise(np.eye(2), np.eye(2), 0.0, 1, 1), "step"),
        (lambda: quadratic_noise(np.eye(2), np.eye(2), 0.1, -1, 1), "steps"),
        (lambda: quadratic_noise(np.eye(2), np.eye(2), 0.1, 1, 0), "chains"),
        (lambda: sample_noise([[1.0]], [1.0, 2.0], 0.1, 1, 1), "targets"),
        (lambda: sample_noise([[np.nan]], [1.0], 0.1, 1, 1), "inputs"),
        (lambda: sample_noise([[1.0]], [1.0], 0.1, 1, 1, start=[1.0, 2.0]), "start"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == name


def test_unstable_steps_name_the_largest_stable_one():
    with pytest.raises(StepSizeError) as caught:
        quadratic_noise(np.diag([1.0, 4.0]), np.eye(2), 0.6, 10, 1)
    assert caught.value.bound == pytest.approx(0.5)
