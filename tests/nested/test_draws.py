"""Draws of hyperparameters between the points of a grid."""

import numpy as np
import pytest
from scipy.stats import gamma, kstest

from moment_inference.nested.exploration.draws import nearest_points, surface_draws
from moment_inference.nested.grid import explore

COUNT = 3000


def logs_of_gammas(shapes):
    """The log density of logs of Gammas, some of them mixed by a rotation."""
    size = len(shapes)
    turn = np.linalg.qr(np.random.default_rng(size).normal(size=(size, size)))[0]
    log_density = lambda points: (  # noqa: E731
        (shapes * (points @ turn)) - np.exp(points @ turn)
    ).sum(1)
    return turn, log_density


@pytest.mark.parametrize("shapes", [(3.0,), (3.0, 8.0), (4.0, 8.0, 15.0), (5.0, 8.0, 12.0, 20.0)])
def test_draws_have_the_distribution_of_the_density(shapes):
    turn, log_density = logs_of_gammas(np.array(shapes))
    grid = explore(log_density, np.zeros(len(shapes)))
    generator = np.random.default_rng(0)
    drawn = surface_draws(grid.surface, generator, COUNT)
    theta = grid.surface.origin + drawn @ grid.surface.axes.T
    for column, shape in zip((theta @ turn).T, shapes, strict=True):
        assert kstest(np.exp(column), gamma(shape).cdf).statistic < 0.03  # 1.63 / sqrt(3000)
    points = grid.design.coordinates
    near = nearest_points(drawn, points, grid.weights, generator)
    shares = np.bincount(near, minlength=len(points)) / COUNT
    np.testing.assert_allclose(shares, grid.weights, atol=1.01 / COUNT)
    apart = np.linalg.norm(drawn - points[near], axis=1)
    assert np.sqrt(np.mean(apart**2)) < 0.3 * len(shapes)
