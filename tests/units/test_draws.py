"""Draws of stochastic units: fresh for each row and particle, with the gradient of their mean."""

import jax
import numpy as np
import pyro
import pytest
import torch

from numpyro_moments import units as numpyro_units
from pyro_moments import units as pyro_units
from tests.checks.jaxprs import by_numpy
from tests.response.models import doubles
from tests.units.cases import GUMBEL, LOC, SHARED, UNITS, X, array, guide_of, model_of, predicted

NAMED = {**UNITS, "classes": GUMBEL}
Y = np.zeros((4, 7))


def losses(host, unit, seeds=1, **options):
    """One loss of each seed."""
    objective = host.package.DeterministicELBO(**options)
    program = model_of(host, unit), guide_of(host), array(host, X), array(host, Y)
    if host.name == "numpyro":
        keys = jax.random.split(jax.random.key(0), seeds)
        return by_numpy(jax.vmap(lambda key: objective.loss(key, {}, *program)))(keys)
    pyro.set_rng_seed(0)
    return np.array([float(objective.loss(*program)) for _ in range(seeds)])


@pytest.mark.parametrize("name", ["bernoulli_logistic", "rectifier", "classes"])
def test_the_loss_by_draws_is_that_by_moments(name, host):
    """Rows and particles have own draws; a softmax's mean is off by 0.01."""
    with doubles(host):
        (stated,) = losses(host, NAMED[name], covariance="full")
        drawn = losses(host, NAMED[name], 8, propagation="sampled", num_particles=2000)
    error = np.std(drawn, ddof=1) / len(drawn) ** 0.5
    assert abs(stated - np.mean(drawn)) < 4 * error + 0.1 * (name == "classes")


def test_particles_have_draws_of_their_own(host):
    """The epistemic variance of one row by particles is that of moments."""
    key = {"rng_key": jax.random.key(0)} if host.name == "numpyro" else {}
    options = {"propagation": "sampled", "num_particles": 4000, **key}
    for name in ("bernoulli_logistic", "rectifier"):
        drawn, stated = predicted(host, NAMED[name], **options), predicted(host, NAMED[name])
        np.testing.assert_allclose(drawn[1][:, :4], stated[1][:, :4], rtol=0.15, atol=0.01)


@pytest.mark.parametrize("name", ["bernoulli_probit", "binary, logistic", "classes"])
def test_means_at_means(name, host):
    inputs = X @ LOC["w"] + LOC["s"] * SHARED
    shares = np.exp(inputs) / np.exp(inputs).sum(-1, keepdims=True)
    expected = shares if name == "classes" else NAMED[name].mean(inputs)
    found = predicted(host, NAMED[name], propagation="mean")
    np.testing.assert_allclose(found[0][:, :4], expected, atol=1e-5)
    np.testing.assert_allclose(found[1], 0, atol=1e-6)


def test_draws_have_the_gradient_of_their_mean():
    x = torch.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()
    for draw, mean in (
        (pyro_units.bernoulli_logistic, torch.sigmoid),
        (pyro_units.bernoulli_probit, torch.special.ndtr),
    ):
        found, expected = (torch.autograd.grad(f(x).sum(), x)[0] for f in (draw, mean))
        torch.testing.assert_close(found, expected)
    x, key = x.detach().numpy(), jax.random.key(0)
    for draw, mean in (
        (numpyro_units.bernoulli_logistic, jax.nn.sigmoid),
        (numpyro_units.gumbel_argmax, jax.nn.softmax),
    ):
        found = jax.grad(lambda x, draw=draw: (draw(key, x) * x).sum())(x)
        expected = jax.grad(lambda x, mean=mean: (mean(x) * jax.lax.stop_gradient(x)).sum())(x)
        np.testing.assert_allclose(found - draw(key, x), expected, atol=1e-6)


def test_a_network_that_users_compile_is_traced_anew_at_the_mean(host):
    """A draw must not come out of the cache of ``jax.jit`` where its mean is asked."""
    unit = GUMBEL
    if host.name == "numpyro":
        inner = jax.jit(numpyro_units.gumbel_argmax)
        unit = GUMBEL._replace(draw=lambda host, x: inner(host.language.prng_key(), x))
    predicted(host, unit)
    found = predicted(host, unit, propagation="mean")
    np.testing.assert_allclose(found[0], predicted(host, GUMBEL, propagation="mean")[0], rtol=1e-5)
