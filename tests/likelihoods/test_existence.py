"""Predictions of likelihoods whose moments need not exist, and of two random parameters."""

from __future__ import annotations

from itertools import product

import jax
import numpy as np
import pytest
import scipy.stats
import torch

from tests.likelihoods.test_log_normal import check
from tests.response.models import HOSTS, doubles, fresh

DRAWS = 20_000
X = np.linspace(-1.0, 1.0, 5)


def gaussians(x, deviation=0.3):
    """Two Gaussian functions of both coefficients, at many draws of these."""
    noise = np.random.default_rng(0).normal(size=(2, DRAWS, 1))
    a, b = 0.4 + deviation * noise[0], -0.2 + deviation * noise[1]
    return b + 0.3 * a * x, a + b * x


def predicted(name, family, x=X):
    """The prediction of a family of two such functions."""
    host = fresh(name)
    sample, dist = host.language.sample, host.dist
    exp = jax.numpy.exp if name == "numpyro" else torch.exp

    def guide():
        sample("a", dist.Normal(host.array(0.4), 0.3))
        sample("b", dist.Normal(host.array(-0.2), 0.3))

    def model():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        with host.language.plate("data", len(x)):
            sample("obs", family(dist, exp, b + 0.3 * a * host.array(x), a + b * host.array(x)))

    with doubles(host):
        options = {"params": {}} if name == "numpyro" else {}
        return host, host.package.predict(model, guide, **options)["obs"]


# What there is of a mean, of an epistemic and of an aleatoric variance.
MOMENTS = {
    "StudentT": (lambda d, exp, f, g: d.StudentT(exp(3 + f), g, 1.0), "nan finite inf"),
    "StudentT above one": (lambda d, exp, f, g: d.StudentT(1 + exp(3 + f), g, 1.0), "f f inf"),
    "StudentT above two": (lambda d, exp, f, g: d.StudentT(2 + exp(f), g, 1.0), "f f f"),
    "StudentT of 1.5": (lambda d, exp, f, g: d.StudentT(1.5, g, exp(f)), "f f inf"),
    "Cauchy": (lambda d, exp, f, g: d.Cauchy(g, exp(f)), "nan f inf"),
    "HalfCauchy": (lambda d, exp, f, g: d.HalfCauchy(exp(f)), "inf inf inf"),
    "Pareto": (lambda d, exp, f, g: d.Pareto(1.0, exp(4 + f)), "inf inf inf"),
    "Pareto above one": (lambda d, exp, f, g: d.Pareto(1.0, 1 + exp(4 + f)), "f f inf"),
    "InverseGamma": (lambda d, exp, f, g: d.InverseGamma(exp(4 + f), exp(g)), "inf inf inf"),
    "InverseGamma above one": (lambda d, exp, f, g: d.InverseGamma(1 + exp(f), 1.0), "f f inf"),
    "InverseGamma of 1.5": (lambda d, exp, f, g: d.InverseGamma(1.5, exp(g)), "f f inf"),
    "InverseGamma of 3": (lambda d, exp, f, g: d.InverseGamma(3.0, exp(g)), "f f f"),
    "Weibull": (lambda d, exp, f, g: d.Weibull(1.0, exp(2 + f)), "inf inf inf"),
    "Weibull above one": (lambda d, exp, f, g: d.Weibull(exp(g), 1 + exp(f)), "f f f"),
    "Gamma": (lambda d, exp, f, g: d.Gamma(exp(f), exp(g)), "f f f"),
}


@pytest.mark.parametrize("family", MOMENTS)
@pytest.mark.parametrize("name", HOSTS)
def test_what_does_not_exist_is_infinite_however_unlikely(name, family):
    """An exponential may be small: below the limit, where there are no moments."""
    likelihood, expected = MOMENTS[family]
    _, prediction = predicted(name, likelihood)
    found = prediction.mean, prediction.epistemic_variance, prediction.aleatoric_variance
    same = {"nan": np.isnan, "inf": np.isposinf}
    for part, kind in zip(found, expected.split(), strict=True):
        assert same.get(kind, np.isfinite)(np.asarray(part)).all()


# With SciPy's distribution.
FINITE = {
    "InverseGamma": (
        lambda d, exp, f, g: d.InverseGamma(3 + exp(f), exp(g)),
        lambda f, g: scipy.stats.invgamma(3 + np.exp(f), scale=np.exp(g)),
    ),
    "Gumbel": (
        lambda d, exp, f, g: d.Gumbel(f, exp(g)),
        lambda f, g: scipy.stats.gumbel_r(f, np.exp(g)),
    ),
    "StudentT": (
        lambda d, exp, f, g: d.StudentT(4.0, f, exp(g)),
        lambda f, g: scipy.stats.t(4.0, f, np.exp(g)),
    ),
    "Weibull": (
        lambda d, exp, f, g: d.Weibull(exp(g), 1 + exp(f)),
        lambda f, g: scipy.stats.weibull_min(1 + np.exp(f), scale=np.exp(g)),
    ),
}


def _case(name, family):
    """Programs of JAX with incomplete gamma functions take long to compile."""
    slow = name == "numpyro" and family != "Gumbel"
    return pytest.param(name, family, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("name", "family"), [_case(*both) for both in product(HOSTS, FINITE)])
def test_predictions_of_two_random_parameters_are_those_of_draws(name, family):
    likelihood, given = FINITE[family]
    host, prediction = predicted(name, likelihood)
    draws = given(*gaussians(X))
    mean = draws.mean()
    check(prediction.mean, mean)
    check(prediction.epistemic_variance, (mean - mean.mean(0)) ** 2)
    check(prediction.aleatoric_variance, draws.var())
    with doubles(host):
        one = host.array(np.ones(5))
        check(prediction.cdf(one), draws.cdf(1.0))
        check(np.exp(np.asarray(prediction.log_prob(one))), draws.pdf(1.0))
        check([0.8] * 5, draws.cdf(np.asarray(prediction.quantile(0.8))))
        if name == "pyro" or family == "Gumbel":  # whose programs are compiled in a second
            values = draws.rvs(random_state=1)[:300]
            check(prediction.entropy, -np.asarray(prediction.log_prob(host.array(values))))


def test_entropies_of_hundreds_of_rows_end():
    """By few nodes where these suffice; it took ten seconds for each row."""
    host, prediction = predicted("pyro", FINITE["Gumbel"][0], np.linspace(-1, 1, 100))
    with doubles(host):
        assert np.isfinite(np.asarray(prediction.entropy)).all()


@pytest.mark.parametrize("name", HOSTS)
def test_a_density_ends_where_its_support_does(name):
    """Hosts go on beyond a scale of Pareto's, which is the least that there is."""
    likelihood = lambda d, exp, f, g: d.Pareto(exp(g), 3.0)  # noqa: E731
    host, prediction = predicted(name, likelihood)
    draws = scipy.stats.pareto(3.0, scale=np.exp(gaussians(X)[1]))
    with doubles(host):
        value = np.full(5, 1.2)
        check(prediction.cdf(host.array(value)), draws.cdf(1.2))
        density = np.exp(np.asarray(prediction.log_prob(host.array(value))))
    pdf = draws.pdf(1.2)
    np.testing.assert_array_less(
        abs(density - pdf.mean(0)), 5 * pdf.std(0) / DRAWS**0.5 + 0.01 * density
    )
