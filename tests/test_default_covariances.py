"""Objectives and predictions carry the covariance that a guide names, unless the user names one."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions
import numpyro.handlers
import pyro
import pytest
import torch

import numpyro_moments
import pyro_moments
from tests.checks.jaxprs import by_numpy

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
NAMED = {"DVIGuide": "full", "TridiagonalGuide": "backward", "MCDropoutGuide": "backward"}


def model_of(host, relu, zeros):
    """A network 3-3-3-1."""
    normal = lambda *shape: host.distributions.Normal(zeros(shape), 1.0).to_event(len(shape))  # noqa: E731

    def model(x, y=None):
        hidden = relu(x @ host.sample("first", normal(3, 3)))
        hidden = relu(hidden @ host.sample("second", normal(3, 3)))
        mean = (hidden @ host.sample("last", normal(3, 1)))[..., 0]
        with host.plate("rows", len(x)):
            host.sample("y", host.distributions.Normal(mean, 0.5), obs=y)

    return model


def by_pyro(name, covariance):
    """Loss, and variances of predictions, of a guide at its start."""
    pyro.set_rng_seed(0)
    with pyro.settings.context(module_local_params=True):
        model, x = model_of(pyro, torch.relu, torch.zeros), torch.tensor(X)
        guide = getattr(pyro_moments, name)(model, init_scale=0.5)  # wide: covariances matter
        elbo = pyro_moments.DeterministicELBO(covariance=covariance)
        loss = elbo.loss(model, guide, x, torch.ones(5))
        found = pyro_moments.predict(model, guide, x, covariance=covariance)["y"].variance
    return loss, found.numpy()


def by_numpyro(name, covariance):
    """The same in NumPyro, whose SVI wraps the guide in a handler."""
    model, x = model_of(numpyro, jax.nn.relu, jnp.zeros), jnp.asarray(X.copy())
    guide = getattr(numpyro_moments, name)(model, init_scale=0.5)
    elbo = numpyro_moments.DeterministicELBO(covariance=covariance)
    svi = numpyro_moments.SVI(model, guide, numpyro.optim.Adam(0.01), elbo)
    begin = by_numpy(lambda key: svi.get_params(svi.init(key, x, jnp.ones(5))))
    params = begin(jax.random.key(0))
    seeded = numpyro.handlers.seed(guide, 0)

    @by_numpy
    def run(params):
        found = numpyro_moments.predict(model, guide, params, x, covariance=covariance)
        loss = elbo.loss(jax.random.key(0), params, model, seeded, x, jnp.ones(5))
        return loss, found["y"].variance

    loss, variance = run(params)
    return float(loss), np.asarray(variance)


@pytest.mark.parametrize("run", [by_pyro, by_numpyro], ids=["pyro", "numpyro"])
@pytest.mark.parametrize(("name", "named"), NAMED.items())
def test_guides_name_the_default(run, name, named):
    loss, variance = run(name, None)
    for covariance in ("full", "backward"):
        other, others = run(name, covariance)
        same = loss == other and np.array_equal(variance, others)
        assert same == (covariance == named), covariance
