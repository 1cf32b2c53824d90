"""Predictions by particles, mixtures of what each predicts; ``tests/pyro`` has all rows."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from numpyro_moments import SampledPrediction
from tests.checks import uncertainty
from tests.checks.predictions import LEVELS, check_draws, check_levels
from tests.numpyro.likelihoods.test_predictions import DRAWS, KEY, UNCERTAINTY, answers, close
from tests.numpyro.one_program import evaluated

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def of_particles(name, locations):
    return SampledPrediction("y", uncertainty.CASES[name].host(dist, jnp, jnp.asarray(locations)))


def test_particles():
    values = 1.0, np.ones(3), np.ones((2, 3))
    attributes = "mean", "epistemic_variance", "aleatoric_variance", *UNCERTAINTY

    def program(locations):
        found = of_particles("Normal", locations)
        densities = [found.log_prob(jnp.asarray(value)) for value in values]
        quantiles = found.quantile(LEVELS), found.quantile(0.3), found.cdf(jnp.zeros(3))
        return quantiles, densities, found.sample(DRAWS, KEY), found.sample(3, key=KEY)

    locations = uncertainty.LOCATIONS
    found = answers(attributes, lambda locations: of_particles("Normal", locations), locations)
    (quantiles, found_quantile, below), densities, draws, few = evaluated(program, locations)
    found.quantile = {0.3: found_quantile}.get
    uncertainty.check_particles("Normal", found)
    exact = np.broadcast_to(uncertainty.log_density("Normal", 1.0), (2, 3))
    for density in densities:
        close(np.broadcast_to(density, (2, 3)), exact, rtol=1e-6)
    law = uncertainty.CASES["Normal"].scipy(locations)
    check_levels(np.stack([law.cdf(np.asarray(value)).mean(0) for value in quantiles]))
    close(below, law.cdf(0.0).mean(0), rtol=1e-6)
    check_draws(np.asarray(draws), np.asarray(quantiles))
    assert few.shape == (3, 3)


def test_particles_of_counts_and_classes():
    probs = uncertainty.class_draws(64)

    def program(probs, locations):
        found = SampledPrediction("y", dist.Categorical(logits=jnp.log(probs)))
        moments = found.probs, found.epistemic_variance, found.mutual_information
        chosen = jnp.exp(found.log_prob(jnp.array([0, 2])))
        counts = SampledPrediction("y", dist.Poisson(jnp.exp(locations)))
        return *moments, found.credible_interval(0.8), chosen, counts.cdf(1.2)

    locations = np.array([[-1.0, 0.0], [0.5, 2.0]])
    found = evaluated(program, probs, locations)
    exact = (
        probs.mean(0),
        probs.var(0),
        uncertainty.class_information(probs),
        np.quantile(probs, [0.1, 0.9], axis=0, method="hazen"),
        probs.mean(0)[[0, 1], [0, 2]],
        scipy.stats.poisson(np.exp(locations)).cdf(1.2).mean(0),
    )
    for actual, expected in zip(found, exact, strict=True):
        close(actual, expected, rtol=1e-5)
