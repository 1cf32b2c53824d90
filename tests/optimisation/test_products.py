"""Newton's method beyond a thousand parameters, by products of the Hessian with directions."""

import numpy as np
import pytest

from moment_inference.optimisation.minimiser import decrement_by_products, newton, newton_decrement
from moment_inference.optimisation.rounds import DeterministicLoss

rng = np.random.default_rng(4)
SIZE, FACTORS = 1500, 10
SCALES = np.logspace(-4, 4, SIZE)
CENTRE = SCALES * rng.normal(size=SIZE)
LOADINGS = rng.normal(size=(SIZE, FACTORS)) / SCALES[:, None]


def no_matrix(point):
    raise AssertionError("the dense Hessian is not asked for")


def correlated(point):
    return point / SCALES**2 + LOADINGS @ (LOADINGS.T @ point)


def quadratic(point):
    slope = correlated(point - CENTRE)
    return float(0.5 * (point - CENTRE) @ slope), slope


def by_products(value_and_slope, along, units=np.ones_like, precision=2e-16):
    return DeterministicLoss(value_and_slope, no_matrix, along, units, precision)


ILL_SCALED = by_products(
    quadratic, lambda point, direction: correlated(direction), lambda _: SCALES
)


def bent(point):
    """Σ cosh xᵢ − bᵀx and a rank of ten: convex, far from quadratic."""
    return float(np.cosh(point).sum() - BEND @ point + 0.5 * (MIX.T @ point) @ (MIX.T @ point)), (
        np.sinh(point) - BEND + MIX @ (MIX.T @ point)
    )


BEND, MIX = 30 * rng.normal(size=SIZE), rng.normal(size=(SIZE, FACTORS)) / 10
NOT_QUADRATIC = by_products(
    bent, lambda point, direction: np.cosh(point) * direction + MIX @ (MIX.T @ direction)
)


def test_an_ill_scaled_quadratic_is_solved():
    found = newton(ILL_SCALED, np.zeros(SIZE))
    assert found.converged, found.reason
    assert found.steps < 30
    assert found.decrement <= 1e-9
    np.testing.assert_allclose(found.point / SCALES, CENTRE / SCALES, atol=1e-4)


def test_a_function_that_is_not_quadratic_is_solved():
    found = newton(NOT_QUADRATIC, np.zeros(SIZE))
    assert found.converged, found.reason
    assert found.steps < 40
    assert abs(bent(found.point)[1]).max() < 1e-3


def test_where_it_stops_the_decrement_is_that_of_the_dense_hessian():
    found = newton(NOT_QUADRATIC, np.zeros(SIZE), steps=3)
    assert (found.steps, found.converged, found.reason) == (3, False, "stopped after 3 steps")
    dense = np.diag(np.cosh(found.point)) + MIX @ MIX.T
    exact = newton_decrement(bent(found.point)[1], dense)
    assert found.decrement == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("spread", [1.0, 1e2, 1e4])
def test_products_give_the_decrement_of_the_dense_hessian(spread):
    values = np.geomspace(1.0, spread, 300)
    slope = rng.normal(size=300)
    exact = newton_decrement(slope, np.diag(values))
    assert decrement_by_products(slope, lambda x: values * x) == pytest.approx(exact, rel=0.1)


def test_far_from_the_optimum_one_product_shows_it():
    asked = []

    def product(direction):
        asked.append(direction)
        return np.geomspace(1.0, 1e6, 300) * direction

    assert decrement_by_products(np.full(300, 1e6), product, enough=1.0) > 1.0
    assert len(asked) == 1


@pytest.mark.parametrize("along_slope", [0.0, 1.0])
def test_a_negative_direction_has_an_infinite_decrement(along_slope):
    values, slope = np.geomspace(1.0, 100.0, 300), np.ones(300)
    values[7], slope[7] = -1.0, along_slope
    assert decrement_by_products(slope, lambda x: values * x) == np.inf
    assert decrement_by_products(slope, lambda x: np.nan * x) == np.inf
    assert decrement_by_products(np.zeros(300), lambda x: values * x) == np.inf


