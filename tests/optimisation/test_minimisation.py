"""Newton's method and L-BFGS on the mean-field ELBO of a Gaussian."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from moment_inference.optimisation.minimiser import METHODS, newton, newton_decrement
from moment_inference.optimisation.rounds import DeterministicLoss, cached

rng = np.random.default_rng(3)
SCALES = np.array([1e4, 1.0, 1e-4])
FACTOR = rng.normal(size=(3, 3))
PRECISION = (FACTOR @ FACTOR.T + np.eye(3)) / np.outer(SCALES, SCALES)
OWN = np.diag(PRECISION)
START = np.concatenate([np.zeros(3), np.full(3, -3.0)])


def value_and_slope(point):
    gap, logs = point[:3] - SCALES, point[3:]
    spread = OWN * np.exp(2 * logs)
    value = 0.5 * gap @ PRECISION @ gap + 0.5 * spread.sum() - logs.sum()
    return float(value), np.concatenate([PRECISION @ gap, spread - 1])


def curvature(point):
    matrix = np.diag(np.concatenate([np.zeros(3), 2 * OWN * np.exp(2 * point[3:])]))
    matrix[:3, :3] = PRECISION
    return matrix


def units(point):
    return np.concatenate([np.exp(point[3:]), np.ones(3)])


def hessian_product(point, direction):
    return curvature(point) @ direction


GAUSSIAN = DeterministicLoss(value_and_slope, curvature, hessian_product, units, 2e-16)


def test_a_gain_that_rounding_hides_ends_the_search():
    """A loss that is coarser than it says: without this, 500 steps."""

    def coarse(point):
        value, slope = value_and_slope(point)
        return math.ceil(1e3 * value) / 1e3, slope + 1e-2 / units(point)

    found = newton(replace(GAUSSIAN, value_and_slope=coarse), START)
    assert found.converged
    assert "rounding hides" in found.reason
    assert 1e-9 < found.decrement < 1e-3
    assert found.steps < 100


@pytest.mark.parametrize("method", METHODS)
def test_the_optimum_is_found_whatever_the_units(method):
    found = METHODS[method](GAUSSIAN, START)
    assert found.converged
    assert found.reason.startswith("converged")
    np.testing.assert_allclose(found.point[:3], SCALES, rtol=1e-5)
    np.testing.assert_allclose(np.exp(found.point[3:]), OWN**-0.5, rtol=1e-5)
    assert found.steps <= 60
    assert found.losses[-1] == min(found.losses)


def test_the_decrement_is_what_a_step_gains_on_a_quadratic():
    point = START + np.array([3.0, 1.0, 1e-5, 0.0, 0.0, 0.0])
    gap = point[:3] - SCALES
    decrement = newton_decrement(PRECISION @ gap, PRECISION)
    assert decrement == pytest.approx(0.5 * gap @ PRECISION @ gap)
    assert newton_decrement(np.ones(2), np.diag([1.0, -1.0])) == np.inf
    found = newton(GAUSSIAN, START)
    exact = newton_decrement(value_and_slope(found.point)[1], curvature(found.point))
    assert found.decrement == pytest.approx(exact, abs=1e-12)
    assert exact <= 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_it_stops_after_the_steps_that_it_is_given(method):
    found = METHODS[method](GAUSSIAN, START, 3)
    assert (found.steps, found.converged, found.reason) == (3, False, "stopped after 3 steps")


def test_redundant_parameters_have_no_decrement_of_their_own():
    """As the halves of a sum, or the columns of a low-rank factor that may be rotated."""
    both = np.array([[1.0, 1.0], [1.0, 1.0]])
    assert newton_decrement(np.array([2.0, 2.0]), both) == pytest.approx(2.0)
    assert newton_decrement(np.array([1.0, -1.0]), both) > 1e6
    assert newton_decrement(np.ones(2), np.zeros((2, 2))) == np.inf
    assert newton_decrement(np.ones(2), np.full((2, 2), np.nan)) == np.inf


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_train_is_refused(method):
    with pytest.raises(ValueError, match="no parameters: there is nothing to train"):
        METHODS[method](GAUSSIAN, np.zeros(0))


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_is_not_finite_is_refused(method):
    infinite = DeterministicLoss(
        lambda point: (np.inf, point), curvature, hessian_product, units, 2e-16
    )
    with pytest.raises(ValueError, match="the loss at the start is inf"):
        METHODS[method](infinite, START)


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_converges_as_far_as_the_loss_shows(method):
    def rounded(point):
        value, slope = value_and_slope(point)
        return float(np.float32(value + 1e3)), slope.astype(np.float32).astype(float)

    found = METHODS[method](
        DeterministicLoss(rounded, curvature, hessian_product, units, 1.2e-7), START
    )
    assert found.converged
    assert found.steps < 100


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_ends_at_a_border_is_minimised(method):
    """Infinite on the other side, where its slope is nothing."""
    rates = np.array([1e-2, 1.0, 3.0, 1e2, 1e3])

    def barrier(point):
        if (point <= 0).any():
            return np.inf, np.full(5, np.nan)
        return float(rates @ point - np.log(point).sum()), rates - 1 / point

    objective = DeterministicLoss(
        barrier,
        lambda point: np.diag(point**-2),
        lambda point, direction: direction / point**2,
        np.ones_like,
        2e-16,
    )
    found = METHODS[method](objective, np.ones(5))
    assert found.converged
    np.testing.assert_allclose(found.point * rates, 1.0, rtol=1e-4)


def test_a_curvature_that_is_not_finite_ends_the_training():
    broken = DeterministicLoss(
        value_and_slope, lambda point: np.full((6, 6), np.nan), hessian_product, units, 2e-16
    )
    found = METHODS["newton"](broken, START)
    assert not found.converged
    assert found.reason == "stopped: the curvature of the loss is not finite"


def test_newton_goes_around_where_the_curvature_is_not_finite():
    def overflowing(point):
        return curvature(point) * (np.nan if point[3:].max() < -2.5 else 1.0)

    found = METHODS["newton"](replace(GAUSSIAN, hessian=overflowing), START)
    assert found.converged
    np.testing.assert_allclose(found.point[:3], SCALES, rtol=1e-6)


def test_scales_wait_until_locations_are_found():
    """In the first steps of L-BFGS, which end before the locations' own convergence."""
    points = []

    def watched(point):
        points.append(point)
        return value_and_slope(point)

    waiting = DeterministicLoss(
        watched, curvature, hessian_product, units, 2e-16, np.arange(6) >= 3
    )
    assert METHODS["lbfgs"](waiting, START, 2).steps == 2
    assert all((point[3:] == START[3:]).all() for point in points)
    found = METHODS["lbfgs"](waiting, START)
    assert found.converged
    np.testing.assert_allclose(found.point[:3], SCALES, rtol=1e-5)
    assert len(found.losses) == found.steps + 1


