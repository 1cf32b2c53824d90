"""Elements that were picked from a batch depend on each other as the elements do."""

import numpy as np
import pytest

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.shapes.indexing import index, index_axes
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.covariances import elementwise_covariance

generator = np.random.default_rng(6)
FIRST, SECOND = np.array([0, 2, 1, 1, 3, 0, 2]), np.array([1, 2, 0, 1, 0, 3, 2])
M, V = 0.7, 0.3  # of a scalar
MEAN, VARIANCE = generator.normal(size=(4, 2)), generator.uniform(0.1, 0.5, size=(4, 2))


def site(name, mean, variance, event_dim, covariance="full"):
    return site_value(
        name, mean, variance, propagation_of(covariance, "exact"), event_dim=event_dim
    )


def effects(covariance="full"):
    """Scalars z of a plate, and a scale t."""
    z = site("z", MEAN[:, 0], VARIANCE[:, 0], 0, covariance)
    return z, site("t", np.array(M), np.array(V), 0, covariance)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_one_key_keeps_the_covariance_of_two_values(covariance):
    """x = t z and y = t w share t."""
    z, t = effects(covariance)
    w = site("w", MEAN[:, 1], VARIANCE[:, 1], 0, covariance)
    x, y = multiply(t, z).gaussian(), multiply(t, w).gaussian()
    found = elementwise_covariance(index(x, (FIRST,)), index(y, (FIRST.copy(),)))
    np.testing.assert_allclose(found, (V * MEAN[:, 0] * MEAN[:, 1])[FIRST], rtol=1e-12)


def test_one_feature_of_picked_rows_keeps_its_covariance():
    """Rows [2] of t z: their two features share t."""
    z, t = site("z", MEAN, VARIANCE, 1), site("t", np.array(M), np.array(V), 0)
    rows = multiply(t, z).gaussian()
    picked = [index_axes(rows, {0: FIRST, 1: np.full(7, i)}) for i in (0, 1)]
    np.testing.assert_allclose(picked[1].mean, M * MEAN[FIRST, 1], rtol=1e-12)
    found = elementwise_covariance(*picked)
    np.testing.assert_allclose(found, (V * MEAN[:, 0] * MEAN[:, 1])[FIRST], rtol=1e-12)


def test_picked_elements_share_scalars():
    z, t = effects()
    shifted = index(add(z, t).gaussian(), (FIRST,))
    slope = generator.normal(size=7)
    line = add(shifted, scale_shift(t, slope)).gaussian()
    expected = VARIANCE[FIRST, 0] + V * (1 + slope) ** 2
    np.testing.assert_allclose(line.variance, expected, rtol=1e-12)


def test_different_keys_meet_where_they_choose_one_element():
    z, _ = effects()
    difference = subtract(index(z, (FIRST,)), index(z, (SECOND,))).gaussian()
    expected = VARIANCE[FIRST, 0] + VARIANCE[SECOND, 0] - 2 * VARIANCE[FIRST, 0] * (FIRST == SECOND)
    np.testing.assert_allclose(difference.variance, expected, rtol=1e-12, atol=1e-15)
    counts = np.bincount(FIRST, minlength=4) - np.bincount(SECOND, minlength=4)
    np.testing.assert_allclose(
        reduce_sum(difference).variance, counts**2 @ VARIANCE[:, 0], rtol=1e-12
    )


def test_different_keys_of_dependent_elements():
    """What the elements share cancels, in z + t and in exp(z + t) alike."""
    z, t = effects()
    shifted = add(z, t).gaussian()
    difference = subtract(index(shifted, (FIRST,)), index(shifted, (SECOND,))).gaussian()
    plain = subtract(index(z, (FIRST,)), index(z, (SECOND,))).gaussian()
    np.testing.assert_allclose(difference.variance, plain.variance, rtol=1e-9, atol=1e-12)
    both = [apply(activation("exp"), index(shifted, (key,))).gaussian() for key in (FIRST, SECOND)]
    shared = np.exp(V) - 1 + (np.exp(V + VARIANCE[FIRST, 0]) - np.exp(V)) * (FIRST == SECOND)
    expected = both[0].mean * both[1].mean * shared
    np.testing.assert_allclose(elementwise_covariance(*both), expected, rtol=1e-9)


def test_a_sum_of_differences_of_neighbours_telescopes():
    z, _ = effects()
    difference = subtract(index(z, (slice(1, None),)), index(z, (slice(None, -1),))).gaussian()
    np.testing.assert_allclose(difference.variance, VARIANCE[1:, 0] + VARIANCE[:-1, 0], rtol=1e-12)
    ends = VARIANCE[0, 0] + VARIANCE[-1, 0]
    np.testing.assert_allclose(reduce_sum(difference).variance, ends, rtol=1e-12)