def with_a_saddle(point):
    """½ Σ xᵢ² whose first part is ¼ x⁴ − ½ x²."""
    value = 0.5 * point @ point - point[0] ** 2 + 0.25 * point[0] ** 4
    return float(value), point + np.eye(1, SIZE)[0] * (point[0] ** 3 - 2 * point[0])


SADDLE = by_products(
    with_a_saddle,
    lambda point, direction: direction + np.eye(1, SIZE)[0] * (3 * point[0] ** 2 - 2) * direction,
)


@pytest.mark.parametrize("rest", [0.0, 1.0])
def test_a_saddle_is_not_called_converged(rest):
    start = np.full(SIZE, rest)
    start[0] = 0.0
    found = newton(SADDLE, start)
    assert not found.converged
    assert found.decrement == np.inf
    assert found.steps < 10
    start[0] = 1e-3
    away = newton(SADDLE, start)
    assert away.converged, away.reason
    assert abs(away.point[0]) == pytest.approx(1.0, abs=1e-3)


def test_redundant_parameters_do_no_harm():
    """Halves of sums: only x + y matters, of which each has 750."""
    half = SIZE // 2
    values = np.geomspace(1.0, 100.0, half)

    def value_and_slope(point):
        gap = point[:half] + point[half:] - 1.0
        return float(0.5 * values @ gap**2), np.tile(values * gap, 2)

    def along(point, direction):
        return np.tile(values * (direction[:half] + direction[half:]), 2)

    found = newton(by_products(value_and_slope, along), np.linspace(-1, 1, SIZE))
    assert found.converged, found.reason
    assert found.decrement <= 1e-9
    np.testing.assert_allclose(found.point[:half] + found.point[half:], 1.0, atol=1e-4)
    slope = np.tile(values, 2)
    decrement = decrement_by_products(slope, lambda x: along(None, x))
    assert decrement == pytest.approx(0.5 * values.sum(), rel=0.1)
    slope[:half] *= -0.9  # along directions that the loss does not curve in, it falls for ever
    asked = []
    endless = decrement_by_products(slope, lambda x: asked.append(x) or along(None, x))
    assert 1e6 < endless < np.inf
    assert len(asked) < 200


def test_single_precision_converges_as_far_as_the_loss_shows():
    def rounded(point):
        value, slope = bent(point)
        return float(np.float32(value)), slope.astype(np.float32).astype(float)

    def along(point, direction):
        return NOT_QUADRATIC.hessian_product(point, direction).astype(np.float32).astype(float)

    found = newton(by_products(rounded, along, precision=1.2e-7), np.zeros(SIZE))
    assert found.converged, found.reason
    assert found.steps < 40


def test_products_that_are_not_numbers_end_it():
    broken = by_products(bent, lambda point, direction: np.nan * direction)
    found = newton(broken, np.zeros(SIZE), steps=20)
    assert not found.converged
    assert found.decrement == np.inf


@pytest.mark.parametrize("size", [5, SIZE])
def test_places_without_a_loss_are_left(size):
    """Σ bx − log x is NaN for x < 0, where a first step goes."""
    rates = np.linspace(0.01, 3.0, size)

    def value_and_slope(point):
        value = (rates * point - np.log(np.abs(point))).sum()
        return float(value) if (point > 0).all() else np.nan, rates - 1 / point

    objective = DeterministicLoss(
        value_and_slope,
        lambda point: np.diag(point**-2.0),
        lambda point, direction: direction / point**2,
        np.ones_like,
        2e-16,
    )
    found = newton(objective, np.full(size, 2.0))
    assert found.converged, found.reason
    assert found.steps < 40
    np.testing.assert_allclose(found.point, 1 / rates, rtol=1e-3)
