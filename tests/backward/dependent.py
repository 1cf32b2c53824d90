"""Programs of dependent values: their variances beside slopes and draws, in torch and in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import numpyro_moments
import pyro_moments
from tests.checks.jaxprs import by_numpy


def moments(weights, scale, package=pyro_moments, array=torch.as_tensor):
    """Of independent weights, arrays of NumPy or torch, with one standard deviation."""
    means = [array(weight) for weight in weights]
    return [package.Moments(mean, variance=0 * mean + scale**2) for mean in means]


def propagated(program, weights, scale, covariance="backward"):
    return pyro_moments.propagate(program, *moments(weights, scale), covariance=covariance)


def check_small_variances(program, weights, found, rtol=1e-4, atol=1e-14, mean=1e-8):
    """At standard deviations of 1e-5 variances are squares of slopes; outputs may be several."""
    weights = tuple(map(torch.as_tensor, weights))
    plain = program(*weights)
    slopes = torch.func.jacrev(program, argnums=tuple(range(len(weights))))(*weights)
    if isinstance(plain, torch.Tensor):
        found, plain, slopes = [found], [plain], [slopes]
    for ours, part, slope in zip(found, plain, slopes, strict=True):
        exact = 1e-10 * sum((s**2).reshape(*part.shape, -1).sum(-1) for s in slope)
        torch.testing.assert_close(ours.variance, exact, rtol=rtol, atol=atol)
        torch.testing.assert_close(ours.mean, part.detach(), rtol=mean, atol=mean)


def check_deviations(program, weights, scale, spread, off):
    """Standard deviations and means, in units of these, beside those of draws."""
    generator = torch.Generator().manual_seed(0)
    draws = [
        torch.as_tensor(w) + scale * torch.randn((20_000, *w.shape), generator=generator).double()
        for w in weights
    ]
    drawn = torch.vmap(program)(*draws)
    found, deviation = propagated(program, weights, scale), drawn.std(0)
    ratio = found.variance.sqrt() / deviation
    assert float(ratio.log().mean().exp()) == pytest.approx(1, abs=spread)
    assert float(((found.mean - drawn.mean(0)) / deviation).abs().mean()) < off


def check_hosts(in_torch, in_jax, weights):
    """Variances and gradients of torch and JAX."""

    def loss(package, program, means):
        inputs = [package.Moments(mean, variance=0 * mean + 0.04) for mean in means]
        found = package.propagate(program, *inputs, covariance="backward")
        return found.variance.sum() + (found.mean**2).sum(), found.variance

    means = [torch.tensor(weight, requires_grad=True) for weight in weights]
    value, variance = loss(pyro_moments, in_torch, means)
    value.backward()
    with jax.enable_x64(True):
        slopes = jax.grad(lambda at: loss(numpyro_moments, in_jax, at), has_aux=True)
        gradients, theirs = by_numpy(slopes)([*map(jnp.asarray, weights)])
    np.testing.assert_allclose(theirs, variance.detach(), rtol=1e-10)
    for gradient, mean in zip(gradients, means, strict=True):
        np.testing.assert_allclose(gradient, mean.grad, rtol=1e-8, atol=1e-10)
