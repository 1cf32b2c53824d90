"""Draws of particles whose distributions draw from others inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist

from numpyro_moments.likelihoods.structure import restored
from numpyro_moments.prediction.predict import of_particles
from tests.checks.general import QUICK

PARTICLES, ROUNDS = 50, 400
FAMILIES = {
    "StudentT": lambda s: dist.StudentT(9.0, jnp.arange(3.0) + s, 1.0),
    "LogNormal": lambda s: dist.LogNormal(s + jnp.zeros(3), 0.5),
    "NegativeBinomial2 of one mean": lambda s: dist.NegativeBinomial2(jnp.ones(3), 2.0 + s),
    "BetaBinomial": lambda s: dist.BetaBinomial(s + jnp.ones(3), 2.0, 5),
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
    """And those of continuous ones do not share their noise."""
    draws, means, variances = (np.asarray(part, np.float64) for part in drawn(FAMILIES[name]))
    means, scales = np.broadcast_to(means, draws.shape[1:]), np.sqrt(variances)
    noise = (draws - means) / scales
    z = noise.mean(0) * np.sqrt(ROUNDS)
    assert np.square(z).mean() == pytest.approx(1.0, abs=6 * np.sqrt(2 / z.size))
    if name in ("StudentT", "LogNormal", "expanded"):
        assert len(np.unique(noise[0].round(4))) > 0.95 * noise[0].size
        assert noise[0].mean(0) == pytest.approx(0, abs=5 / np.sqrt(PARTICLES))


def drawn(family):
    """Draws of all particles, and the means and variances that they should have."""

    def run():
        moments = jax.vmap(lambda s: (family(s).mean, family(s).variance))(places())
        return particles_of(family).sample(jax.random.key(0), (ROUNDS,)), *moments

    return jax.jit(run, compiler_options=QUICK)()
