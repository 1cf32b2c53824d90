"""Newton's method in natural parameters, on a Poisson regression whose ELBO has a closed form.

The oracle is SciPy's minimisation of the same loss, by the parameters as they are.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from moment_guides.families.gaussian import GaussianParameters
from moment_inference.optimisation.local_map import LocalMap
from moment_inference.optimisation.natural_newton import Neighbourhood, natural_newton
from moment_inference.optimisation.outcome import Outcome
from moment_inference.optimisation.rounds import DeterministicLoss
from moment_inference.response.natural_inverse import NaturalInverse

ROWS, WIDTH = 30, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, WIDTH)) / 2
Y = RANDOM.poisson(np.exp(X @ np.array([0.5, -0.5, 0.2, 1.0]) + 0.4))


def layout(blocks):
    """A Gaussian of independent blocks over the weights, and an intercept that is none."""
    names, width = range(blocks), WIDTH // blocks
    locs = np.arange(WIDTH).reshape(blocks, width)
    below = blocks * width * (width - 1) // 2
    factors = 2 * WIDTH + np.arange(below).reshape(len(names), -1)
    return GaussianParameters(locs, WIDTH + locs, factors, np.array([2 * WIDTH + below]))


def value_and_slope(parameters, vector):
    """The negative ELBO with a prior N(0, I), and its slope by the vector."""
    point = parameters.point(vector)
    mean, (intercept,) = point.mean.ravel(), point.rest
    rows = X.reshape(ROWS, *point.mean.shape)
    through = np.einsum("nbi,bij->nbj", rows, point.root)
    rate = np.exp(X @ mean + intercept + (through**2).sum((1, 2)) / 2)
    diagonal = np.diagonal(point.root, axis1=1, axis2=2)
    loss = rate.sum() - Y @ (X @ mean + intercept) - np.log(diagonal).sum()
    loss += (mean @ mean + (point.root**2).sum()) / 2
    by_root = np.einsum("n,nbi,nbj->bij", rate, rows, through) + point.root
    by_root = by_root - np.eye(diagonal.shape[1]) / diagonal[..., None]
    by_mean = (X.T @ (rate - Y) + mean).reshape(point.mean.shape)
    by = point._replace(mean=by_mean, root=np.tril(by_root), rest=np.array([(rate - Y).sum()]))
    return loss, slope_of(parameters, point, by)


def slope_of(parameters, point, by):
    """A function's slope by the vector from those by mean, L and rest."""
    scale = np.diagonal(point.root, axis1=1, axis2=2)
    rows, columns = np.tril_indices(scale.shape[1], -1)
    slope = np.empty(parameters.size)
    slope[parameters.locs], slope[parameters.rest] = by.mean, by.rest
    slope[parameters.scales] = (by.root * point.root).sum(2) / scale * -np.expm1(-scale)
    slope[parameters.factors] = (scale[..., None] * by.root)[:, rows, columns]
    return slope


def objective(parameters, is_compiled=True):
    """The loss for the method, with products by differences of slopes."""
    both = lambda vector: value_and_slope(parameters, vector)  # noqa: E731

    def product(vector, direction):
        ahead, behind = (both(vector + sign * 1e-5 * direction)[1] for sign in (1, -1))
        return (ahead - behind) / 2e-5

    def hessian(vector):
        return np.stack([product(vector, row) for row in np.eye(parameters.size)])

    units = lambda vector: np.full_like(vector, 0.2)  # noqa: E731
    return DeterministicLoss(
        both, hessian, product, units, 2e-16, gaussian=parameters, is_compiled=is_compiled
    )


def start(parameters):
    vector = np.zeros(parameters.size)
    vector[parameters.scales] = np.log(np.expm1(0.3))
    return vector


def fitted(parameters, is_compiled=True):
    loss = objective(parameters, is_compiled)
    first = loss.value_and_slope(start(parameters))[0]
    outcome = Outcome([first], point=start(parameters))
    return natural_newton(loss, parameters, outcome, 50, 1e-9, None), loss


