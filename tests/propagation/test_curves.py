"""Textbooks' curves of two random parameters, by quadrature."""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from moment_calculus.errors import UnsupportedMoments
from tests.propagation.oracle import divergence, losses
from tests.response.models import HOSTS, doubles, mean_field

X = np.array([0.2, 1.0, 3.5])
Y = np.array([1.0, 2.0, 4.0])
NOISE = 0.5
LOC, SCALE = np.array([0.3, 0.6]), np.array([0.2, 0.3])
CURVES = {
    "power law": lambda np, a, b, x: np.exp(a) * x**b,
    "saturation": lambda np, a, b, x: np.exp(a) * x / (x + np.exp(b)),
    "scaled saturation": lambda np, a, b, x: np.exp(a) * x / (1 + x * np.exp(b)),
    "root": lambda np, a, b, x: np.sqrt(x * np.exp(a)) * b,
    "logarithm": lambda np, a, b, x: np.log(1 + x * np.exp(a)) * b,
}
RATES = {
    "power law": CURVES["power law"],
    "power of a power": lambda np, a, b, x: np.exp(a) * (x / 4) ** np.exp(b),
    "saturation": CURVES["saturation"],
    "product in the divisor": lambda np, a, b, x: x / (np.exp(a) * (x + np.exp(b))),
}


def model_of(host, curve, observed):
    """Observations whose mean is a curve of two standard normal sites."""

    def model(x, y):
        normal = host.dist.Normal(0.0, 1.0)
        a, b = (host.language.sample(name, normal) for name in "ab")
        with host.language.plate("data", len(X)):
            mean = curve(host.np, a, b, x)
            host.language.sample("y", observed(host.dist, mean), obs=y)

    return model


def loss_of(host, curve, observed):
    """Of a mean-field guide, where the arrays have no values while the program is traced."""
    sites = dict(zip("ab", zip(LOC, SCALE, strict=True), strict=True))
    objective = host.package.DeterministicELBO()
    return losses(host, objective, model_of(host, curve, observed), sites, X, Y)[0]


def expected(curve, log_density):
    """The negative ELBO, by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    a, b = np.meshgrid(*(loc + scale * nodes for loc, scale in zip(LOC, SCALE, strict=True)))
    weights = np.outer(weights, weights) / (2 * np.pi)
    values = curve(np, a[..., None], b[..., None], X)
    return divergence(LOC, SCALE) - (weights[..., None] * log_density(values)).sum()


@pytest.mark.parametrize("name", CURVES)
def test_expected_normal_densities_of_curves(host, name):
    exact = expected(CURVES[name], lambda mean: stats.norm(mean, NOISE).logpdf(Y))
    loss = loss_of(host, CURVES[name], lambda dist, mean: dist.Normal(mean, NOISE))
    np.testing.assert_allclose(loss, exact, rtol=1e-8)


@pytest.mark.parametrize("name", RATES)
def test_expected_poisson_densities_of_curves(host, name):
    exact = expected(RATES[name], lambda rate: Y * np.log(rate) - rate - gammaln(Y + 1))
    loss = loss_of(host, RATES[name], lambda dist, rate: dist.Poisson(rate))
    np.testing.assert_allclose(loss, exact, rtol=1e-6)


@pytest.mark.parametrize("name", ["power law", "saturation"])
def test_traced_arrays_are_taken_as_positive(name):
    host = HOSTS["numpyro"]
    model = model_of(host, CURVES[name], lambda dist, mean: dist.Normal(mean, NOISE))
    with doubles(host):
        params = mean_field(host, a=(LOC[0], SCALE[0]), b=(LOC[1], SCALE[1]))
        objective, guide = host.package.DeterministicELBO(), host.package.DVIGuide()
        loss = jax.jit(lambda x: objective.loss(jax.random.key(0), params, model, guide, x, Y))
        exact = expected(CURVES[name], lambda mean: stats.norm(mean, NOISE).logpdf(Y))
        np.testing.assert_allclose(loss(X), exact, rtol=1e-8)
        assert np.isnan(loss(-X))


@pytest.mark.parametrize("name", RATES)
def test_expected_gamma_densities_of_curves(host, name):
    exact = expected(RATES[name], lambda rate: stats.gamma(2.0, scale=1 / rate).logpdf(Y))
    loss = loss_of(host, RATES[name], lambda dist, rate: dist.Gamma(2.0, rate))
    np.testing.assert_allclose(loss, exact, rtol=1e-6)


def test_other_functions_of_the_logarithm_of_a_product_are_integrated(host):
    """Its two factors are: their sum of logarithms is no Gaussian."""
    exact = expected(
        RATES["saturation"], lambda rate: stats.nbinom(2.0, rate / (1 + rate)).logpmf(Y)
    )
    loss = loss_of(host, RATES["saturation"], lambda dist, rate: dist.GammaPoisson(2.0, rate))
    np.testing.assert_allclose(loss, exact, rtol=1e-6)


@pytest.mark.parametrize("name", RATES)
def test_the_logarithm_of_a_product_is_the_sum_of_logarithms(host, name):
    """Of which a Normal density needs mean and variance."""
    exact = expected(RATES[name], lambda mean: stats.norm(np.log(mean), NOISE).logpdf(Y))
    loss = loss_of(host, RATES[name], lambda dist, mean: dist.Normal(host.np.log(mean), NOISE))
    np.testing.assert_allclose(loss, exact, rtol=1e-7)


def test_a_curve_that_may_be_negative_is_refused_with_its_line(host):
    pole = lambda np, a, b, x: np.exp(a) / (np.exp(b) - 2 * x)  # noqa: E731
    model = model_of(host, pole, lambda dist, mean: dist.Normal(mean, NOISE))
    data = (host.array(part.astype(np.float32)) for part in (X, Y))
    with pytest.raises(UnsupportedMoments, match=r"division(?s:.)*test_curves"):
        host.fit(model, *data, method="newton", steps=1)
