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
