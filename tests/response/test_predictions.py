"""Predictions by linear response, against draws of the response itself."""

from functools import cache

import jax
import numpy as np
import pytest
import scipy.stats

from tests.checks import carried
from tests.response.models import doubles, fresh

DRAWS = 10_000
ROWS = np.array([[-1.0], [0.5]])


def _data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(12, 1))
    return x, np.exp(x[:, 0] + 0.5 * rng.normal(size=12))


# By family: the host's distribution of a mean and a shape, SciPy's with the same parameters, and
# what becomes of the data. Both parameters of each depend on both latent sites.
FAMILIES = {
    "Gamma": (
        lambda dist, m, s: dist.Gamma(s, s / m),
        lambda m, s: scipy.stats.gamma(s, scale=m / s),
        lambda y: y,
    ),
    "GammaPoisson": (
        lambda dist, m, s: dist.GammaPoisson(s, s / m),
        lambda m, s: scipy.stats.nbinom(s, s / (s + m)),
        lambda y: np.floor(2 * y),
    ),
    "Normal": (
        lambda dist, m, s: dist.Normal(m, m * s),
        lambda m, s: scipy.stats.norm(m, m * s),
        lambda y: y,
    ),
}


def _model(host, family):
    dist, likelihood = host.dist, FAMILIES[family][0]

    def model(x, y=None):
        weight = host.language.sample("weight", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        shape = host.language.sample("shape", dist.Gamma(4.0, 3.0))
        mean = host.np.exp(x[:, 0] * weight[0] + weight[1])
        host.observe(x, likelihood(dist, mean, shape), y)

    return model


@cache
def fitted(family):
    """Parameters by Pyro: tracing Newton's method in JAX takes longer than all else here."""
    host, (x, y) = fresh("pyro"), _data()
    with doubles(host):
        data = host.array(x), host.array(FAMILIES[family][2](y))
        options = {"method": "newton", "by_draws": False}
        return host.package.fit(_model(host, family), host.package.DVIGuide(), *data, **options)


@cache
def predicted(name, family):
    """The prediction, and SciPy's distribution given each of the response's draws."""
    host, (x, y), params = fresh(name), _data(), fitted(family).params
    model, guide = _model(host, family), host.package.DVIGuide()
    with doubles(host):
        data = host.array(x), host.array(FAMILIES[family][2](y))
        params = carried.in_numpyro(params) if name == "numpyro" else params
        response = host.package.linear_response(model, guide, *data, params=params)
        key = (jax.random.key(0),) if name == "numpyro" else ()
        draws = response.sample(DRAWS, *key)
        prediction = response.predict(host.array(ROWS))["obs"]
        weight, shape = (np.asarray(draws[site], float) for site in ("weight", "shape"))
        means = np.exp(weight[:, :1] * ROWS[:, 0] + weight[:, 1:])
        return host, prediction, FAMILIES[family][1](means, shape[:, None])


# Programs of JAX with incomplete gamma functions take long to compile: one is enough there.
CASES = [
    *(("pyro", family) for family in ("Gamma", "GammaPoisson")),
    ("pyro", "Normal"),
    ("numpyro", "Normal"),
]


@pytest.fixture(params=CASES, ids="-".join, scope="module")
def case(request):
    return predicted(*request.param)


def check(found, draws, slack=0.0):
    """A mean of draws, within five of its standard errors."""
    error = 5 * draws.std(0) / len(draws) ** 0.5
    np.testing.assert_array_less(np.abs(np.asarray(found) - draws.mean(0)), error + slack)


def test_moments_are_those_of_the_draws(case):
    _, prediction, given = case
    mean = given.mean()
    check(prediction.mean, mean)
    check(prediction.epistemic_variance, (mean - mean.mean(0)) ** 2)
    check(prediction.aleatoric_variance, given.var())


def test_densities_and_quantiles_are_those_of_the_draws(case):
    host, prediction, given = case
    discrete = hasattr(given.dist, "pmf")
    value = np.array([0.4, 0.7]) if not discrete else np.array([1.0, 3.0])
    with doubles(host):
        log_density = np.asarray(prediction.log_prob(host.array(value)))
        below = np.asarray(prediction.quantile(0.9))
    check(np.exp(log_density), (given.pmf if discrete else given.pdf)(value))
    if discrete:
        assert (given.cdf(below).mean(0) >= 0.9).all()
        assert (given.cdf(below - 1).mean(0) < 0.9).all()
    else:
        check([0.9, 0.9], given.cdf(below))
