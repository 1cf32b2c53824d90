"""Predictions of a LogNormal with a random scale: what exists, and what is infinite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import torch

from tests.response.models import HOSTS, doubles, fresh

DRAWS = 20_000
X = np.array([-0.5, 0.3, 1.0])


def predicted(name, link, deviation=0.3):
    """The prediction of a location a + b x and a scale that depends on both."""
    host = fresh(name)
    dist, sample = host.dist, host.language.sample
    softplus = jax.nn.softplus if name == "numpyro" else torch.nn.functional.softplus
    exp = jnp.exp if name == "numpyro" else torch.exp
    function = {"exp": lambda s: exp(0.5 * s), "softplus": softplus, "certain": lambda s: 0.7}[link]

    def guide():
        sample("a", dist.Normal(host.array(0.4), deviation))
        sample("b", dist.Normal(host.array(-0.2), deviation))

    def model():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        x = host.array(X)
        with host.language.plate("data", 3):
            scale = function(b + 0.3 * a * x)
            sample("obs", dist.LogNormal(a + b * x, scale))

    with doubles(host):
        options = {"params": {}} if name == "numpyro" else {}
        return host, host.package.predict(model, guide, **options)["obs"]


def given(link, deviation=0.3):
    """SciPy's distribution given each of many draws of the coefficients."""
    noise = np.random.default_rng(0).normal(size=(2, DRAWS, 1))
    a, b = 0.4 + deviation * noise[0], -0.2 + deviation * noise[1]
    s = b + 0.3 * a * X
    scale = {"exp": np.exp(0.5 * s), "softplus": np.logaddexp(0, s), "certain": 0.7 + 0 * s}[link]
    return scipy.stats.lognorm(scale, scale=np.exp(a + b * X))


def check(found, draws):
    """A mean of draws, within five of its standard errors."""
    error = 5 * draws.std(0) / len(draws) ** 0.5
    np.testing.assert_array_less(np.abs(np.asarray(found) - draws.mean(0)), error + 1e-12)


@pytest.mark.parametrize("link", ["exp", "softplus", "certain"])
@pytest.mark.parametrize("name", HOSTS)
def test_densities_quantiles_and_entropies_are_those_of_draws(name, link):
    host, prediction = predicted(name, link)
    draws = given(link)
    with doubles(host):
        check(prediction.cdf(host.array(np.ones(3))), draws.cdf(1.0))
        check(np.exp(np.asarray(prediction.log_prob(host.array(np.ones(3))))), draws.pdf(1.0))
        check([0.8] * 3, draws.cdf(np.asarray(prediction.quantile(0.8))))
        values = draws.rvs(random_state=1)[:1000]
        log_density = np.asarray(prediction.log_prob(host.array(values)))
        check(prediction.entropy, -log_density)
        known = np.asarray(prediction.entropy) - np.asarray(prediction.mutual_information)
    check(known, draws.entropy())


@pytest.mark.parametrize("name", HOSTS)
def test_moments_that_do_not_exist_are_infinite(name):
    _, exponential = predicted(name, "exp")
    assert np.isinf(np.asarray(exponential.mean)).all()
    assert np.isinf(np.asarray(exponential.variance)).all()
    for link in ("softplus", "certain"):
        _, prediction = predicted(name, link)
        assert np.isfinite(np.asarray(prediction.variance)).all()
        check(prediction.mean, given(link).mean())


@pytest.mark.parametrize("name", HOSTS)
def test_a_scale_in_proportion_to_a_wide_gaussian_leaves_no_moments(name):
    slopes = {0.45: (0, 0, 0), 0.6: (0, 0, 1), 0.8: (0, 1, 1), 1.1: (1, 1, 1)}
    for deviation, infinite in slopes.items():
        _, prediction = predicted(name, "softplus", deviation)
        found = prediction.mean, prediction.epistemic_variance, prediction.aleatoric_variance
        narrowest = [bool(np.isinf(np.asarray(part)).all()) for part in found]
        assert narrowest == [bool(part) for part in infinite]