def counted(**changed):
    """The objective, and the points at which it was computed."""
    points = []

    def watched(point):
        points.append(point.tobytes())
        return value_and_slope(point)

    return DeterministicLoss(watched, curvature, hessian_product, units, 2e-16, **changed), points


def test_scales_need_not_wait_longer_than_locations_take():
    """A quadratic is found in a few steps."""
    waiting, points = counted(scales=np.arange(6) >= 3)
    METHODS["lbfgs"](waiting, START)
    moved = [np.frombuffer(point)[3:].tolist() != START[3:].tolist() for point in points]
    assert moved.index(True) <= 25


def test_where_nothing_is_left_no_line_search_looks_for_it():
    objective, points = counted(scales=np.arange(6) >= 3)
    found = METHODS["lbfgs"](objective, START)
    assert found.converged
    assert len(points) <= 2.2 * found.steps


@pytest.mark.parametrize("method", METHODS)
def test_a_remembered_place_is_not_computed_again(method):
    objective, points = counted(scales=np.arange(6) >= 3)
    found = METHODS[method](cached(objective), START)
    assert found.converged
    assert all(one != other for one, other in itertools.pairwise(points))
    again = METHODS[method](objective, START)
    np.testing.assert_array_equal(found.point, again.point)


def test_newton_goes_its_first_steps_by_slopes():
    at_hessians = []

    def seen(point):
        at_hessians.append(value_and_slope(point)[0])
        return curvature(point)

    found = newton(cached(replace(GAUSSIAN, hessian=seen)), START)
    assert found.converged
    assert "Newton decrement" in found.reason
    start, end = value_and_slope(START)[0], found.loss
    assert at_hessians[0] - end < 1e-2 * (start - end)
    assert len(at_hessians) < found.steps / 2
