"""Values that are made of components of one site: slices, gathers, and what is stacked of them."""

import warnings

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.shapes.concatenation import concatenate, pad, stack
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian, Spread, cross_covariance, elementwise_covariance
from moment_calculus.values.ancestry import is_rearranged
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements
from moment_calculus.values.step import entries_of

generator = np.random.default_rng(5)
SIZE = 6
MEAN, VARIANCE = generator.normal(size=SIZE), generator.uniform(0.2, 1.5, size=SIZE)
MATRIX = generator.normal(size=(SIZE, 2)), generator.uniform(0.2, 1.5, size=(SIZE, 2))
ROWS = np.array([4, 0, 4, 2, 1])
SCALARS, VECTOR = 0, 1


@pytest.fixture(params=["full", "diagonal"])
def propagation(request):
    return propagation_of(request.param, "exact")


def site(propagation, event_dim=SCALARS, moments=(MEAN, VARIANCE)):
    return site_value("z", *moments, propagation, event_dim=event_dim)


def neighbours(z):
    """z_t − 0.8 z_{t−1}."""
    return subtract(index(z, slice(1, None)), scale_shift(index(z, slice(None, -1)), 0.8))


LINEAR = {
    "neighbours": (neighbours, np.eye(SIZE)[1:] - 0.8 * np.eye(SIZE)[:-1]),
    "reversed": (
        lambda z: add(z, index(z, slice(None, None, -1))),
        np.eye(SIZE) + np.eye(SIZE)[::-1],
    ),
    "gathered": (
        lambda z: subtract(scale_shift(index(z, ROWS), 2.0), index(z, ROWS[::-1].copy())),
        2 * np.eye(SIZE)[ROWS] - np.eye(SIZE)[ROWS[::-1]],
    ),
    "an element and all": (lambda z: add(index(z, 2), z), np.eye(SIZE) + np.eye(SIZE)[2]),
    "three of them": (
        lambda z: add(neighbours(z), scale_shift(index(z, slice(1, None)), 3.0)),
        4 * np.eye(SIZE)[1:] - 0.8 * np.eye(SIZE)[:-1],
    ),
    "stacked": (
        lambda z: subtract(z, stack([scale_shift(index(z, t - 1), 0.8) for t in range(SIZE)], -1)),
        np.eye(SIZE) - 0.8 * np.roll(np.eye(SIZE), 1, axis=0),
    ),
    "joined": (
        lambda z: subtract(z, concatenate([index(z, slice(3, 6)), index(z, slice(0, 3))], -1)),
        np.eye(SIZE) - np.roll(np.eye(SIZE), 3, axis=0),
    ),
}


@pytest.mark.parametrize("event_dim", [SCALARS, VECTOR])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_combinations_are_exact(name, event_dim, propagation):
    program, matrix = LINEAR[name]
    value = program(site(propagation, event_dim))
    np.testing.assert_allclose(value.mean, matrix @ MEAN)
    np.testing.assert_allclose(value.variance, matrix**2 @ VARIANCE)


@pytest.mark.parametrize("name", [name for name in LINEAR if name != "joined"])
def test_components_of_a_vector_are_dependent_as_they_should_be(name):
    program, matrix = LINEAR[name]
    value = program(site(Propagation(), VECTOR))
    np.testing.assert_allclose(value.joint_covariance(), (matrix * VARIANCE) @ matrix.T)


def test_elements_of_a_gather_are_dependent_only_where_they_are_the_same(propagation):
    z = site(propagation, VECTOR, MATRIX)
    first, second = index(z, (ROWS, 0)), index(z, (ROWS, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = add(first, scale_shift(second, 3.0))
        again = add(first, index(index(z, (Ellipsis, 0)), ROWS))
    variance = MATRIX[1][ROWS]
    np.testing.assert_allclose(value.variance, variance @ [1.0, 9.0])
    np.testing.assert_allclose(again.variance, 4 * variance[:, 0])


def test_products_and_functions_of_neighbours(propagation):
    z = site(propagation)
    left, right = index(z, slice(1, None)), index(z, slice(None, -1))
    product = multiply(left, right)
    np.testing.assert_allclose(product.mean, MEAN[1:] * MEAN[:-1])
    squares = MEAN**2 + VARIANCE
    np.testing.assert_allclose(product.variance, squares[1:] * squares[:-1] - product.mean**2)
    curved = apply(activation("exp"), left).gaussian()
    expected = np.exp(MEAN[1:] + VARIANCE[1:] / 2) * VARIANCE[1:]
    np.testing.assert_allclose(elementwise_covariance(curved, index(z, slice(1, 6))), expected)
    np.testing.assert_allclose(elementwise_covariance(curved, right), np.zeros(SIZE - 1))


def test_covariance_of_a_batch_with_the_features_of_the_same_site():
    z = site(Propagation())
    features = stack([index(z, t) for t in range(SIZE)], -1)
    expected = np.diag(VARIANCE)[ROWS][:, None, :]
    np.testing.assert_allclose(cross_covariance(index(z, ROWS), features), expected)


def test_rows_that_are_stacked_keep_their_covariance_with_the_whole(propagation):
    z = site(propagation, VECTOR, MATRIX)
    mixed = [
        add(index(z, t), scale_shift(index(z, t - 1), np.array([0.5, 2.0]))) for t in (1, 2, 3)
    ]
    difference = subtract(stack(mixed, -2), index(z, slice(1, 4)))
    np.testing.assert_allclose(difference.variance, MATRIX[1][:3] * np.array([0.25, 4.0]))


def test_differences_of_neighbours_are_not_taken_as_independent(propagation):
    z = site(propagation)
    value = neighbours(z)
    assert is_rearranged(index(z, slice(1, None)), index(z, slice(None, -1)))
    assert not value.batch_independent
    assert not value.independent
    weights = np.array([1.0, *[0.2] * (SIZE - 2), 0.8]) ** 2  # of Σ (z_t − 0.8 z_{t−1})
    if propagation.has_full_covariance:
        np.testing.assert_allclose(reduce_sum(value, [0]).variance, VARIANCE @ weights[::-1])
        return
    with pytest.raises(UnsupportedMoments, match="elements of the batch"):
        reduce_sum(value, [0])


def test_values_that_keep_their_places_stay_apart(propagation):
    z = index(site(propagation), ROWS[1:])
    assert not is_rearranged(scale_shift(z, 2.0), apply(activation("tanh"), z).gaussian())
    parts = [index(site(propagation), slice(0, 3)), index(site(propagation), slice(3, 6))]
    assert add(*parts).batch_independent


def padded(array, config, fill):
    return np.pad(array, [entry[:2] for entry in config], constant_values=fill)


def test_what_is_computed_is_no_component(propagation):
    z = site(propagation)
    assert entries_of(reduce_sum(z, [0], keepdims=True)) is None
    assert entries_of(pad(z, padded, [(1, 0, 0)], 0.0)) is None
    assert entries_of(scale_shift(z, 2.0)) is None
    places = entries_of(permute(reshape(z, (2, 3)), (1, 0))).indices()
    np.testing.assert_array_equal(places, np.arange(SIZE).reshape(2, 3).T)


def test_dependent_components_are_no_components_of_a_site():
    z = Gaussian(MEAN, Spread(covariance=np.eye(SIZE) + 0.5), support=all_elements(["z"]))
    assert entries_of(z) is None
    assert entries_of(index(z, slice(1, None))) is None
    value = neighbours(z)
    matrix = LINEAR["neighbours"][1]
    np.testing.assert_allclose(value.joint_covariance(), matrix @ (np.eye(SIZE) + 0.5) @ matrix.T)
