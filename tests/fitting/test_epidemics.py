"""Epidemics by steps in time, products of products, by held draws beside a grid."""

import numpy as np
import pytest
from scipy.stats import norm, poisson

from tests.cases.hosts import models
from tests.fitting.test_held_draws import HELD, HOSTS

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

PEOPLE, DAYS = 1000.0, 12
SITES = "rate", "recovery", "first"
CENTRES, SCALES = np.log([0.6, 0.2, 10.0]), np.array([0.3, 0.3, 0.5])  # of their logarithms


def cases(exp, rate, recovery, first):
    """New cases of each day."""
    susceptible, infected, found = PEOPLE - first, first, []
    for _ in range(DAYS):
        found.append(susceptible * (1 - exp(-rate * infected / PEOPLE)))
        susceptible = susceptible - found[-1]
        infected = infected + found[-1] - (1 - exp(-recovery)) * infected
    return found


Y = np.random.default_rng(4).poisson(np.asarray(cases(np.exp, 0.7, 0.25, 8.0)))


def epidemic(host):
    def model(y):
        parts = [
            host.sample(name, host.dist.LogNormal(float(centre), float(scale)))
            for name, centre, scale in zip(SITES, CENTRES, SCALES, strict=True)
        ]
        with host.plate("days", DAYS):
            mean = host.np.stack(cases(host.np.exp, *parts), -1)
            host.sample("y", host.dist.Poisson(mean), obs=y)

    return model


def on_a_grid():
    """Means and standard deviations of logarithms of the three parameters."""
    axes = [c + s * np.linspace(-4.0, 4.0, 61) for c, s in zip(CENTRES, SCALES, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"))
    log_density = sum(
        norm.logpdf(part, c, s) for part, c, s in zip(points, CENTRES, SCALES, strict=True)
    )
    for count, mean in zip(Y, cases(np.exp, *np.exp(points)), strict=True):
        log_density = log_density + poisson.logpmf(count, mean)
    weights = np.exp(log_density - log_density.max())
    weights = weights / weights.sum()
    means = (points * weights).sum((1, 2, 3))
    return means, np.sqrt((points**2 * weights).sum((1, 2, 3)) - means**2)


@pytest.mark.parametrize("name", HOSTS)
def test_the_posterior_is_that_of_a_grid(name):
    host, joint, array = HOSTS[name]
    model = epidemic(models.PYRO if name == "pyro" else models.NUMPYRO)
    data = array(Y.astype(float))
    fit = host.fit(model, joint(), data, **HELD)
    response = host.linear_response(model, fit, data)
    means, deviations = on_a_grid()
    found = np.array([float(response.location(site)) for site in SITES])
    spread = np.array([float(response.standard_deviation(site)) for site in SITES])
    assert fit.held.sites == ("y",)
    assert np.abs((found - means) / deviations).max() < 0.15
    np.testing.assert_allclose(spread, deviations, rtol=0.1)
