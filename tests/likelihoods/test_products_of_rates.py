"""Rates that are products of positive functions of different Gaussians, beside Gauss rules."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as numpyro_dist
import pyro.distributions as pyro_dist
import pytest
import torch
from scipy import special, stats

from numpyro_moments.likelihoods import expected as in_numpyro
from pyro_moments.likelihoods import expected as in_pyro
from tests.checks import small_programs
from tests.numpyro.likelihoods.cases import MEAN, VARIANCE, distribution, latent
from tests.oracles.quadrature import hermite_grid
from tests.pyro.likelihoods.test_likelihoods import latent as pyro_latent

OTHER = np.array([0.2, -0.4, 0.5]), np.array([0.2, 0.5, 0.1])
COUNTS, TIMES = np.array([0.0, 4.0, 7.0]), np.array([0.3, 1.2, 4.0])

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

# By name: from a framework's distributions and a rate to a distribution, the same of SciPy, and
# observations.
FAMILIES = {
    "Poisson": (lambda dist, rate: dist.Poisson(rate), stats.poisson, COUNTS),
    "GammaPoisson": (
        lambda dist, rate: dist.GammaPoisson(2.0, rate),
        lambda rate: stats.nbinom(2.0, rate / (1 + rate)),
        COUNTS,
    ),
    "Exponential": (
        lambda dist, rate: dist.Exponential(rate),
        lambda rate: stats.expon(scale=1 / rate),
        TIMES,
    ),
    "Gamma": (
        lambda dist, rate: dist.Gamma(2.5, rate),
        lambda rate: stats.gamma(2.5, scale=1 / rate),
        TIMES,
    ),
    "Weibull": (
        lambda dist, rate: dist.Weibull(rate, 1.5 if dist is numpyro_dist else torch.tensor(1.5)),
        lambda scale: stats.weibull_min(1.5, scale=scale),
        TIMES,
    ),
}


def rate_of(u, v, exp, softplus):
    """A multiple of a product of functions of two Gaussians."""
    return 2.0 * (softplus(u) * (1 + exp(v)))


def found(framework, name):
    """Expected log density, predictive mean, log density and mean of a power, of a framework."""
    make, _, value = FAMILIES[name]
    if framework == "pyro":
        moments = (MEAN, VARIANCE), OTHER
        u, v = (pyro_latent(n, *map(torch.tensor, m)) for n, m in zip("uv", moments, strict=True))
        rate = rate_of(u, v, torch.exp, torch.nn.functional.softplus)
        fn, value, module = make(pyro_dist, rate), torch.tensor(value), in_pyro
    else:
        program = lambda u, v: make(numpyro_dist, rate_of(u, v, jnp.exp, jax.nn.softplus))  # noqa: E731
        fn = distribution(program, latent("u"), latent("v", *OTHER))
        value, module = jnp.array(value), in_numpyro
    mean, *_, log_prob = module.predictive("obs", fn)
    power = module.tempered("obs", fn, value, 0.5)
    return [module.evaluate("obs", fn, value), mean, log_prob(value), power]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("framework", ["pyro", "numpyro"])
def test_products_are_integrated_over_their_factors(framework, name):
    z, weights = hermite_grid(60, 2)
    u, v = MEAN + np.sqrt(VARIANCE) * z[:, :1], OTHER[0] + np.sqrt(OTHER[1]) * z[:, 1:]
    _, family, value = FAMILIES[name]
    certain = family(rate_of(u, v, np.exp, lambda x: np.log1p(np.exp(x))))
    logs = certain.logpmf(value) if hasattr(certain.dist, "logpmf") else certain.logpdf(value)
    power = 2 * special.logsumexp(0.5 * logs, b=weights[:, None], axis=0)
    mass = special.logsumexp(logs, b=weights[:, None], axis=0)
    oracle = [weights @ logs, weights @ certain.mean(), mass, power]
    with small_programs.by_numpy():
        parts = found(framework, name)
    for ours, exact in zip(parts, oracle, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2e-5, atol=1e-6)