def random_vector(parameters):
    return np.random.default_rng(1).normal(size=parameters.size) / 2


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_vector_of_parameters_comes_back(blocks):
    parameters = layout(blocks)
    vector = random_vector(parameters)
    np.testing.assert_allclose(parameters.vector(parameters.point(vector)), vector, atol=1e-14)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_derivatives_by_coordinates_are_those_of_differences(blocks):
    parameters = layout(blocks)
    vector = random_vector(parameters)
    local = LocalMap(parameters, parameters.point(vector), np.array([0.5]))
    step = 0.05 * np.random.default_rng(2).normal(size=local.size)
    there = lambda at: parameters.vector(local.point(at))  # noqa: E731
    slope = value_and_slope(parameters, there(step))[1]
    differences = [
        (value_and_slope(parameters, there(step + e))[0])
        - value_and_slope(parameters, there(step - e))[0]
        for e in 1e-5 * np.eye(local.size)
    ]
    np.testing.assert_allclose(
        local.gradient(step, slope), np.array(differences) / 2e-5, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("blocks", [1, 4])
def test_a_direction_is_the_transpose_of_a_gradient(blocks):
    parameters = layout(blocks)
    local = LocalMap(parameters, parameters.point(random_vector(parameters)), np.array([0.5]))
    random = np.random.default_rng(3)
    step, row = random.normal(size=local.size), random.normal(size=parameters.size)
    gradient = local.gradient(np.zeros(local.size), row)
    np.testing.assert_allclose(gradient @ step, row @ local.direction(step), rtol=1e-12)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_it_ends_where_scipy_does(blocks, is_compiled):
    parameters = layout(blocks)
    outcome, loss = fitted(parameters, is_compiled)
    expected = minimize(loss.value_and_slope, start(parameters), jac=True, tol=1e-9)
    assert outcome.converged
    assert outcome.steps <= 12
    np.testing.assert_allclose(outcome.loss, expected.fun, atol=1e-8)
    np.testing.assert_allclose(outcome.point, expected.x, atol=1e-4)


def test_the_curvature_is_that_of_the_coordinates():
    parameters = layout(1)
    vector = random_vector(parameters)
    both = [
        Neighbourhood.of(objective(parameters, flag), parameters, vector, np.array([0.5]))
        for flag in (True, False)
    ]
    direction = np.random.default_rng(4).normal(size=both[0].map.size)
    by_differences, by_products = (each.product(direction) for each in both)
    np.testing.assert_allclose(by_differences, by_products, rtol=1e-5, atol=1e-5)
    other = np.random.default_rng(5).normal(size=both[0].map.size)
    np.testing.assert_allclose(
        by_products @ other, both[1].product(other) @ direction, rtol=1e-6, atol=1e-6
    )


def test_one_natural_step_solves_a_conjugate_model():
    parameters = GaussianParameters(
        np.array([[0, 1]]), np.array([[2, 3]]), np.array([[4]]), np.zeros(0, int)
    )
    precision, shift = np.array([[2.0, 0.6], [0.6, 1.0]]), np.array([1.0, -0.5])
    origin = parameters.point(np.array([0.3, -0.2, 0.1, 0.4, 0.7]))
    local = LocalMap(parameters, origin, np.zeros(0))
    root = origin.root[0]
    by_mean = precision @ origin.mean[0] - shift
    by_root = np.tril(precision @ root) - np.diag(1 / np.diagonal(root))
    change = origin._replace(mean=by_mean[None], root=by_root[None], rest=np.zeros(0))
    slope = slope_of(parameters, origin, change)
    moved = local.moved(-local.gradient(np.zeros(local.size), slope))
    np.testing.assert_allclose(moved.root[0] @ moved.root[0].T, np.linalg.inv(precision), rtol=1e-7)
    np.testing.assert_allclose(moved.mean[0], np.linalg.solve(precision, shift), rtol=1e-7)


def test_a_step_beyond_all_gaussians_is_none():
    parameters = layout(1)
    local = LocalMap(parameters, parameters.point(start(parameters)), np.array([0.5]))
    blown = local.joined(np.zeros((1, WIDTH)), 2 * np.eye(WIDTH)[None], np.zeros(1))
    assert local.moved(blown) is None


@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_inverse_is_that_of_the_hessian(is_compiled):
    parameters = layout(1)
    outcome, loss = fitted(parameters, is_compiled)
    rows = np.random.default_rng(6).normal(size=(3, parameters.size))
    inverse = NaturalInverse(loss, outcome.point)
    hessian = loss.hessian(outcome.point)
    expected = np.linalg.solve((hessian + hessian.T) / 2, rows.T).T
    np.testing.assert_allclose(inverse.solve(rows), expected, rtol=2e-4, atol=1e-5)
    noise = SimpleNamespace(normal=lambda size: np.eye(size[0]))  # so that draws are a root
    root = inverse.draws(noise, parameters.size)
    covariance = np.linalg.inv((hessian + hessian.T) / 2)
    np.testing.assert_allclose(root.T @ root, covariance, rtol=1e-4, atol=1e-5)
