"""A positive or bounded site serves wherever its function of a Gaussian would."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_moments import DeterministicELBO, DVIGuide
from tests.cases.hosts.sites_and_likelihoods import DATA, FUNCTIONS, LOCATION, PRIORS, SCALE, elbo
from tests.checks.jaxprs import by_numpy

PARAMETERS = {"s_auto_loc": LOCATION, "s_auto_scale": SCALE}


def losses(prior):
    """Of all functions of a site, in one program."""
    family = getattr(dist, prior.split()[0])(*PRIORS[prior][0])

    def loss(function):
        def model():
            scale = FUNCTIONS[function](jnp, numpyro.sample("s", family))
            with numpyro.plate("data", len(DATA)):
                numpyro.sample("obs", dist.Normal(0.0, scale), obs=DATA)

        return DeterministicELBO().loss(jax.random.key(0), PARAMETERS, model, DVIGuide(model))

    return by_numpy(lambda: {function: loss(function) for function in FUNCTIONS})()


@pytest.mark.parametrize("prior", ["Gamma", "HalfCauchy", "Beta", "Uniform"])
def test_positive_sites_as_scales(prior, double_precision_in_jax):
    for function, found in losses(prior).items():
        assert -found == pytest.approx(elbo(prior, function), rel=1e-6), function


def test_wide_posteriors_of_a_log_normal_site_are_not_nan():
    def model():
        site = numpyro.sample("s", dist.LogNormal(0.0, 1.0))
        numpyro.sample("obs", dist.Normal(site, 1.0), obs=0.7)

    def loss(parameters):
        return DeterministicELBO().loss(jax.random.key(0), parameters, model, DVIGuide(model))

    found, slopes = by_numpy(jax.value_and_grad(loss))({"s_auto_loc": 0.3, "s_auto_scale": 100.0})
    assert found > 1e30
    assert not any(jnp.isnan(slope) for slope in slopes.values())
