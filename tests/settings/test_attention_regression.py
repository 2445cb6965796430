"""Attention regression: the closed forms against their definitions, by quadrature and automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg as sl

from penchant.errors import ArgumentError
from penchant.papers.attention_regression.setting.geometry import (
    GEOMETRIES,
    Euclidean,
    Left,
    TwoSided,
    balanced_point,
    contraction,
    coupling,
    curvature_range,
    eigenbasis,
    geometry_of,
    hessian,
    minimum_spectrum,
    spectrum,
)
from penchant.papers.attention_regression.setting.problem import (
    AttentionLayer,
    AttentionRegression,
    Balance,
    ScaleFreeBalance,
    Unregularised,
    limit_logits,
)
from penchant.papers.attention_regression.setting.sample import attention_experiment, prescribed_spectrum
from problems import layer_square

PROBLEM = prescribed_spectrum(4, (0.05, 0.03, 0.01), 7.0, 3, 1e-3)
LAYER = AttentionLayer(*(np.random.default_rng(2).standard_normal(shape) for shape in ((4, 3), (3, 3))))
BALANCES = (Balance(), ScaleFreeBalance(), Unregularised())


def random_rotation(rng, d):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def defined_loss(value, key_query, covariance, planted, noise, nodes=60):
    """The definition by Gauss-Hermite quadrature in two dimensions: a ratio of expectations inside an expectation."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(points, points), -1).reshape(-1, 2) @ sl.sqrtm(covariance).real
    mass = np.outer(weights, weights).ravel() / (2 * np.pi)
    tilt = np.exp(grid @ key_query @ grid.T)  # rows: context x', columns: query x
    mean = (tilt * mass[:, None]).T @ grid / (tilt * mass[:, None]).sum(axis=0)[:, None]
    errors = ((mean @ value.T - grid @ planted.T) ** 2).sum(axis=1)
    return float(mass @ errors) + len(planted) * noise, mean, grid


def test_the_population_loss_is_its_definition(rng):
    covariance, planted = np.array([[0.8, 0.2], [0.2, 0.4]]), rng.standard_normal((3, 2))
    layer = AttentionLayer(rng.standard_normal((3, 2)), 0.3 * rng.standard_normal((2, 2)))
    problem = AttentionRegression(covariance, planted, 0.01)
    value, key_query = np.asarray(layer.value), np.asarray(layer.key_query)
    loss, mean, grid = defined_loss(value, key_query, covariance, planted, 0.01)
    assert float(problem.loss(layer)) == pytest.approx(loss, rel=1e-13)
    inner = np.linalg.norm(grid, axis=1) < 3  # the tilted mean itself, where the quadrature resolves the tilt
    assert np.abs(mean - grid @ key_query.T @ covariance)[inner].max() < 1e-12
    assert problem.infimum().value == pytest.approx(0.03)


@pytest.mark.parametrize("balance", BALANCES, ids=lambda one: type(one).__name__)
def test_gradients_are_derivatives(balance):
    def objective(layer):
        root = jnp.asarray(sl.sqrtm(np.asarray(PROBLEM.covariance)).real)
        error = (layer.value @ PROBLEM.covariance @ layer.key_query - PROBLEM.planted) @ root
        upper, lower = layer.value @ root, (root @ layer.key_query @ root).T
        return jnp.sum(error**2) + balance.value(upper, lower)

    expected, found = jax.grad(objective)(LAYER), PROBLEM.gradient(LAYER, balance)
    for name in ("value", "key_query"):
        wanted = np.asarray(getattr(expected, name))
        assert np.abs(np.asarray(getattr(found, name)) - wanted).max() < 1e-12 * np.abs(wanted).max()


def test_gradients_have_the_paper_form():
    covariance, planted = np.asarray(PROBLEM.covariance), np.asarray(PROBLEM.planted)
    value, key_query = np.asarray(LAYER.value), np.asarray(LAYER.key_query)
    error, imbalance = value @ covariance @ key_query - planted, value.T @ value - key_query @ covariance @ key_query.T
    by_value = 2 * error @ covariance @ key_query.T @ covariance + value @ covariance @ imbalance @ covariance
    pulled = covariance @ imbalance @ covariance @ key_query @ covariance
    by_key = 2 * covariance @ value.T @ error @ covariance - pulled
    found = PROBLEM.gradient(LAYER)
    assert np.allclose(found.value, by_value, rtol=0, atol=1e-13 * np.abs(by_value).max())
    assert np.allclose(found.key_query, by_key, rtol=0, atol=1e-13 * np.abs(by_key).max())


