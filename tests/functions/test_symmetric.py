"""Mehler's series of all pairs in programs that are compiled, against closed forms in full."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.pairs.covariance import compiled_covariance
from moment_calculus.functions.table import activation
from tests.checks.jaxprs import by_numpy
from tests.functions.test_certified import BATCH, SIZE, clipped_correlation, gaussian, in_full

rng = np.random.default_rng(23)
STRENGTHS = {"few terms": 0.02, "closed form": 0.75}
WEIGHTS = rng.normal(size=(BATCH, SIZE, SIZE))


def strongest(covariance):
    deviation = np.diagonal(covariance, axis1=-2, axis2=-1) ** 0.5
    rho = covariance / (deviation[..., :, None] * deviation[..., None, :])
    return np.abs(rho - np.eye(SIZE)).max()


def taken(function, mean, covariance):
    """What the rule gives, if it takes the layer."""
    spread = function.moments(mean, jnp.diagonal(covariance, axis1=-2, axis2=-1))[1]
    return compiled_covariance(function, mean, covariance, 32, lambda m, v, c, s: c, spread)


@functools.cache
def traced(function):
    """The covariance with a check that it was not left to the general rule; traced."""

    def compute(mean, covariance):
        assert taken(function, mean, covariance) is not None
        return pairs.covariance(function, mean, covariance)

    return by_numpy(compute)


@pytest.mark.parametrize(
    ("dtype", "error"), [("float64", 2e-9), ("float32", 1e-5)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("name", ["relu", "softplus"])
def test_values(name, dtype, error):
    function = activation(name)
    for branch, strength in STRENGTHS.items():
        mean, covariance = gaussian(strength)
        assert (strongest(covariance) < 0.4) == (branch == "few terms")
        with jax.enable_x64(dtype == "float64"):
            arrays = (jnp.asarray(part, dtype) for part in (mean, covariance))
            off = np.asarray(traced(function)(*arrays)) - in_full(function, mean, covariance)
        assert clipped_correlation(off, function, mean, covariance) < error


def torch_gradients(mean, factor):
    inputs = [torch.tensor(part, requires_grad=True) for part in (mean, factor)]
    full = in_full(activation("relu"), inputs[0], inputs[1] @ inputs[1].mT)
    return torch.autograd.grad((torch.tensor(WEIGHTS) * full).sum(), inputs)


def weighted(mean, factor):
    full = pairs.covariance(activation("relu"), mean, factor @ factor.mT)
    return (jnp.asarray(WEIGHTS) * full).sum()


def points():
    """A mean and a factor of the covariance for either branch of one compiled program."""
    for strength in STRENGTHS.values():
        mean, covariance = gaussian(strength)
        yield mean, np.linalg.cholesky(covariance)


def test_gradients():
    with jax.enable_x64(True):
        slopes = jax.jit(jax.grad(weighted, (0, 1)))
        for point in points():
            for ours, theirs in zip(slopes(*point), torch_gradients(*point), strict=True):
                np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-7, atol=1e-7)


def test_derivatives_of_gradients():
    """Forward over reverse, against differences of the gradient."""
    step = 1e-5
    with jax.enable_x64(True):
        slopes = by_numpy(jax.grad(weighted, (0, 1)))
        bend = by_numpy(lambda point, along: jax.jvp(slopes, point, along)[1])
        for point in points():
            along = tuple(rng.normal(size=part.shape) for part in point)
            high, low = (
                slopes(*(p + by * a for p, a in zip(point, along, strict=True)))
                for by in (step, -step)
            )
            for bent, above, below in zip(bend(point, along), high, low, strict=True):
                change = (above - below) / (2 * step)
                np.testing.assert_allclose(bent, change, rtol=1e-4, atol=1e-5)


def test_a_batch_of_batches_and_more_axes():
    mean, covariance = gaussian(0.02)
    function = activation("relu")
    expected = in_full(function, mean, covariance)
    with jax.enable_x64(True):
        arrays = jnp.asarray(mean), jnp.asarray(covariance)
        axes = [part.reshape(3, 3, *part.shape[1:]) for part in arrays]
        twice = [jnp.stack([part, part]) for part in arrays]
        compute = traced(function)
        np.testing.assert_allclose(compute(*axes).reshape(expected.shape), expected, atol=1e-9)
        for result in by_numpy(jax.vmap(compute))(*twice):
            np.testing.assert_allclose(result, expected, atol=1e-9)


def test_small_layers_have_one_rule_to_compile():
    mean, covariance = (jnp.asarray(part[:2], jnp.float32) for part in gaussian(0.02))
    function = activation("relu")
    assert taken(function, mean, covariance) is None
