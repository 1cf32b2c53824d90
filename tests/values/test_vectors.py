"""Products of exponentials, and contracted batches of dependent scalars."""

import numpy as np
import pytest

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.elementary import exponential_parts, log
from moment_calculus.operations.elementwise.products import divide, multiply
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.reductions import cumulative_sum, reduce_sum
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import broadcast, reshape
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.ancestry import as_vector

generator = np.random.default_rng(5)
MEAN, VARIANCE = generator.normal(size=4), generator.uniform(0.1, 0.5, size=4)
M, V = 0.7, 0.3  # of a scalar
MAP = generator.normal(size=(6, 4))


def plate(name="z", covariance="full"):
    """One scalar for each of four elements of a batch."""
    return site_value(name, MEAN, VARIANCE, propagation_of(covariance, "exact"), event_dim=0)


def scalar(name="t", covariance="full"):
    propagation = propagation_of(covariance, "exact")
    return site_value(name, np.array(M), np.array(V), propagation, event_dim=0)


def exponential(value, rate=1.0):
    return apply(activation("exp"), scale_shift(value, rate))


def log_normal(mean, variance):
    return np.exp(mean + variance / 2), np.exp(2 * mean + variance) * np.expm1(variance)


def test_products_and_quotients_of_exponentials_are_exponentials():
    z, t = plate(), scalar()
    product = multiply(scale_shift(exponential(z), 3.0), exponential(t, 0.5))
    quotient = divide(exponential(z), product)
    mean, variance = log_normal(MEAN + 0.5 * M, VARIANCE + 0.25 * V)
    np.testing.assert_allclose(product.gaussian().mean, 3 * mean, rtol=1e-12)
    np.testing.assert_allclose(product.gaussian().variance, 9 * variance, rtol=1e-12)
    mean, variance = log_normal(-0.5 * M, 0.25 * V)  # z cancels
    np.testing.assert_allclose(quotient.gaussian().mean, np.full(4, mean / 3), rtol=1e-12)
    np.testing.assert_allclose(quotient.gaussian().variance, np.full(4, variance / 9), rtol=1e-12)
    logarithm = log(product).gaussian()
    np.testing.assert_allclose(logarithm.mean, MEAN + 0.5 * M + np.log(3), rtol=1e-12)


def test_other_products_are_no_exponentials():
    z, t = plate(), scalar()
    shifted = scale_shift(exponential(t), 1.0, 1.0)
    assert exponential_parts(multiply(exponential(z), shifted)) is None
    assert exponential_parts(multiply(exponential(z), t)) is None


def effects(z, t):
    """A common mean, and a scale that is the exponential of it."""
    return add(multiply(exponential(t), z), t).gaussian()


def test_rows_of_a_batch_that_gains_an_axis_stay_vectors():
    factors = np.array([[1.0], [2.0], [-0.5]])
    rows = multiply(effects(plate(), scalar()), factors).gaussian()
    expected = exact_covariance(np.eye(4)) * (factors**2)[:, :, None, None]
    actual = as_vector(reshape(rows, (3, 1, 4))).covariance
    np.testing.assert_allclose(actual, expected, rtol=1e-9)
    assert as_vector(reshape(rows, (3, 2, 2))) is None


def test_picked_elements_of_two_plates_are_a_vector():
    keys = np.array([0, 1, 1, 0, 1]), np.array([1, 0, 1, 1, 0])
    picked = index(effects(reshape(plate(), (2, 2)), scalar()), keys)
    expected = exact_covariance(np.eye(4)[2 * keys[0] + keys[1]])
    np.testing.assert_allclose(as_vector(picked).covariance, expected, rtol=1e-9)


def exact_covariance(matrix):
    """Of the images of t + eᵗ z, by conditioning on t in quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights, points = weights / weights.sum(), M + np.sqrt(V) * nodes
    means = (points[:, None] + np.exp(points)[:, None] * MEAN) @ matrix.T
    within = np.sum(weights * np.exp(2 * points)) * (matrix * VARIANCE) @ matrix.T
    centre = weights @ means
    return within + np.einsum("k,ki,kj->ij", weights, means - centre, means - centre)


MAPS = {
    "a linear map": (lambda value: linear(value, MAP), MAP),
    "of rows": (lambda value: linear(broadcast(value, (1, 4)), MAP), MAP),
    "a sum": (lambda value: reduce_sum(value, keepdims=True), np.ones((1, 4))),
    "cumulative sums": (
        lambda value: linear(cumulative_sum_of(value), MAP),
        MAP @ np.tril(np.ones((4, 4))),
    ),
}


def cumulative_sum_of(value):
    """Of the vector itself: sums of dependent elements of a batch are refused."""
    return cumulative_sum(as_vector(value), 0)


@pytest.mark.parametrize("name", MAPS)
def test_contractions_know_what_elements_of_a_batch_share(name):
    apply_map, matrix = MAPS[name]
    result = apply_map(effects(plate(), scalar())).gaussian()
    expected = exact_covariance(matrix)
    np.testing.assert_allclose(
        np.squeeze(result.variance), np.squeeze(np.diag(expected)), rtol=1e-9
    )
    independent = (matrix**2) @ np.diag(exact_covariance(np.eye(4)))
    assert np.abs(independent / np.diag(expected) - 1).max() > 0.3  # which the test must tell apart


def test_cumulative_sums_of_a_plate_keep_their_covariance():
    t = scalar()
    sums = multiply(t, cumulative_sum(plate(), 0))
    result = linear(sums.gaussian(), MAP)
    triangle = MAP @ np.tril(np.ones((4, 4)))
    expected = (M * M + V) * (triangle**2) @ VARIANCE + V * (triangle @ MEAN) ** 2
    np.testing.assert_allclose(result.variance, expected, rtol=1e-12)


def test_one_value_is_one_vector():
    value = effects(plate(), scalar())
    assert as_vector(value) is as_vector(value)
    assert as_vector(broadcast(value, (3, 4))).axis == -1