def test_the_lifted_gradient_is_cubic():
    whitened = np.asarray(PROBLEM.whiten(LAYER))
    expected = whitened @ whitened.T @ whitened - 2 * coupling(PROBLEM) @ whitened
    assert np.abs(np.asarray(PROBLEM.whitened_gradient(jnp.asarray(whitened))) - expected).max() < 1e-13


def test_coordinates_go_both_ways():
    again = PROBLEM.unwhiten(PROBLEM.whiten(LAYER))
    for name in ("value", "key_query"):
        assert np.allclose(getattr(again, name), getattr(LAYER, name), rtol=0, atol=1e-13)


def test_the_scale_free_balance_is_blind_to_scale_and_agrees_where_norms_agree():
    upper, lower = PROBLEM.whiten(LAYER)[:4], PROBLEM.whiten(LAYER)[4:]
    found = ScaleFreeBalance().value(upper, lower)
    assert float(ScaleFreeBalance().value(3.7 * upper, lower / 3.7)) == pytest.approx(float(found), rel=1e-13)
    assert float(Balance().value(3.7 * upper, lower / 3.7)) > 10 * float(Balance().value(upper, lower))
    level = jnp.sqrt(jnp.linalg.norm(lower) / jnp.linalg.norm(upper))
    assert float(Balance().value(level * upper, lower / level)) == pytest.approx(float(found), rel=1e-13)


def test_limiting_the_logits_keeps_the_product():
    upper, lower = PROBLEM.whiten(LAYER)[:4], PROBLEM.whiten(LAYER)[4:]
    larger, smaller = limit_logits(upper, lower, jnp.asarray(0.2))
    assert float(jnp.linalg.norm(smaller, 2)) == pytest.approx(0.2)
    assert np.allclose(larger @ smaller.T, upper @ lower.T, rtol=1e-13)
    same = limit_logits(upper, lower, jnp.asarray(1e3))
    assert np.array_equal(same[0], upper)


def whitened_direction(geometry, slope, covariance):
    """The direction as seen in W: nothing, the covariance on the right, or its extension on the left as well."""
    if geometry.name == "two_sided":
        return slope
    top = len(slope) - len(covariance)
    lower = covariance @ slope[top:] if geometry.name == "euclidean" else slope[top:]
    return jnp.concatenate([slope[:top], lower]) @ covariance


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_a_geometry_is_a_norm_and_its_steepest_direction(geometry, rng):
    """<gradient, change> is the inner product of the direction with the change; the same direction in W; the distance."""
    gradient, covariance = PROBLEM.gradient(LAYER), PROBLEM.covariance
    direction = geometry.precondition(gradient, covariance)
    change = AttentionLayer(rng.standard_normal((4, 3)), rng.standard_normal((3, 3)))
    moved = jax.tree.map(lambda x, y: x + y, direction, change)
    square = lambda one: layer_square(geometry.name, one, covariance)
    inner = square(moved) - square(direction)
    inner = (inner - square(change)) / 2
    expected = sum(
        float(jnp.vdot(x, y)) for x, y in zip(jax.tree.leaves(gradient), jax.tree.leaves(change), strict=True)
    )
    assert float(inner) == pytest.approx(expected, rel=1e-11)
    slope = PROBLEM.whitened_gradient(PROBLEM.whiten(LAYER))
    whitened = whitened_direction(geometry, slope, covariance)
    assert np.allclose(PROBLEM.whiten(direction), whitened, rtol=0, atol=1e-11 * float(jnp.abs(whitened).max()))


def test_two_sided_norm_is_the_norm_of_the_whitened_difference():
    square = layer_square("two_sided", LAYER, PROBLEM.covariance)
    assert square == pytest.approx(float(jnp.sum(PROBLEM.whiten(LAYER) ** 2)))


def test_the_eigenbasis_diagonalises_the_coupling():
    for problem in (PROBLEM, prescribed_spectrum(2, (0.05, 0.03, 0.01), 3.0, 1)):
        basis, sizes = eigenbasis(problem), np.asarray(problem.sizes)
        minus = np.concatenate([problem.left, -problem.right]) / np.sqrt(2)
        whole = np.concatenate([basis.plus, minus, basis.kernel], axis=1)
        assert np.abs(whole.T @ whole - np.eye(len(whole))).max() < 1e-14
        values = np.concatenate([sizes, -sizes, np.zeros(basis.kernel.shape[1])])
        assert np.abs(coupling(problem) @ whole - whole * values).max() < 1e-16


