"""The search for the mode of hyperparameters."""

import numpy as np
import pytest

from moment_inference.nested.exploration.mode import NoMode, find_mode
from tests.nested.densities import banana, gaussian, log_gammas, schools

FIVE = log_gammas([3, 6, 20, 10, 5], np.eye(5) + 0.3 * np.tri(5, k=-1))


@pytest.mark.parametrize(
    ("evaluate", "start", "point"),
    [
        (gaussian, [0.0, 0.0], [3, -2]),
        (gaussian, [-20.0, 30.0], [3, -2]),
        (log_gammas([2], [[1]]), [-8.0], [0]),
        (log_gammas([20], [[1]]), [4.0], [0]),
        (banana, [4.0, -5.0], [0, 0]),
        (FIVE, [3.0, -3.0, 2.0, 1.0, -2.0], np.zeros(5)),
        (lambda points: -0.5 * ((points[:, 0] - 200) / 50) ** 2, [0.0], [200]),
        (lambda points: -0.5 * ((points[:, 0] - 3) / 0.01) ** 2, [0.0], [3]),
    ],
)
def test_the_mode_is_found_from_far_out(evaluate, start, point):
    mode = find_mode(evaluate, np.array(start))
    steps = np.linalg.solve(mode.axes, mode.point - point)  # standard deviations
    assert np.abs(steps).max() < 5e-3


@pytest.mark.parametrize("start", [5.0, -8.0])
def test_a_scale_is_found_from_both_sides(start):
    mode = find_mode(schools, np.array([start]))
    lattice = np.linspace(-1, 4, 100_001)[:, None]
    assert mode.point[0] == pytest.approx(lattice[np.argmax(schools(lattice)), 0], abs=1e-2)


def test_axes_are_standard_deviations_along_eigenvectors():
    mode = find_mode(gaussian, np.zeros(2))
    np.testing.assert_allclose(mode.axes @ mode.axes.T, [[1, 0.9], [0.9, 1]], rtol=1e-6)
    products = mode.axes.T @ mode.axes
    np.testing.assert_allclose(np.sort(np.diag(products)), [0.1, 1.9], rtol=1e-6)
    assert abs(products[0, 1]) < 1e-8


def test_a_batch_holds_all_points_of_a_step():
    sizes = []

    def counted(points):
        sizes.append(len(points))
        return gaussian(points)

    find_mode(counted, np.array([-5.0, 5.0]))
    assert len(sizes) <= 25
    assert min(sizes[:-1]) >= 9


def test_rounding_does_not_mislead():
    generator = np.random.default_rng(0)

    def rounded(points):
        return gaussian(points) + 1e-5 * generator.normal(size=len(points))

    mode = find_mode(rounded, np.array([-5.0, 5.0]))
    np.testing.assert_allclose(mode.axes @ mode.axes.T, [[1, 0.9], [0.9, 1]], rtol=0.05)
    assert np.abs(np.linalg.solve(mode.axes, mode.point - [3, -2])).max() < 0.1


def test_points_where_the_density_fails_are_avoided():
    def of_positive(points):
        x = np.where(points[:, 0] > 0, points[:, 0], 1.0)
        return np.where(points[:, 0] > 0, -1.5 * np.log(x) - 1 / x, np.nan)

    mode = find_mode(of_positive, np.array([-1.0]))
    assert mode.point[0] == pytest.approx(2 / 3, abs=5e-3)


@pytest.mark.parametrize(
    ("evaluate", "start", "end"),
    [
        (lambda points: -np.logaddexp(0, points[:, 0]), [1.0], "minus infinity"),
        (lambda points: -points[:, 0] - points[:, 1] ** 2, [1.0, 1.0], "minus infinity"),
        (lambda points: points[:, 0] - (points[:, 1] - 3) ** 2, [1.0, 0.0], "towards infinity"),
    ],
    ids=["level in the end", "falling", "rising"],
)
def test_a_mode_at_infinity_is_refused(evaluate, start, end):
    with pytest.raises(NoMode, match=end) as raised:
        find_mode(evaluate, np.array(start))
    assert np.argmax(np.abs(raised.value.direction)) == 0


def test_a_density_that_fails_everywhere_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        find_mode(lambda points: np.full(len(points), np.nan), np.zeros(2))
