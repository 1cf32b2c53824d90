"""Predictions of a LogNormal with a random scale: what exists, and what is infinite."""

import jax
import numpy as np
import pytest
import scipy.stats
import torch

from tests.checks.jaxprs import by_numpy
from tests.response.models import HOSTS, doubles, fresh

DRAWS = 20_000
X = np.array([-0.5, 0.3, 1.0])


def asked(host, predict, questions):
    """Answers of the prediction of a site; in NumPyro by one compiled program."""
    with doubles(host):
        if host.name == "numpyro":
            return by_numpy(lambda: questions(predict()))()
        return questions(predict())


def predicted(name, link, questions, deviation=0.3):
    """Predictions of a location a + b x and a scale that depends on both."""
    host = fresh(name)
    dist, sample = host.dist, host.language.sample
    softplus = jax.nn.softplus if name == "numpyro" else torch.nn.functional.softplus
    function = {
        "exp": lambda s: host.np.exp(0.5 * s),
        "softplus": softplus,
        "certain": lambda s: 0.7,
    }[link]

    def guide():
        sample("a", dist.Normal(host.array(0.4), deviation))
        sample("b", dist.Normal(host.array(-0.2), deviation))

    def model():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        x = host.array(X)
        with host.language.plate("data", 3):
            scale = function(b + 0.3 * a * x)
            sample("obs", dist.LogNormal(a + b * x, scale))

    options = {"params": {}} if name == "numpyro" else {}
    return asked(host, lambda: host.package.predict(model, guide, **options)["obs"], questions)


def moments(prediction):
    return prediction.mean, prediction.epistemic_variance, prediction.aleatoric_variance


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
def test_densities_quantiles_and_entropies_are_those_of_draws(link):
    name, draws = "pyro", given(link)
    one, values = np.ones(3), draws.rvs(random_state=1)[:1000]

    def questions(prediction):
        place, many = (HOSTS[name].array(part) for part in (one, values))
        densities = prediction.log_prob(place), prediction.log_prob(many)
        found = prediction.cdf(place), *densities, prediction.quantile(0.8)
        return *found, prediction.entropy, prediction.mutual_information

    found = [np.asarray(part) for part in predicted(name, link, questions)]
    probability, log_density, log_densities, quantile, entropy, information = found
    check(probability, draws.cdf(1.0))
    check(np.exp(log_density), draws.pdf(1.0))
    check([0.8] * 3, draws.cdf(quantile))
    check(entropy, -log_densities)
    check(entropy - information, draws.entropy())


@pytest.mark.parametrize("name", HOSTS)
def test_moments_that_do_not_exist_are_infinite(name):
    mean, *variances = predicted(name, "exp", moments)
    assert np.isinf(np.asarray(mean)).all()
    assert np.isinf(np.asarray(sum(variances))).all()
    for link in ("softplus", "certain"):
        mean, *variances = predicted(name, link, moments)
        assert np.isfinite(np.asarray(sum(variances))).all()
        check(mean, given(link).mean())


@pytest.mark.parametrize(
    ("deviation", "infinite"),
    [(0.45, (0, 0, 0)), (0.6, (0, 0, 1)), (0.8, (0, 1, 1)), (1.1, (1, 1, 1))],
)
def test_a_scale_in_proportion_to_a_wide_gaussian_leaves_no_moments(deviation, infinite):
    found = predicted("pyro", "softplus", moments, deviation)
    assert [bool(np.isinf(np.asarray(part)).all()) for part in found] == [*map(bool, infinite)]
