"""Simplexes and Cholesky factors whose coordinates depend on each other, beside draws."""

import numpy as np
import pytest

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.linear.correlations import Factor, factor_of
from moment_calculus.operations.linear.matrices import matmul
from moment_calculus.operations.linear.rotations import _terms, expected_squared_length
from moment_calculus.operations.shapes.coordinates import on_support
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.operations.shapes.sticks import CORRELATION_FACTOR, SIMPLEX
from moment_calculus.values import Gaussian, Propagation, Spread, cross_covariance
from moment_calculus.values.spread import all_elements

DRAWS = 200_000
KINDS = ["numpy", "torch", "jax"]


def array(kind, values):
    if kind == "numpy":
        return np.asarray(values)
    if kind == "torch":
        import torch

        return torch.as_tensor(np.asarray(values))
    import jax.numpy as jnp

    return jnp.asarray(values)


def joint(size, seed=0, scale=0.6):
    """A mean and a covariance of so many dependent coordinates."""
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(size, size))
    covariance = root @ root.T + 0.5 * np.eye(size)
    deviation = np.sqrt(np.diagonal(covariance))
    return generator.normal(size=size) / 2, scale**2 * covariance / np.outer(deviation, deviation)


def vector(kind, mean, covariance, dtype=np.float64):
    """One latent vector, whose parts are the coordinates of several sites."""
    mean, covariance = (array(kind, part.astype(dtype)) for part in (mean, covariance))
    support, propagation = all_elements(["latent"]), Propagation(covariance="full")
    return Gaussian(mean, Spread(covariance=covariance), support=support, propagation=propagation)


def draws(mean, covariance, seed=1):
    return np.random.default_rng(seed).multivariate_normal(mean, covariance, size=DRAWS)


def rows_of_factor(x, size):
    """Cholesky factors of correlations [n, d, d] by their coordinates [n, k]."""
    factor, column = np.zeros((len(x), size, size)), iter(x.T)
    for i in range(size):
        left = np.ones(len(x))
        for j in range(i):
            tanh = np.tanh(next(column))
            factor[:, i, j] = tanh * left
            left = left * np.sqrt(1 - tanh**2)
        factor[:, i, i] = left
    return factor


def sticks(x):
    """Simplexes [n, k + 1] by their coordinates [n, k]."""
    share = 1 / (1 + np.exp(-(x - np.log(np.arange(x.shape[1], 0, -1)))))
    left = np.cumprod(np.column_stack([np.ones(len(x)), 1 - share]), axis=1)
    return left * np.column_stack([share, np.ones(len(x))])


def close(value, sample, errors=5, bias=0.0):
    """Whether a mean is that of a sample, by its standard error and a stated bias."""
    error = sample.std(0) / np.sqrt(len(sample))
    np.testing.assert_array_less(np.abs(value - sample.mean(0)), errors * error + bias + 1e-12)


