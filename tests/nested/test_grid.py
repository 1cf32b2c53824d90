"""Grids of hyperparameters against quadrature."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import digamma

from moment_inference.nested.grid import explore
from tests.nested.densities import (
    banana,
    by_quadrature,
    evidence_of_log_gammas,
    gaussian,
    log_gammas,
    schools,
    total_variation,
    two_modes,
    two_scales,
)

ROTATED = [[0.8, 0.6], [-0.6, 0.8]]
ONE = [
    (lambda points: -0.5 * ((points[:, 0] - 3) / 0.01) ** 2, -2, [2.92], [3.08]),
    (log_gammas([0.5], [[1]]), 1, [-35], [4]),
    (log_gammas([20], [[1]]), 4, [-3], [2]),
    (schools, 5, [-14], [7]),
]
TWO = [
    (gaussian, [0, 0], [-4, -9], [10, 5]),
    (log_gammas([3, 10], ROTATED), [1, 2], [-8, -6], [4, 4]),
    (banana, [4, -5], [-6, -4], [6, 12]),
    (two_scales, [-2, 1], [-15, -2], [3, 3]),
]
CASES = [*range(len(ONE + TWO))]


@cache
def solved(number):
    """The log density of a case, its grid, evidence and marginals by quadrature."""
    evaluate, start, *_ = (ONE + TWO)[number]
    grid = explore(evaluate, np.atleast_1d(np.array(start, dtype=float)))
    return evaluate, grid, *quadrature(evaluate, number)


def quadrature(evaluate, number):
    """Evidence and marginals of a density over the box of a case."""
    *_, low, high = (ONE + TWO)[number]
    return by_quadrature(evaluate, low, high, 8001 if len(low) == 1 else 401)


@pytest.mark.parametrize("case", CASES)
def test_evidence_and_marginals_are_those_of_quadrature(case):
    _, grid, evidence, marginals = solved(case)
    error = grid.log_evidence - evidence
    assert abs(error) < 2e-4
    assert abs(error) <= grid.evidence_error + 1e-6
    assert grid.evidence_error < 1e-3
    assert not grid.has_two_modes
    for number, (points, density) in enumerate(marginals):
        assert total_variation(grid.marginal(number), points, density) < 1e-3


@pytest.mark.parametrize(("evaluate", "start", "low", "high"), ONE + TWO)
def test_grids_are_small_and_asked_in_few_calls(evaluate, start, low, high):
    calls = []

    def counted(points):
        calls.append(len(points))
        return evaluate(points)

    grid = explore(counted, np.atleast_1d(np.array(start, dtype=float)))
    assert len(calls) < 40
    assert len(grid.points) <= (45 if len(low) == 1 else 250)


@pytest.mark.parametrize("case", CASES)
def test_weights_give_means_and_covariances(case):
    _, grid, _, marginals = solved(case)
    assert grid.weights.sum() == pytest.approx(1)
    for number, (points, density) in enumerate(marginals):
        mass = density / density.sum()
        mean = mass @ points
        deviation = np.sqrt(mass @ (points - mean) ** 2)
        there = grid.points[:, number]  # a ten-thousandth of the mass may be missing, far out
        assert grid.weights @ there == pytest.approx(mean, abs=3e-3 * deviation)
        assert grid.weights @ (there - mean) ** 2 == pytest.approx(deviation**2, rel=1e-2)


@pytest.mark.parametrize("size", [1, 2])
def test_two_modes_are_flagged(size):
    grid = explore(two_modes, np.full(size, 3.0))
    assert grid.modes == 2
    assert grid.has_two_modes
    low, high = [[-5.0] + [-9.0] * (size - 1), [5.0] + [9.0] * (size - 1)]
    evidence, marginals = by_quadrature(two_modes, low, high, 701)
    assert grid.log_evidence == pytest.approx(evidence, abs=2e-4)
    assert total_variation(grid.marginal(0), *marginals[0]) < 2e-3


def test_a_better_mode_along_an_axis_is_the_one():
    """From the lower of two modes the sweep meets the higher one."""
    grid = explore(two_modes, np.array([2.5]))
    assert grid.mode[0] == pytest.approx(-2, abs=1e-2)


def test_a_funnel_with_two_modes_is_flagged():
    """The log scale of one effect with a heavy-tailed likelihood far from zero: either explains."""

    def funnel(points):
        scale = np.exp(points[:, 0])
        far = -0.5 * np.log(scale**2 + 1) - 0.5 * 12**2 / (scale**2 + 1)
        return np.logaddexp(far, -5.0) - 0.5 * ((points[:, 0] + 2) / 2.5) ** 2

    values = funnel(np.linspace(-15, 12, 2001)[:, None])
    assert np.count_nonzero((values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])) == 2
    grid = explore(funnel, np.array([0.0]))
    evidence, _ = by_quadrature(funnel, [-15], [12], 8001)
    assert grid.has_two_modes
    assert grid.log_evidence == pytest.approx(evidence, abs=2e-4)


def ridge(variance):
    """A banana of this variance across."""
    return lambda points: (
        -0.5 * (points[:, 0] ** 2 + (points[:, 1] - 0.5 * points[:, 0] ** 2) ** 2 / variance)
    )


def test_a_curved_ridge_has_one_mode():
    assert not explore(ridge(0.25), np.array([4.0, -5.0])).has_two_modes


def test_hills_between_points_of_other_values_are_climbed():
    """A narrow ridge has such hills; what was found of them for other values is forgotten."""
    grid = explore(ridge(0.01), np.array([4.0, -5.0]))
    unknown = replace(grid, false_peaks=0)
    assert unknown.has_two_modes
    assert not unknown.with_log_density(grid.log_density, ridge(0.01)).has_two_modes


def test_a_correction_may_have_two_modes():
    grid = explore(gaussian, np.zeros(2))
    apart = np.abs(grid.design.coordinates[:, 0]) - 2
    moved = grid.with_log_density(
        -0.5 * (grid.design.coordinates[:, 1] ** 2 + 2 * apart**2), gaussian
    )
    assert moved.modes == 2


@pytest.mark.parametrize(("bend", "slope"), [(2, 1), (2, 2), (4, 2)])
def test_a_ridge_is_followed_to_its_end(bend, slope):
    """A half-normal scale whose logarithm goes off along a line that its mode does not show."""

    def evaluate(points):
        scale, other = points.T
        turned = slope * np.logaddexp(0, -bend * (scale + 1)) / bend
        return scale - 0.5 * np.exp(2 * scale) - 0.5 * ((other - turned) / 0.2) ** 2

    grid = explore(evaluate, np.zeros(2))
    assert abs(grid.log_evidence - np.log(0.2 * np.pi)) < 2e-3
    assert grid.edge_mass < 2e-4


def test_heavy_tails_are_part_of_the_error():
    def student(points):
        return -2 * np.log1p(points[:, 0] ** 2 / 3)

    grid = explore(student, np.array([1.0]))
    missing = np.log(np.sqrt(3) * np.pi / 2) - grid.log_evidence
    assert 1e-4 < missing < 2 * grid.evidence_error
    assert grid.evidence_error < 0.02


@pytest.mark.parametrize("case", CASES)
def test_other_densities_take_the_same_points(case):
    evaluate, grid, _, _ = solved(case)

    def tilted(points):
        return evaluate(points) + 0.1 * (points[:, 0] - grid.mode[0]) / np.ptp(grid.points[:, 0])

    evidence, marginals = quadrature(tilted, case)
    corrected = grid.with_log_density(tilted(grid.points))
    assert corrected.points is grid.points
    assert corrected.log_evidence == pytest.approx(evidence, abs=5e-4)
    assert total_variation(corrected.marginal(0), *marginals[0]) < 1.2e-3


def test_corrections_are_not_trusted_far_out():
    grid = explore(schools, np.array([1.0]))
    far = grid.log_density < grid.log_density.max() - 8
    assert far.any()
    wild = grid.with_log_density(grid.log_density + np.where(far, 1e6, 0.3))
    assert wild.log_evidence == pytest.approx(grid.log_evidence + 0.3)
    failed = grid.with_log_density(np.where(far, np.nan, grid.log_density + 0.3))
    assert failed.log_evidence == pytest.approx(grid.log_evidence + 0.3)
    with pytest.raises(ValueError, match="no point"):
        grid.with_log_density(np.full(len(grid.points), np.nan))


@pytest.mark.parametrize("size", [3, 4, 5])
def test_composite_designs_are_near(size):
    shapes, mixing = [3, 6, 20, 10, 5][:size], np.eye(size) + 0.2 * np.tri(size, k=-1)
    grid = explore(log_gammas(shapes, mixing), np.ones(size), refine=False)
    assert len(grid.points) == 1 + 8 * size + 2 * size * (size - 1) + 2**size
    error = grid.log_evidence - evidence_of_log_gammas(shapes, mixing)
    assert abs(error) < 0.02
    assert abs(error) <= grid.evidence_error < 0.1
    logs = digamma(shapes) - np.log(shapes)
    mean, back = grid.weights @ grid.points, np.linalg.inv(mixing)
    assert (grid.weights >= 0).all()
    np.testing.assert_allclose(mean, back @ logs, atol=0.03)


def test_three_have_a_lattice_where_the_design_is_too_rough():
    shapes, mixing = [2, 5, 9], np.eye(3) + 0.4 * np.tri(3, k=-1)
    evaluate = log_gammas(shapes, mixing)
    assert explore(evaluate, np.ones(3), refine=False).evidence_error > 0.02
    grid = explore(evaluate, np.ones(3))
    assert 300 < len(grid.points) < 1000
    error = grid.log_evidence - evidence_of_log_gammas(shapes, mixing)
    assert abs(error) < grid.evidence_error < 1e-3
    logs = digamma(shapes) - np.log(shapes)
    np.testing.assert_allclose(grid.weights @ grid.points, np.linalg.solve(mixing, logs), atol=2e-3)
    one = log_gammas(shapes[:1], [[1]])  # the first is alone in its row of the mixing matrix
    _, marginals = by_quadrature(one, [-9], [9], 8001)
    assert total_variation(grid.marginal(0), *marginals[0]) < 1e-3


def test_a_composite_design_is_exact_without_interactions():
    shapes, mixing = [3, 6, 20], np.diag([1.0, 2, 0.5])
    grid = explore(log_gammas(shapes, mixing), np.ones(3))
    assert grid.log_evidence == pytest.approx(evidence_of_log_gammas(shapes, mixing), abs=1e-3)
    for number in range(3):
        one = log_gammas(shapes[number : number + 1], mixing[number : number + 1, number, None])
        _, marginals = by_quadrature(one, [-9], [9], 8001)
        assert total_variation(grid.marginal(number), *marginals[0]) < 1e-3


def test_more_than_five_are_refused():
    with pytest.raises(ValueError, match="1 to 5"):
        explore(lambda points: -0.5 * (points**2).sum(axis=1), np.zeros(6))
