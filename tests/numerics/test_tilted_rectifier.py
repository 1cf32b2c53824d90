"""A rectified Gaussian under an exponential weight, beside Gauss and Legendre's quadrature."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.special import log_ndtr, logsumexp

from moment_calculus.numerics.tilted_rectifier import SMALLEST, tilted_rectifier
from tests.checks.jaxprs import by_numpy

NODES, WEIGHTS = np.polynomial.legendre.leggauss(3_000)
RANDOM = np.random.default_rng(3)
ORDERS = np.arange(1, 5)[:, None, None]


def arguments(count=60):
    """Means to ±6 standard deviations, of any scale; weights as wide."""
    scale = 10 ** RANDOM.uniform(-2, 2, count)
    mean = scale * RANDOM.uniform(-6, 6, count)
    slope = RANDOM.choice([-1, 1], count) * 10 ** RANDOM.uniform(-2, 0.5, count) / scale
    curvature = RANDOM.uniform(0, 0.9, count) / scale**2
    return mean, scale**2, slope, curvature


def exact(mean, variance, slope, curvature):
    """The logarithm of the mass, and moments, by nodes around the tilted Gaussian."""
    rest = 1 - curvature * variance
    centre, width = (mean + slope * variance) / rest, np.sqrt(variance / rest)
    low, high = np.maximum(centre - 14 * width, 0), np.maximum(centre + 14 * width, 14 * width)
    half = (high - low) / 2
    h = low + half * (NODES[:, None] + 1)
    log_density = -0.5 * ((h - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    logs = log_density + slope * h + 0.5 * curvature * h * h + np.log(WEIGHTS[:, None] * half)
    total = np.logaddexp(logsumexp(logs, axis=0), log_ndtr(-mean / np.sqrt(variance)))
    return total, (np.exp(logs - total) * h**ORDERS).sum(1)


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("asarray", [torch.as_tensor, jnp.asarray], ids=["torch", "jax"])
def test_mass_and_moments(asarray, dtype, order):
    given = arguments()
    if asarray is torch.as_tensor:
        parts = [torch.as_tensor(part.astype(dtype)) for part in given]
        mass, moments = tilted_rectifier(*parts, order=order)
    else:
        with jax.enable_x64(True):
            program = by_numpy(functools.partial(tilted_rectifier, order=order))
            mass, moments = program(*(jnp.asarray(part.astype(dtype)) for part in given))
    total, expected = exact(*given)
    tolerance = {"float64": 1e-9, "float32": 2e-4}[dtype]
    np.testing.assert_allclose(np.asarray(mass), total, rtol=tolerance, atol=tolerance)
    found = np.stack([np.asarray(moment) for moment in moments])
    unit = np.sqrt(given[1]) ** ORDERS[:order, 0]
    np.testing.assert_allclose(
        found / unit, expected[:order] / unit, rtol=10 * tolerance, atol=1e-6
    )


def test_slopes():
    parts = [torch.as_tensor(part, dtype=torch.float64) for part in arguments(12)]
    unit = torch.sqrt(parts[1])
    scaled = [parts[0] / unit, parts[1] / unit**2, parts[2] * unit, parts[3] * unit**2]
    inputs = [part.requires_grad_() for part in scaled]
    function = lambda *given: (lambda mass, moments: (mass, *moments))(*tilted_rectifier(*given))  # noqa: E731
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_the_mass_is_infinite_it_falls_by_the_curvature(dtype):
    curvature = torch.tensor([0.94, 0.96, 1.0, 3.0], dtype=dtype, requires_grad=True)
    one = torch.ones(4, dtype=dtype)
    mass, moments = tilted_rectifier(0 * one, one, 0 * one, curvature)
    (slope,) = torch.autograd.grad(mass.sum(), curvature)
    assert torch.isfinite(mass).all()
    assert all(torch.isfinite(part).all() for part in moments)
    assert (slope > 1).all()
    assert (mass[1:] > mass[:-1]).all()
    assert slope[1:].tolist() == pytest.approx([0.5 / SMALLEST] * 3, rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_arguments_have_finite_values_and_slopes(dtype):
    grid = torch.cartesian_prod(
        torch.tensor([-1e6, -30.0, 0.0, 30.0, 1e4]),
        torch.tensor([0.0, 1e-12, 1.0, 1e4]),
        torch.tensor([-100.0, 0.0, 1e-6, 30.0]),
        torch.tensor([0.0, 1e-9, 0.9]),
    ).to(dtype)
    parts = [part.clone().requires_grad_() for part in grid.T]
    mass, moments = tilted_rectifier(*parts)
    slopes = torch.autograd.grad(mass.sum() + sum(part.sum() for part in moments), parts)
    for part in (mass, *moments, *slopes):
        assert not torch.isnan(part).any()
