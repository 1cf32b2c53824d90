"""Predictions without moments, and of two random parameters."""

import numpy as np
import pytest
import scipy.stats

from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.predictions import SMALLEST_POSITIVE, falls_below
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from tests.likelihoods.test_log_normal import asked, check, moments
from tests.response.models import HOSTS, fresh

DRAWS = 20_000
X = np.linspace(-1.0, 1.0, 5)


def gaussians(x, deviation=0.3):
    """Two Gaussian functions of both coefficients, at many draws of these."""
    noise = np.random.default_rng(0).normal(size=(2, DRAWS, 1))
    a, b = 0.4 + deviation * noise[0], -0.2 + deviation * noise[1]
    return b + 0.3 * a * x, a + b * x


def predicted(name, families, questions, x=X):
    """Answers of the predictions of families of two such functions, by name."""
    host = fresh(name)
    sample, dist = host.language.sample, host.dist

    def guide():
        sample("a", dist.Normal(host.array(0.4), 0.3))
        sample("b", dist.Normal(host.array(-0.2), 0.3))

    def model():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        with host.language.plate("data", len(x)):
            for site, family in families.items():
                f, g = b + 0.3 * a * host.array(x), a + b * host.array(x)
                sample(site, family(dist, host.np.exp, f, g))

    options = {"params": {}} if name == "numpyro" else {}

    def every(found):
        return {site: questions(found[site]) for site in families}

    found = asked(host, lambda: host.package.predict(model, guide, **options), every)
    return {site: [np.asarray(part) for part in parts] for site, parts in found.items()}


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


@pytest.mark.parametrize("name", HOSTS)
def test_what_does_not_exist_is_infinite_however_unlikely(name):
    """An exponential may be small: below the limit, where there are no moments."""
    same = {"nan": np.isnan, "inf": np.isposinf}
    families = {family: likelihood for family, (likelihood, _) in MOMENTS.items()}
    for family, found in predicted(name, families, moments).items():
        for part, kind in zip(found, MOMENTS[family][1].split(), strict=True):
            assert same.get(kind, np.isfinite)(part).all(), family


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


@pytest.mark.parametrize("family", FINITE)
def test_predictions_of_two_random_parameters_are_those_of_draws(family):
    name, (likelihood, given) = "pyro", FINITE[family]
    draws = given(*gaussians(X))
    one, values = np.ones(5), draws.rvs(random_state=1)[:300]

    def questions(prediction):
        place = HOSTS[name].array(one)
        found = prediction.cdf(place), prediction.log_prob(place), prediction.quantile(0.8)
        uncertain = prediction.entropy, prediction.log_prob(HOSTS[name].array(values))
        return *moments(prediction), *found, *uncertain

    (found,) = predicted(name, {family: likelihood}, questions).values()
    parts, (probability, log_density, quantile, entropy, log_densities) = found[:3], found[3:]
    mean = draws.mean()
    for part, exact in zip(parts, (mean, (mean - mean.mean(0)) ** 2, draws.var()), strict=True):
        check(part, exact)
    check(probability, draws.cdf(1.0))
    check(np.exp(log_density), draws.pdf(1.0))
    check([0.8] * 5, draws.cdf(quantile))
    check(entropy, -log_densities)


def test_entropies_of_many_rows_end():
    """By few nodes where these suffice; it took ten seconds for each row."""
    families, rows = {"Gumbel": FINITE["Gumbel"][0]}, np.linspace(-1, 1, 20)
    (entropy,) = predicted("pyro", families, lambda found: [found.entropy], rows)["Gumbel"]
    assert np.isfinite(entropy).all()


@pytest.mark.parametrize("name", HOSTS)
def test_a_density_ends_where_its_support_does(name):
    """Hosts go on beyond a scale of Pareto's, which is the least that there is."""
    families = {"Pareto": lambda d, exp, f, g: d.Pareto(exp(g), 3.0)}
    draws = scipy.stats.pareto(3.0, scale=np.exp(gaussians(X)[1]))
    value = np.full(5, 1.2)

    def questions(prediction):
        place = HOSTS[name].array(value)
        return prediction.cdf(place), prediction.log_prob(place)

    probability, log_density = predicted(name, families, questions)["Pareto"]
    check(probability, draws.cdf(1.2))
    density, pdf = np.exp(log_density), draws.pdf(1.2)
    np.testing.assert_array_less(
        abs(density - pdf.mean(0)), 5 * pdf.std(0) / DRAWS**0.5 + 0.01 * density
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_shape_that_may_be_close_to_zero_is_seen_in_single_precision(dtype):
    moments = Moments(np.zeros(2, dtype), variance=np.ones(2, dtype))
    shape = apply(activation("exp"), as_value(moments, "h", propagation_of("full", "exact")))
    assert falls_below(shape, SMALLEST_POSITIVE).all()
