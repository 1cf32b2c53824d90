"""Inverses of Hessians against NumPy's, and draws against their covariance."""

import numpy as np
import pytest

from moment_inference.errors import Indefinite, Undetermined
from moment_inference.response.solvers import Arrow, ConjugateGradients, Dense, Partition

ELEMENTS, INSIDE, BORDER = 12, 3, 4
SIZE = ELEMENTS * INSIDE + BORDER
PRECISION = np.finfo(float).eps


def positive(size, seed=0, scales=None):
    """A positive definite matrix, in units of six orders of magnitude."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size)) + 2 * np.eye(size)
    scales = 10 ** rng.uniform(-3, 3, size) if scales is None else scales
    return scales[:, None] * (root @ root.T) * scales


def arrow():
    """A positive definite arrow with its partition, its parameters in any order."""
    rng = np.random.default_rng(1)
    whole = positive(SIZE, 1, np.ones(SIZE))
    elements = np.concatenate([np.repeat(np.arange(ELEMENTS), INSIDE), np.full(BORDER, -1)])
    apart = (elements[:, None] != elements) & (elements[:, None] >= 0) & (elements >= 0)
    whole[apart] = 0
    whole += np.diag(np.abs(whole).sum(1))
    order = rng.permutation(SIZE)
    return whole[np.ix_(order, order)], elements[order]


def inverses():
    matrix = positive(SIZE)
    shape, elements = arrow()
    return {
        "dense": (matrix, Dense(matrix, PRECISION)),
        "products": (
            matrix,
            ConjugateGradients(matrix.__matmul__, np.diag(matrix) ** -0.5, PRECISION),
        ),
        "arrow": (shape, Arrow.of(shape.__matmul__, Partition.by(elements), PRECISION)),
    }


@pytest.mark.parametrize("kind", ["dense", "arrow", "products"])
def test_inverses_solve(kind):
    matrix, inverse = inverses()[kind]
    expected = np.linalg.inv(matrix)
    units = np.sqrt(np.diagonal(expected))
    rows = np.random.default_rng(2).normal(size=(5, SIZE)) / units
    np.testing.assert_allclose(inverse.solve(rows) / units, rows @ expected / units, atol=1e-6)
    diagonal = inverse.diagonal()
    assert (diagonal is None) == (kind == "products")
    if diagonal is not None:
        np.testing.assert_allclose(diagonal, units**2, rtol=1e-8)


@pytest.mark.parametrize("kind", ["dense", "arrow", "products"])
def test_draws_have_the_covariance(kind):
    matrix, inverse = inverses()[kind]
    count = 4000 if kind != "products" else 400  # each takes a basis of its own
    expected = np.linalg.inv(matrix)
    units = np.sqrt(np.diagonal(expected))
    draws = inverse.draws(np.random.default_rng(3), count) / units
    errors = draws.T @ draws / count - expected / np.multiply.outer(units, units)
    assert np.abs(errors).max() < 6 * np.sqrt(2 / count)
    assert np.sqrt((errors**2).mean()) < 1.5 * np.sqrt(2 / count)


@pytest.mark.parametrize("kind", ["dense", "arrow", "products"])
def test_negative_curvature_is_found(kind):
    matrix, elements = arrow()
    matrix[0, 0] = -1e3

    def make():
        if kind == "dense":
            return Dense(matrix, PRECISION)
        if kind == "arrow":
            return Arrow.of(matrix.__matmul__, Partition.by(elements), PRECISION)
        return ConjugateGradients(matrix.__matmul__, np.ones(SIZE), PRECISION).solve(
            np.ones((1, SIZE))
        )

    with pytest.raises(Indefinite) as caught:
        make()
    direction = caught.value.direction
    assert direction @ matrix @ direction < 0
    assert caught.value.eigenvalue < 0


def test_negative_curvature_of_the_border_is_found():
    matrix, elements = arrow()
    (border,) = np.nonzero(elements < 0)
    matrix[border[0], border[0]] = 1e-3
    with pytest.raises(Indefinite) as caught:
        Arrow.of(matrix.__matmul__, Partition.by(elements), PRECISION)
    direction = caught.value.direction
    assert direction @ matrix @ direction < 0


def test_what_is_no_arrow_is_none():
    matrix, elements = arrow()
    rows = [np.nonzero(elements == element)[0][0] for element in (0, 1)]
    matrix[rows[0], rows[1]] = matrix[rows[1], rows[0]] = 0.5
    assert Arrow.of(matrix.__matmul__, Partition.by(elements), PRECISION) is None


FLAT = np.array([1.0, -1.0, 0.0]) / np.sqrt(2)


def with_a_flat_direction(kind):
    matrix = np.array([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]])
    if kind == "dense":
        return matrix, Dense(matrix, PRECISION)
    return matrix, ConjugateGradients(matrix.__matmul__, np.ones(3), PRECISION)


@pytest.mark.parametrize("kind", ["dense", "products"])
def test_a_flat_direction_is_left_out_and_refused(kind):
    matrix, inverse = with_a_flat_direction(kind)
    rows = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    expected = rows @ np.linalg.pinv(matrix)
    np.testing.assert_allclose(inverse.solve(rows), expected, atol=1e-12)
    tilted = rows + 3 * FLAT
    np.testing.assert_allclose(inverse.solve_ignoring_flat(tilted), expected, atol=1e-9)
    with pytest.raises(Undetermined) as caught:
        inverse.solve(np.array([[1.0, 0.0, 0.0]]))
    found = caught.value.direction / np.linalg.norm(caught.value.direction)
    assert abs(found @ FLAT) == pytest.approx(1)


def test_variances_along_a_flat_direction_are_infinite():
    inverse = with_a_flat_direction("dense")[1]
    np.testing.assert_array_equal(np.isinf(inverse.diagonal()), [True, True, False])


def test_elements_with_unlike_parameters_make_no_partition():
    assert Partition.by(np.array([0, 0, 1, -1])) is None
    assert Partition.by(np.array([-1, -1])) is None
    found = Partition.by(np.array([1, -1, 0, 1, 0]))
    np.testing.assert_array_equal(found.local, [[2, 4], [0, 3]])
    np.testing.assert_array_equal(found.border, [1])


class Linear:
    """A linear functional with jacobian G."""

    def __init__(self, jacobian):
        self.jacobian, self.value = jacobian, np.zeros(len(jacobian))

    def vjp(self, rows):
        return rows @ self.jacobian

    def jvp(self, rows):
        return rows @ self.jacobian.T


def test_an_arrow_knows_the_variances_of_what_is_local():
    matrix, elements = arrow()
    inverse = Arrow.of(matrix.__matmul__, Partition.by(elements), PRECISION)
    rng = np.random.default_rng(4)
    owners = rng.integers(0, ELEMENTS, 30)
    jacobian = rng.normal(size=(30, SIZE)) * ((elements == owners[:, None]) | (elements < 0))
    jacobian[3, elements >= 0] = 0
    exact = jacobian @ np.linalg.inv(matrix) @ jacobian.T
    everything, functional = slice(0, 30), Linear(jacobian)
    for width in (1, 2, 30):
        starts = range(0, 30, width)
        expected = [exact[at : at + width, at : at + width] for at in starts]
        found = inverse.blocks(functional, everything, width)
        np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(inverse.blocks(functional, slice(4, 8), 4), [exact[4:8, 4:8]])
    assert inverse.blocks(Linear(rng.normal(size=(30, SIZE))), everything, 1) is None
