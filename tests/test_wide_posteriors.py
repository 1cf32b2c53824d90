"""Posteriors of which moments leave the range of the dtype, in both hosts: infinite, not NaN."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pyro
import pytest
import torch
from scipy import stats

import numpyro_moments
import pyro_moments
from tests.cases.hosts import models
from tests.checks.jaxprs import by_numpy

PRIORS = {
    "Gamma": (2.0, 1.0),
    "InverseGamma": (2.0, 1.0),
    "Exponential": (1.0,),
    "HalfNormal": (1.0,),
    "HalfCauchy": (1.0,),
    "Weibull": (1.0, 2.0),
    "LogNormal": (0.0, 1.0),
    "Beta": (2.0, 2.0),
    "Uniform": (0.0, 1.0),
}
LOCATION = 0.2


def site(prior, observed):
    def model(host):
        s = host.sample("s", getattr(host.dist, prior)(*PRIORS[prior]))
        if observed:
            host.sample("y", host.dist.Normal(0.0, s), obs=host.np.ones(()))

    return model


def in_pyro(model, scale):
    pyro.clear_param_store()
    guide = pyro_moments.DVIGuide(init_scale=scale)
    elbo, model = pyro_moments.DeterministicELBO(), partial(model, models.PYRO)
    elbo.differentiable_loss(model, guide)
    with torch.no_grad():
        next(guide.locs.parameters()).fill_(LOCATION)
    loss = elbo.differentiable_loss(model, guide)
    gradients = torch.autograd.grad(loss, list(guide.parameters()))
    return loss.item(), np.array([gradient.item() for gradient in gradients])


def in_numpyro(model, scale):
    model = partial(model, models.NUMPYRO)
    guide, elbo = numpyro_moments.DVIGuide(model), numpyro_moments.DeterministicELBO()
    values = {"s_auto_loc": jnp.array(LOCATION), "s_auto_scale": jnp.array(scale)}
    loss = jax.value_and_grad(lambda values: elbo.loss(jax.random.key(0), values, model, guide))
    value, gradients = by_numpy(loss)(values)
    return value.item(), np.array([gradient.item() for gradient in gradients.values()])


@pytest.mark.parametrize("scale", [10.0, 100.0])
@pytest.mark.parametrize("prior", PRIORS)
def test_losses_and_gradients_are_no_nan(prior, scale):
    """1/s² is beyond single precision at both widths, and both hosts say so."""
    for run in (in_pyro, in_numpyro):
        loss, gradients = run(site(prior, observed=True), scale)
        assert loss == np.inf, run
        assert not np.isnan(gradients).any(), run


LOG_DENSITIES = {  # from u, for s = exp(u) or its share
    "HalfCauchy": lambda u: np.log(2 / np.pi) - np.logaddexp(0, 2 * u) + u,
    "Beta": lambda u: np.log(6) - 2 * np.logaddexp(0, u) - 2 * np.logaddexp(0, -u),
    "Uniform": lambda u: -np.logaddexp(0, u) - np.logaddexp(0, -u),
}


@pytest.mark.parametrize("scale", [3.0, 30.0, 1000.0])
@pytest.mark.parametrize("prior", LOG_DENSITIES)
def test_divergences_that_are_finite_stay_exact(prior, scale):
    steps = np.linspace(-10, 10, 200_001)
    weights = stats.norm.pdf(steps) / stats.norm.pdf(steps).sum()
    energy = weights @ LOG_DENSITIES[prior](LOCATION + scale * steps)
    expected = -energy - stats.norm(0, scale).entropy()
    for run in (in_pyro, in_numpyro):
        assert run(site(prior, observed=False), scale)[0] == pytest.approx(expected, rel=1e-5), run


def predicted(host, package):
    def model():
        f = host.sample("f", host.dist.Normal(host.np.zeros(2), 1.0).to_event(1))
        host.sample("y", host.dist.LogNormal(f[0], host.np.exp(f[1])))

    if host is models.PYRO:
        guide = package.DVIGuide(init_scale=1.0)
        package.DeterministicELBO().loss(pyro.condition(model, {"y": torch.ones(())}), guide)
        found = package.predict(model, guide)["y"]
        return found.aleatoric_variance, found.epistemic_variance

    @by_numpy
    def variances(values):
        found = package.predict(model, package.DVIGuide(model), values)["y"]
        return found.aleatoric_variance, found.epistemic_variance

    return variances({"f_auto_loc": jnp.zeros(2), "f_auto_scale": jnp.ones(2)})


@pytest.mark.parametrize(
    ("host", "package"), [(models.PYRO, pyro_moments), (models.NUMPYRO, numpyro_moments)]
)
def test_a_log_normal_of_random_width_has_no_variance(host, package):
    """E exp(exp(2h)) of a Gaussian h is infinite."""
    aleatoric, epistemic = map(np.asarray, predicted(host, package))
    assert aleatoric == np.inf
    assert not np.isnan(epistemic)
