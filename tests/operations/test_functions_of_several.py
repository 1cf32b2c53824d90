"""Sums of positive values in logarithms, powers, ratios, by Gauss rules."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pyro_moments import Moments, propagate
from tests.oracles.quadrature import hermite_grid

MEAN, OTHER = np.array([0.3, -0.2, 1.0]), np.array([-0.3, 0.4, 0.1])
VARIANCE, WIDTH = np.array([0.2, 0.5, 0.1]), np.array([0.1, 0.3, 0.6])


def saturation(half, shape):
    """Hill's function of a dose of two."""
    return 2**shape / (2**shape + half**shape)


FUNCTIONS = {
    "logarithm": lambda x, y: torch.log(torch.exp(x) + 2 * torch.exp(y)),
    "root": lambda x, y: torch.sqrt(torch.exp(x) ** 2 + F.softplus(y) ** 2),
    "reciprocal": lambda x, y: 1 / (0.1 + torch.exp(x) + F.softplus(y)),
    "spectral density": lambda x, y: (
        torch.exp(x)
        * torch.sqrt(2 * torch.exp(y))
        * torch.exp(-torch.exp(2 * y) * torch.tensor(WIDTH))
    ),
    "share": lambda x, y: torch.log(1 - torch.exp(x) / (torch.exp(x) + torch.exp(y))),
    "ratio of what depends on it": lambda x, y: x / (torch.exp(x) + torch.exp(y)),
    "product with a sum": lambda x, y: torch.log(torch.exp(x) * (torch.exp(y) + torch.sigmoid(x))),
    "random power": lambda x, y: torch.sigmoid(x) ** torch.exp(y),
    "saturation": lambda x, y: saturation(torch.exp(y), 2 * torch.sigmoid(x)),
    "powers by element": lambda x, y: (
        (torch.exp(x) + torch.exp(y)) ** torch.tensor([0.5, -1.0, 0.3], dtype=torch.float64)
    ),
    "difference of dependent": lambda x, y: torch.log(torch.exp(x) + torch.exp(y)) - x,
    "sum over dependent": lambda x, y: torch.log(torch.exp(x[..., :1]) + torch.exp(y)).sum(-1),
}


def exact(function):
    """Mean and variance by a product of Gauss-Hermite rules."""
    z, weights = (torch.tensor(part) for part in hermite_grid(60, 2))
    x = torch.tensor(MEAN) + torch.tensor(VARIANCE**0.5) * z[:, :1]
    y = torch.tensor(OTHER) + torch.tensor(WIDTH**0.5) * z[:, 1:]
    values = function(x, y)
    mean = torch.tensordot(weights, values, 1)
    return mean, torch.tensordot(weights, (values - mean) ** 2, 1)


@pytest.mark.parametrize("covariance", ["full", "backward"])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "sum over" not in name])
def test_moments(name, covariance):
    inputs = [
        Moments(torch.tensor(mean), variance=torch.tensor(variance))
        for mean, variance in ((MEAN, VARIANCE), (OTHER, WIDTH))
    ]
    found = propagate(FUNCTIONS[name], *inputs, covariance=covariance)
    mean, variance = exact(FUNCTIONS[name])
    torch.testing.assert_close(found.mean, mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance, variance, rtol=1e-5, atol=1e-6)


def test_components_that_share_a_gaussian_keep_their_correlations():
    """The variance of their sum: by the correlations of the linear parts."""
    z, weights = hermite_grid(8, 4)
    x = MEAN[0] + VARIANCE[0] ** 0.5 * z[:, :1]
    y = OTHER + WIDTH**0.5 * z[:, 1:]
    sums = np.log(np.exp(x) + np.exp(y)).sum(-1)
    variance = weights @ sums**2 - (weights @ sums) ** 2
    found = propagate(
        FUNCTIONS["sum over dependent"],
        Moments(torch.tensor(MEAN[None]), variance=torch.tensor(VARIANCE[None])),
        Moments(torch.tensor(OTHER[None]), variance=torch.tensor(WIDTH[None])),
        covariance="full",
    )
    np.testing.assert_allclose(found.variance[0], variance, rtol=2e-2)


def test_a_power_without_a_mean_is_infinite():
    found = propagate(
        lambda x, y: torch.exp(x) ** torch.exp(y),
        *(Moments(torch.zeros(2), variance=torch.full((2,), 1e-2)) for _ in range(2)),
    )
    assert torch.isinf(found.mean).all()
