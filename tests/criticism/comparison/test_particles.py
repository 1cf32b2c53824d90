"""Draws of particles whose distributions draw from others inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist

from numpyro_moments.likelihoods.derived import restored
from numpyro_moments.prediction.particles import of_particles

PARTICLES, ROUNDS = 50, 400
FAMILIES = {
    "StudentT": lambda s: dist.StudentT(9.0, jnp.arange(3.0) + s, 1.0),
    "LogNormal": lambda s: dist.LogNormal(s + jnp.zeros(3), 0.5),
    "NegativeBinomial2": lambda s: dist.NegativeBinomial2(s + jnp.ones(3), 2.0),
    "NegativeBinomial2 of one mean": lambda s: dist.NegativeBinomial2(jnp.ones(3), 2.0 + s),
    "Beta": lambda s: dist.Beta(s + jnp.ones(3), 2.0),
    "BetaBinomial": lambda s: dist.BetaBinomial(s + jnp.ones(3), 2.0, 5),
    "HalfNormal": lambda s: dist.HalfNormal(s + jnp.ones(3)),
    "ZeroInflatedPoisson": lambda s: dist.ZeroInflatedPoisson(0.2, s + jnp.ones(3)),
    "expanded": lambda s: dist.StudentT(9.0, s, 1.0).expand([3]),
    "events": lambda s: dist.LogNormal(s * jnp.ones(3), 0.5).expand([2, 3]).to_event(1),
}


def particles_of(family):
    return restored(of_particles(jax.vmap(lambda s: restored(family(s)))(places())))


def places():
    return jnp.linspace(0.1, 2.0, PARTICLES)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_particle_draws_from_its_own_distribution(name):
    fn = particles_of(FAMILIES[name])
    draws = np.asarray(fn.sample(jax.random.key(0), (ROUNDS,)), np.float64)
    means = np.stack([np.broadcast_to(FAMILIES[name](s).mean, draws.shape[2:]) for s in places()])
    scales = np.stack([FAMILIES[name](s).variance ** 0.5 + 0 * means[0] for s in places()])
    z = (draws.mean(0) - means) * np.sqrt(ROUNDS) / scales
    assert draws.shape[1:] == means.shape
    assert np.square(z).mean() == pytest.approx(1.0, abs=6 * np.sqrt(2 / z.size))


@pytest.mark.parametrize("name", ["StudentT", "LogNormal", "HalfNormal", "expanded"])
def test_particles_do_not_share_their_noise(name):
    fn = particles_of(FAMILIES[name])
    draws = np.asarray(fn.sample(jax.random.key(1), (1,)), np.float64)[0]
    noise = (draws - np.asarray(fn.mean)) / np.sqrt(np.asarray(fn.variance))
    assert len(np.unique(noise.round(4))) > 0.95 * noise.size
    assert noise.mean(0) == pytest.approx(0, abs=5 / np.sqrt(PARTICLES))
