"""Means of powers of a normal density with a random log scale, beside 1251 equidistant nodes.

Ten thousand give the same numbers, to rounding.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from moment_calculus.numerics.tilted_normal import log_tilted_normal
from tests.checks.jaxprs import by_numpy

POWERS = (0.0, 1e-3, 0.5, 1.0)
LINKS = ("exp", 0.0), ("softplus", 0.0), ("exp", 0.2), ("softplus", 1e-3)
PLACES = np.linspace(-13.0, 13.0, 1_251)[:, None]


def moments(count, seed, correlations, spreads):
    """Of residuals up to ten scales, with variances from 1e-6 to 1e3."""
    rng = np.random.default_rng(seed)
    log_mean, log_variance = 2 * rng.normal(size=count), rng.choice(spreads, count)
    variance = 10 ** rng.uniform(-6, 3, count)
    covariance = rng.choice(correlations, count) * np.sqrt(variance * log_variance)
    mean = rng.choice([-1, 1], count) * 10 ** rng.uniform(-3, 1, count)
    mean *= np.logaddexp(0, log_mean)
    return [mean, variance, covariance, log_mean, log_variance]


SMOOTH = moments(200, 0, (-0.85, -0.3, 0.0, 0.6), (1e-4, 0.1, 0.5, 0.9))
WIDE = moments(100, 1, (-0.97, 0.0, 0.95), (0.5, 1.0, 4.0))


SCALES = {"exp": np.exp, "softplus": lambda h: np.logaddexp(0, h)}


def exact(mean, variance, covariance, log_mean, log_variance, power, link):
    """The integral over h of N(r̂; 0, s² + a u) to what remains of the factors."""
    deviation = np.sqrt(log_variance)
    slope = covariance / deviation
    h, r = log_mean + deviation * PLACES, mean + slope * PLACES
    squared = (SCALES[link[0]](h) + link[1]) ** 2
    total = squared + power * (variance - slope**2)
    weights = np.exp(-0.5 * PLACES**2) / np.exp(-0.5 * PLACES**2).sum()
    if power == 0:
        logs = np.log(2 * np.pi * squared) + (r * r + variance - slope**2) / squared
        return -0.5 * (weights * logs).sum(0)
    logs = power * (np.log(2 * np.pi * squared) + r * r / total) + np.log(total / squared)
    return logsumexp(-0.5 * logs, b=weights, axis=0) / power


def sizes(arrays):
    """Of a change of each moment that is as large as what the moment measures."""
    return [
        np.sqrt(arrays[1] * arrays[4]) if i == 2 else np.abs(part) for i, part in enumerate(arrays)
    ]


def changes(arrays, *options):
    """The derivatives by central differences, times the sizes of the moments."""
    for place, (array, size) in enumerate(zip(arrays, sizes(arrays), strict=True)):
        near = ([*arrays[:place], array + d * size, *arrays[place + 1 :]] for d in (1e-4, -1e-4))
        yield np.subtract(*(exact(*part, *options) for part in near)) / 2e-4


@functools.cache
def expected(power, link):
    """Of the smooth ones; frameworks and precisions share them."""
    return exact(*SMOOTH, power, link), [*changes(SMOOTH, power, link)]


def in_torch(arrays, dtype, *options):
    tensors = [
        torch.tensor(part, dtype=getattr(torch, dtype), requires_grad=True) for part in arrays
    ]
    found = log_tilted_normal(tensors, *options)
    return found.detach().numpy(), [
        part.numpy() for part in torch.autograd.grad(found.sum(), tensors)
    ]


def in_jax(arrays, dtype, *options):
    with jax.enable_x64(dtype == "float64"):
        copies = [jnp.asarray(part.astype(dtype)) for part in arrays]

        def total(*parts):
            value = log_tilted_normal(parts, *options)
            return value.sum(), value

        slopes, value = by_numpy(jax.grad(total, tuple(range(5)), has_aux=True))(*copies)
        return value, list(slopes)


@pytest.mark.parametrize("run", [in_torch, in_jax])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("link", LINKS)
def test_values_and_gradients(link, power, dtype, run):
    value, found = run(SMOOTH, dtype, power, link)
    values, slopes = expected(power, link)
    np.testing.assert_allclose(value, values, rtol=1e-5, atol=1e-5)
    for slope, size, change in zip(found, sizes(SMOOTH), slopes, strict=True):
        np.testing.assert_allclose(slope * size, change, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("run", [in_torch, in_jax])
@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("link", LINKS)
def test_where_a_peak_is_sharp(link, power, run):
    """Panels are taken for these, and under JAX for all: they are as precise for the others."""
    arrays = [np.concatenate(parts) for parts in zip(SMOOTH, WIDE, strict=True)]
    value, found = run(arrays, "float64", power, link)
    np.testing.assert_allclose(value, exact(*arrays, power, link), rtol=1e-3, atol=1e-3)
    assert all(np.isfinite(part).all() for part in found)


def test_one_sharp_peak_leaves_the_other_elements_as_they_are():
    alone, slopes = in_torch(SMOOTH, "float64", 0.5, LINKS[0])
    arrays = [np.concatenate(parts) for parts in zip(SMOOTH, WIDE, strict=True)]
    value, found = in_torch(arrays, "float64", 0.5, LINKS[0])
    np.testing.assert_allclose(value[: len(alone)], alone, rtol=1e-12)
    for ours, expected in zip(found, slopes, strict=True):
        np.testing.assert_allclose(ours[: len(alone)], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("run", [in_torch, in_jax])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("link", LINKS)
def test_extremes_are_finite(link, dtype, run):
    """Residuals and scales far beyond the nodes, no variance at all, and a determined residual."""
    arrays = np.array(
        [
            [1e6, 0.0, 0.0, -60.0, 0.0],
            [1e15, 1e12, 1e8, 40.0, 1e4],
            [0.0, 0.0, 0.0, 0.0, 0.0],
            [-3.0, 1.0, 1.0, -20.0, 1.0],
            [0.1, 1e-20, 0.0, 0.0, 1e-20],
        ]
    ).T
    for part in (arrays, arrays[:, 2:3], arrays[:, 4:]):
        value, found = run(list(part), dtype, 0.5, link)
        assert np.isfinite(value).all()
        assert all(np.isfinite(slope).all() for slope in found)


def test_known_arrays_of_jax_are_not_worth_a_compiler():
    """NumPy computes what a program would, for few elements."""
    arrays = [jnp.asarray(part.astype(np.float32)) for part in SMOOTH]
    known = log_tilted_normal(arrays, 0.5)
    assert isinstance(known, jax.Array)
    assert known.dtype == np.float32
    np.testing.assert_allclose(known, exact(*SMOOTH, 0.5, LINKS[0]), rtol=1e-5, atol=1e-5)


def test_a_power_is_differentiated_too_and_derivatives_are():
    arrays = [torch.tensor(part[:5], requires_grad=True) for part in SMOOTH]
    power = torch.full((5,), 0.5, dtype=torch.double, requires_grad=True)
    inputs = [*arrays, power]

    def value(*parts):
        return log_tilted_normal(parts[:5], parts[5])

    assert torch.autograd.gradcheck(value, inputs, eps=1e-5, rtol=1e-3, atol=1e-3)
    assert torch.autograd.gradgradcheck(value, inputs, eps=1e-5, rtol=1e-2, atol=1e-2)