@pytest.mark.parametrize("outputs", [3, 5])
def test_hessian_spectrum(outputs, rng):
    problem = prescribed_spectrum(outputs, (0.05, 0.03, 0.01), 4.0, 8)
    point = balanced_point(problem, random_rotation(rng, 3))
    objective = lambda w: problem.whitened_excess(w) + problem.whitened_regulariser(w)
    size = point.size
    by_autodiff = np.asarray(jax.hessian(objective)(jnp.asarray(point))).reshape(size, size)
    assert np.abs(hessian(problem, point) - by_autodiff).max() < 1e-14
    found = np.linalg.eigvalsh(by_autodiff)
    assert np.abs(minimum_spectrum(problem) - found).max() < 1e-14
    assert curvature_range(problem, TwoSided()) == pytest.approx((0.02 if outputs > 3 else 0.04, 0.2))
    anywhere = 0.3 * rng.standard_normal(point.shape)
    elsewhere = np.asarray(jax.hessian(objective)(jnp.asarray(anywhere))).reshape(size, size)
    assert np.abs(hessian(problem, anywhere) - elsewhere).max() < 1e-13


@pytest.mark.parametrize("geometry", [Left(), Euclidean()], ids=lambda one: one.name)
def test_other_geometries_have_the_spectrum_of_their_linearised_step(geometry, rng):
    """Eigenvalues of the Jacobian of the whitened direction, a matrix that is not symmetric."""
    problem = prescribed_spectrum(4, (0.05, 0.03, 0.01), 6.0, 5)
    rotation = random_rotation(rng, 3)
    point = jnp.asarray(balanced_point(problem, rotation))
    field = lambda w: whitened_direction(geometry, problem.whitened_gradient(w), problem.covariance)
    jacobian = np.asarray(jax.jacfwd(field)(point)).reshape(point.size, point.size)
    expected = np.linalg.eigvals(jacobian)
    assert np.abs(expected.imag).max() < 1e-9
    assert np.abs(np.sort(expected.real) - spectrum(problem, geometry, rotation)).max() < 1e-10
    if isinstance(geometry, Left):
        low, high = curvature_range(problem, geometry, rotation)
        assert 0.02 / 6 <= low < high <= 0.2


def test_constants_of_the_paper():
    problem = prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 0)
    near, far = (contraction(problem, TwoSided(), share * np.sqrt(0.008)) for share in (0.5, 1.0))
    assert (near.alpha, near.beta) == pytest.approx((0.0175, 0.244426407), rel=1e-8)
    assert (far.alpha, far.beta) == pytest.approx((0.01, 0.292852814), rel=1e-8)
    assert contraction(problem, Left()).alpha == pytest.approx(0.002)


def test_one_sided_constants_scale_with_the_covariance():
    """Sigma -> 3 Sigma, A -> A/sqrt(3) keeps W: one-sided distances shrink by sqrt(3), the constants grow by 3."""
    problem = prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 0)
    other = AttentionRegression(3 * problem.covariance, problem.planted / np.sqrt(3))
    here, there = contraction(problem, Left()), contraction(other, Left())
    assert there.radius == pytest.approx(here.radius / np.sqrt(3))
    assert (there.alpha, there.beta) == pytest.approx((3 * here.alpha, 3 * here.beta))
    assert (there.step, there.factor) == pytest.approx((here.step / 3, here.factor))
    half = contraction(other, Left(), here.radius / 2 / np.sqrt(3))
    assert half.alpha == pytest.approx(3 * contraction(problem, Left(), here.radius / 2).alpha)
    both = contraction(problem, TwoSided()), contraction(other, TwoSided())
    assert (both[0].radius, both[0].alpha, both[0].beta) == pytest.approx((both[1].radius, both[1].alpha, both[1].beta))


def test_signs_of_singular_vectors_are_fixed():
    right = np.asarray(PROBLEM.right)
    assert (right[np.abs(right).argmax(axis=0), np.arange(3)] > 0).all()
    mirrored = AttentionRegression(PROBLEM.covariance, -PROBLEM.planted)
    assert np.allclose(mirrored.right, right, rtol=0, atol=1e-13)