def parts(value, size):
    """Residual, coordinates and scales of one vector."""
    count = size * (size - 1) // 2
    residual, coordinates, logs = (
        index(value, (slice(start, stop),))
        for start, stop in ((0, size), (size, size + count), (size + count, None))
    )
    return residual, coordinates, apply(activation("exp"), logs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_expected_length_is_that_of_draws(kind, size, double_precision_in_jax):
    mean, covariance = joint(2 * size + size * (size - 1) // 2, scale=0.4)
    residual, coordinates, scale = parts(vector(kind, mean, covariance), size)
    correlation = on_support(CORRELATION_FACTOR, coordinates)
    found = expected_squared_length(residual, Factor(coordinates, correlation, (scale,)))
    single = parts(vector(kind, mean, covariance, np.float32), size)
    correlation = on_support(CORRELATION_FACTOR, single[1])
    rounded = expected_squared_length(single[0], Factor(single[1], correlation, (single[2],)))
    drawn = draws(mean, covariance)
    x, logs = drawn[:, size:-size], drawn[:, -size:]
    root = np.exp(logs)[..., None] * rows_of_factor(x, size)
    solved = np.linalg.solve(root, drawn[:, :size, None])[..., 0]
    close(float(found), (solved**2).sum(1))
    np.testing.assert_allclose(float(rounded), float(found), rtol=1e-5)
    assert len(_terms(size).coefficients) == {2: 8, 3: 77, 4: 884}[size]


def test_a_larger_factor_is_refused(double_precision_in_jax):
    from moment_calculus import UnsupportedMoments

    residual, coordinates, scale = parts(vector("numpy", *joint(20)), 5)
    correlation = on_support(CORRELATION_FACTOR, coordinates)
    with pytest.raises(UnsupportedMoments, match="a Cholesky factor of 5 rows"):
        expected_squared_length(residual, Factor(coordinates, correlation, (scale,)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_a_simplex_has_the_moments_of_draws(kind, count, scale, double_precision_in_jax):
    """Within 1 % of standard deviations in two dimensions, 5 % in more; with slopes by Stein."""
    mean, covariance = joint(count, scale=scale)
    value = on_support(SIMPLEX, vector(kind, mean, covariance))
    drawn = draws(mean, covariance)
    values = sticks(drawn)
    deviation, share = values.std(0), 0.01 if count == 2 else 0.05
    close(np.asarray(value.mean), values, bias=share * deviation)
    np.testing.assert_allclose(np.asarray(value.variance) ** 0.5, deviation, rtol=share)
    between = np.asarray(value.step.through(0, array(kind, covariance)))
    products = (values - values.mean(0))[..., None] * (drawn - drawn.mean(0))[:, None]
    close(between, products, bias=share * np.outer(deviation, np.sqrt(np.diagonal(covariance))))


@pytest.mark.parametrize("size", [2, 3])
def test_scaled_rows_have_the_moments_of_draws(size, double_precision_in_jax):
    count = size * (size - 1) // 2
    mean, covariance = joint(count + size, scale=0.5)
    value = vector("numpy", mean, covariance)
    coordinates, logs = (index(value, (part,)) for part in (slice(0, count), slice(count, None)))
    scale = apply(activation("exp"), logs)
    correlation = on_support(CORRELATION_FACTOR, coordinates)
    product = multiply(reshape(scale, (size, 1)), correlation)
    drawn = draws(mean, covariance)
    values = np.exp(drawn[:, count:, None]) * rows_of_factor(drawn[:, :count], size)
    bias = (0.0 if size == 2 else 0.02) * values.std(0)
    close(np.asarray(product.mean), values, bias=bias)
    deviation = values.std(0)
    np.testing.assert_allclose(np.asarray(product.variance) ** 0.5, deviation, rtol=0.03, atol=1e-9)
    assert factor_of(product).coordinates is coordinates


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3])
def test_a_factor_times_dependent_vectors_has_the_moments_of_draws(
    kind, size, double_precision_in_jax
):
    count = size * (size - 1) // 2
    mean, covariance = joint(2 * size + count, scale=0.4)
    value = vector(kind, mean, covariance)
    vectors, coordinates, scale = parts(value, size)
    correlation = on_support(CORRELATION_FACTOR, coordinates)
    scaled = multiply(reshape(scale, (size, 1)), correlation)
    product = matmul(scaled, vectors)
    drawn = draws(mean, covariance)
    rows = rows_of_factor(drawn[:, size:-size], size)
    values = np.exp(drawn[:, -size:]) * (rows @ drawn[:, :size, None])[..., 0]
    deviation, share = values.std(0), 0.0 if size == 2 else 0.01
    close(np.asarray(product.mean), values, bias=share * deviation)
    centred = values - values.mean(0)
    close(
        np.asarray(product.joint_covariance()),
        centred[:, :, None] * centred[:, None],
        bias=share * np.outer(deviation, deviation),
    )
    between = np.asarray(cross_covariance(product, value))
    products = centred[..., None] * (drawn - drawn.mean(0))[:, None]
    close(between, products, bias=share * np.outer(deviation, np.sqrt(np.diagonal(covariance))))
