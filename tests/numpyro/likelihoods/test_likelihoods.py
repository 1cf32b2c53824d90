"""Every likelihood against quadrature over its own density, as the host evaluates it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_moments.likelihoods.expected import evaluate, predictive
from tests.checks.jaxprs import by_numpy
from tests.numpyro.likelihoods.cases import (
    CASES,
    MEAN,
    VARIANCE,
    distribution,
    latent,
)
from tests.oracles import quadrature as oracles

# One for every way in which a gradient flows; their gradients, and those of the oracle.
DIFFERENTIATED = [
    "Normal, nonlinear",
    "StudentT, both",
    "Gamma, both",
    "NegativeBinomial, probs",
    "ZeroInflatedPoisson",
    "OrderedLogistic",
    "Beta",
    "truncated Normal",
]


pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")


def averaged(function, mean, variance):
    """E[function(f)] by narrow panels."""
    z, weights = oracles.narrow_grid(1, 1)
    values = jax.vmap(function)(mean + jnp.sqrt(variance) * z)
    return jnp.tensordot(weights, values, 1)


def close(actual, expected, rtol=1e-6, atol=1e-9):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def expected(name, mean, variance):
    make, value = CASES[name]
    return evaluate("obs", distribution(make, latent("f", mean, variance)), value)


def oracle(name, mean, variance):
    make, value = CASES[name]
    return averaged(lambda f: make(f).log_prob(value), mean, variance)


@functools.cache
def computed():
    """The expected log densities and the oracle's, by one program for all cases."""

    def both(*moments):
        return {name: (expected(name, *moments), oracle(name, *moments)) for name in CASES}

    return by_numpy(both)(MEAN, VARIANCE)


@pytest.mark.parametrize("name", CASES)
def test_expected_log_density(name):
    close(*computed()[name])


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_by_mean_and_variance(name):
    @by_numpy
    def gradients(mean, variance):
        return [
            jax.grad(lambda *moments, f=f: f(name, *moments).sum(), (0, 1))(mean, variance)
            for f in (expected, oracle)
        ]

    close(*gradients(MEAN, VARIANCE), rtol=2e-5)


PREDICTED = [
    "Normal, nonlinear",
    "StudentT, both",
    "NegativeBinomial2",
    "ZeroInflatedPoisson, both",
    "Beta",
]


@pytest.mark.parametrize("name", PREDICTED)
def test_predictive_moments_and_density(name):
    make, value = CASES[name]

    @by_numpy
    def both(mean, variance):
        *moments, log_prob = predictive("obs", distribution(make, latent("f", mean, variance)))
        density = averaged(lambda f: jnp.exp(make(f).log_prob(value)), mean, variance)
        centre = averaged(lambda f: make(f).mean, mean, variance)
        spread = averaged(lambda f: (make(f).mean - centre) ** 2, mean, variance)
        noise = averaged(lambda f: make(f).variance, mean, variance)
        return (*moments, log_prob(value)), (centre, spread, noise, jnp.log(density))

    for actual, exact in zip(*both(MEAN, VARIANCE), strict=True):
        close(actual, exact)


def test_single_precision_stays_close_to_double():
    """Without x64 the nodes are single, too; the docstring of ``expected`` has the figure."""
    names = "Gumbel", "ZeroInflatedPoisson", "Beta", "truncated Normal"

    @by_numpy
    def single(*moments):
        return [expected(name, *moments) for name in names]

    double = computed()
    with jax.enable_x64(False):
        moments = MEAN.copy(), VARIANCE.copy()  # of which JAX does not know a precision yet
        for name, found in zip(names, single(*moments), strict=True):
            assert found.dtype == jnp.float32
            close(found, double[name][0], rtol=1e-5, atol=1e-6)


def test_a_batch_by_vmap():
    make, value = CASES["Poisson, exp"]
    means = MEAN + np.arange(2.0)[:, None]

    def one(mean):
        return evaluate("obs", distribution(make, latent("f", mean)), value)

    single = by_numpy(one)
    close(jax.vmap(one)(means), [single(mean) for mean in means])