def test_generators_have_the_numbers_of_their_description():
    found = attention_experiment()
    assert np.asarray(found.problem.sizes).round(4).tolist() == [0.05, 0.0367, 0.0267, 0.0070, 0.0026]
    assert float(found.problem.spread[0]) == pytest.approx(0.0139, abs=5e-5)
    assert float(found.problem.excess(found.start)) == pytest.approx(35.2732, abs=5e-5)
    noise = found.targets - found.inputs @ np.asarray(found.problem.planted).T
    assert noise.var() == pytest.approx(1e-3, rel=4 * np.sqrt(2 / noise.size))
    second = found.inputs.T @ found.inputs / len(found.inputs)
    assert np.abs(second - np.asarray(found.problem.covariance)).max() < 4 * np.sqrt(2 / 10_000)
    wide = prescribed_spectrum(2, (0.05, 0.03, 0.01), 5.0, 1)
    assert np.allclose(wide.sizes, [0.05, 0.03])
    assert wide.planted.shape == (2, 3)


EYE = np.eye(2)
BAD = {
    "covariance not square": (lambda: AttentionRegression(np.ones((2, 3)), EYE), "covariance", "(2, 3)"),
    "covariance asymmetric": (lambda: AttentionRegression([[1.0, 0.2], [0.1, 1.0]], EYE), "covariance", "asymmetry"),
    "covariance singular": (lambda: AttentionRegression([[1.0, 1.0], [1.0, 1.0]], EYE), "covariance", "0.707"),
    "covariance indefinite": (lambda: AttentionRegression([[1.0, 0.0], [0.0, -1.0]], EYE), "covariance", "-1"),
    "covariance with nan": (lambda: AttentionRegression([[1.0, np.nan], [0.0, 1.0]], EYE), "covariance", "nan"),
    "map of wrong width": (lambda: AttentionRegression(EYE, np.ones((2, 3))), "planted", "(2, 3)"),
    "zero map": (lambda: AttentionRegression(EYE, np.zeros((3, 2))), "planted", "only zeros"),
    "negative noise": (lambda: AttentionRegression(EYE, EYE, -1e-3), "noise", "-0.001"),
    "value of wrong shape": (
        lambda: PROBLEM.check_layer(AttentionLayer(np.ones((3, 3)), np.eye(3)), "test"),
        "value",
        "(3, 3)",
    ),
    "key-query not finite": (
        lambda: PROBLEM.check_layer(AttentionLayer(np.ones((4, 3)), np.full((3, 3), np.inf)), "test"),
        "key_query",
        "finite",
    ),
    "value a vector": (lambda: AttentionLayer(np.ones(3), np.eye(3)), "value", "(3,)"),
    "value ragged": (lambda: AttentionLayer([[1.0], [1.0, 2.0]], np.eye(2)), "value", "list"),
    "key-query of other width": (lambda: AttentionLayer(np.ones((4, 3)), np.eye(2)), "key_query", "(2, 2)"),
    "whitened of other height": (lambda: PROBLEM.unwhiten(jnp.ones((6, 3))), "whitened", "(7, 3)"),
    "unknown geometry": (lambda: geometry_of("right"), "geometry", "'right'"),
    "rotation not orthogonal": (lambda: balanced_point(PROBLEM, 2 * np.eye(3)), "rotation", "orthonormal"),
    "wide map": (lambda: minimum_spectrum(prescribed_spectrum(2, (0.05, 0.03, 0.01))), "problem", "m = 2"),
    "deficient map": (lambda: curvature_range(prescribed_spectrum(4, (0.05, 0.0)), TwoSided()), "problem", "rank 1"),
    "no radius": (lambda: contraction(PROBLEM, Euclidean()), "geometry", "euclidean"),
    "increasing sizes": (lambda: prescribed_spectrum(3, (0.01, 0.02)), "sizes", "0.02"),
    "condition below 1": (lambda: prescribed_spectrum(3, (0.02, 0.01), 0.5), "condition", "0.5"),
    "no sample": (lambda: attention_experiment(n=0), "n", "0"),
    "negative size": (lambda: attention_experiment(n=3, largest=-1.0), "largest", "-1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    call, argument, text = BAD[name]
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == argument
    assert text in str(caught.value)
