"""Comparisons of programs with parameters, subsamples, and likelihoods without predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist

from numpyro_moments.likelihoods.structure import restored
from numpyro_moments.prediction.predict import of_particles
from tests.checks.general import QUICK
from tests.checks.marks import IN_PYRO
from tests.criticism.containers.programs import NOISE, X, Y, doubles

CHAINS = {"num_warmup": 40, "num_samples": 80, "num_chains": 1}
FEW = {"num_warmup": 20, "num_samples": 20, "num_chains": 1, "kernel": {"max_tree_depth": 4}}


def compared(host, model, chains=CHAINS, **options):
    with doubles(host):
        data = [host.array(part) for part in (X, Y)]
        result = host.fit(model, *data, **options)
        return host.package.compare_with_nuts(model, result, *data, **chains)


def noise_parameter(host, begin):
    """The standard deviation of the noise, which is trained."""
    positive = host.dist.constraints.positive
    return host.language.param("scale", host.array(np.array(begin)), constraint=positive)


def with_parameter(host):
    """A regression whose noise is a parameter, which begins far from where it is trained to."""

    def model(x, y=None):
        weight, scale = host.weight(), noise_parameter(host, 5.0)
        host.observe(x, host.dist.Normal(x @ weight, scale), y)

    return model


def with_effects(host):
    """Effects of data in a plate of which the model takes a part."""

    def model(x, y=None):
        weight, scale = host.weight(), noise_parameter(host, NOISE)
        with host.language.plate("data", len(x), subsample_size=5) as rows:
            effect = host.language.sample("effect", host.dist.Normal(0.0, 1.0))
            noise = host.dist.Normal(x[rows] @ weight + effect, scale)
            host.language.sample("obs", noise, obs=None if y is None else y[rows])

    return model


def of_two(host):
    """A regression whose noise is a mixture, which has no predictions in closed form."""

    def model(x, y=None):
        weight = host.weight()
        shares = host.array(np.array([0.5, 0.5]))
        shifts = host.array(np.array([-0.1, 0.1]))
        parts = host.dist.Normal((x @ weight)[:, None] + shifts, NOISE)
        noise = host.dist.MixtureSameFamily(host.dist.Categorical(shares), parts)
        host.observe(x, noise, y)

    return model


@IN_PYRO
def test_chains_have_the_trained_parameters(host):
    found = compared(host, with_parameter(host), method="newton")
    (site,) = found.sites
    assert found.seconds["NUTS"] > 0
    assert site.ratios["linear response"] == pytest.approx(1, abs=0.35)
    assert np.abs(site.difference).max() < 5 * site.error.max()


def test_chains_have_whole_plates(host):
    found = compared(host, with_effects(host), FEW, steps=5)
    draws = found.inference_data["NUTS"].posterior
    assert found.reference.get_samples()["effect"].shape == (20, len(X))
    assert draws["effect"].shape == (1, 20, len(X))
    assert found.predictive[0].difference.shape == (len(X),)
    means = draws.mean(("chain", "draw"))
    residuals = Y - X @ means["weight"].values
    assert np.corrcoef(means["effect"], residuals)[0, 1] > 0.8
    if host.name == "numpyro":  # which substitutes the trained parameters
        energy = found.reference.last_state.potential_energy
        lp = found.inference_data["NUTS"].sample_stats["lp"].values[:, -1]
        np.testing.assert_allclose(-np.asarray(energy), lp)


@IN_PYRO
def test_what_has_no_predictions_is_compared_without(host):
    objective = host.package.DeterministicELBO(sample_sites=["weight"])
    found = compared(host, of_two(host), steps=5, objective=objective)
    assert not found.predictive
    assert found.sites
    assert any(note.startswith("no predictions: site 'obs'") for note in found.notes)


PARTICLES, ROUNDS = 50, 400
FAMILIES = {
    "StudentT": lambda s: dist.StudentT(9.0, jnp.arange(3.0) + s, 1.0),
    "LogNormal": lambda s: dist.LogNormal(s + jnp.zeros(3), 0.5),
    "NegativeBinomial2 of one mean": lambda s: dist.NegativeBinomial2(jnp.ones(3), 2.0 + s),
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
