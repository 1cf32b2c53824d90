"""Marginals of sites against scipy.stats and quadrature."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from moment_inference.nested.marginals import MixtureMarginal, TableMarginal, Transform
from moment_inference.nested.marginals.shifted_log_normal import ShiftedLogNormal

EXP = Transform(np.exp, np.log, lambda values: values)
UNIT = Transform(
    lambda values: 1 / (1 + np.exp(-values)),
    lambda values: np.log(values) - np.log1p(-values),
    lambda values: -np.logaddexp(0, values) - np.logaddexp(0, -values),
)
PROBABILITIES = np.array([1e-3, 0.025, 0.3, 0.5, 0.9, 0.999])


def table_of_gamma(shape, low=-12, high=4):
    """The log of a Gamma(shape, 1) variable, on the scale of the log."""
    points = np.linspace(low, high, 401)
    return points, shape * points - np.exp(points)


def test_a_table_on_the_support_is_the_distribution():
    gamma, marginal = stats.gamma(3), TableMarginal(*table_of_gamma(3), EXP)
    values = np.array([[0.05, 0.8, 2], [3, 7, 14]])
    np.testing.assert_allclose(marginal.pdf(values), gamma.pdf(values), rtol=1e-5)
    np.testing.assert_allclose(marginal.cdf(values), gamma.cdf(values), rtol=1e-5)
    np.testing.assert_allclose(
        marginal.quantile(PROBABILITIES), gamma.ppf(PROBABILITIES), rtol=1e-5
    )
    mean, variance, skewness = gamma.stats("mvs")
    assert marginal.mean == pytest.approx(mean, rel=1e-6)
    assert marginal.variance == pytest.approx(variance, rel=1e-6)
    assert marginal.standard_deviation == pytest.approx(np.sqrt(variance), rel=1e-6)
    assert marginal.skewness == pytest.approx(skewness, rel=1e-5)
    assert marginal.quantile(0.5).shape == marginal.mean.shape == marginal.shape == ()


def test_a_table_is_zero_beyond_its_ends_and_off_the_support():
    marginal = TableMarginal(*table_of_gamma(3), EXP)
    np.testing.assert_array_equal(marginal.pdf(np.array([-1, 0, 1e9])), 0)
    np.testing.assert_array_equal(marginal.cdf(np.array([-1, 0, 1e9])), [0, 0, 1])
    on_unit = TableMarginal(np.linspace(-20, 20, 401), -0.5 * np.linspace(-20, 20, 401) ** 2, UNIT)
    np.testing.assert_array_equal(on_unit.cdf(np.array([-1, 0, 1, 2])), [0, 0, 1, 1])
    np.testing.assert_array_equal(on_unit.pdf(np.array([-1, 0, 1, 2])), 0)


@pytest.mark.parametrize(("tail", "exists"), [(0.9, [0, 0]), (1.5, [1, 0]), (2.5, [1, 1])])
def test_moments_that_do_not_exist_are_infinite(tail, exists):
    """The log of an F variable: its density falls by exp(-tail x) to the right."""
    points = np.linspace(-12, 12 / tail**0.5, 401)
    variable = stats.f(6, 2 * tail)
    logs = variable.logpdf(np.exp(points)) + points
    marginal = TableMarginal(points, logs, EXP)
    assert [np.isfinite(marginal.mean), np.isfinite(marginal.variance)] == exists
    assert np.isnan(marginal.skewness)
    assert marginal.quantile(0.5) == pytest.approx(variable.median(), rel=1e-3)
    if exists[0]:
        assert marginal.mean == pytest.approx(variable.mean(), rel=5e-3)


def test_draws_of_a_table_have_its_distribution():
    draws = TableMarginal(*table_of_gamma(3), EXP).sample(np.random.default_rng(0), 4000)
    assert draws.shape == (4000,)
    assert stats.kstest(draws, stats.gamma(3).cdf).pvalue > 0.01


def peer(mean, variance, third):
    """The distribution of scipy.stats with these moments, and the sign of its skewness."""
    skewness = third / variance**1.5
    sign = -1 if skewness < 0 else 1
    power = brentq(lambda w: (w + 2) * np.sqrt(w - 1) - abs(skewness), 1 + 1e-14, 1e3, xtol=1e-15)
    shape = np.sqrt(np.log(power))
    scale = np.sqrt(variance / (power * (power - 1)))
    return stats.lognorm(shape, sign * mean - scale * np.sqrt(power), scale), sign


@pytest.mark.parametrize("skewness", [-2.0, -0.4, 0.05, 0.1, 0.8, 3.0])
def test_shifted_log_normals_have_the_moments(skewness):
    found = ShiftedLogNormal.of_moments(np.array(2.0), np.array(9.0), np.array(skewness * 27))
    expected, sign = peer(2.0, 9.0, skewness * 27)
    values = np.array([-9.0, -1, 2, 3, 11])
    np.testing.assert_allclose(found.density(values), expected.pdf(sign * values), rtol=1e-6)
    below = expected.cdf(values) if sign > 0 else expected.sf(-values)
    np.testing.assert_allclose(found.cdf(values), below, rtol=1e-6, atol=1e-12)
    standard = np.linspace(-12, 12, 2001)
    mass = stats.norm.pdf(standard) * (standard[1] - standard[0])
    there = found.at(standard) - 2
    moments = [mass @ there**power for power in (1, 2, 3)]
    np.testing.assert_allclose(moments, [0, 9, skewness * 27], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.cdf(found.quantile(PROBABILITIES)), PROBABILITIES, rtol=1e-9)


def test_without_skewness_they_are_gaussian():
    found = ShiftedLogNormal.of_moments(np.array(2.0), np.array(9.0), np.array(0.0))
    values, expected = np.linspace(-10, 14, 25), stats.norm(2, 3)
    np.testing.assert_allclose(found.density(values), expected.pdf(values), rtol=1e-6)
    np.testing.assert_allclose(found.cdf(values), expected.cdf(values), rtol=1e-6)


@pytest.mark.parametrize("shape", [100, 25, 10, 4, 1.5])
def test_skewness_brings_them_near_to_logs_of_gammas(shape):
    values = np.linspace(-10, 4, 20_001)
    mean, variance, skewness, _ = stats.loggamma(shape).stats("mvsk")
    third = skewness * variance**1.5
    exact = stats.loggamma(shape).pdf(values + mean)
    skewed = ShiftedLogNormal.of_moments(np.array(0.0), variance, third).density(values)
    gauss = stats.norm(0, np.sqrt(variance)).pdf(values)
    variation = [0.5 * np.trapezoid(np.abs(exact - other), values) for other in (skewed, gauss)]
    assert variation[0] < 0.0085 * abs(skewness)
    assert variation[1] > 0.1 * abs(skewness)


@pytest.fixture(scope="module")
def mixture():
    """Five components of a site of shape [2, 3]."""
    generator = np.random.default_rng(0)
    weights = generator.dirichlet(np.ones(5))
    means = generator.normal(size=(5, 2, 3))
    variances = generator.gamma(2, 0.2, size=(5, 2, 3))
    thirds = generator.uniform(-0.9, 0.9, size=(5, 2, 3)) * variances**1.5
    return weights, means, variances, thirds


def peers(mixture, element):
    """The weights of one element's components, and scipy.stats' distributions and signs."""
    weights, *moments = mixture
    rows = zip(*(array[(slice(None), *element)] for array in moments), strict=True)
    return [(weight, *peer(*row)) for weight, row in zip(weights, rows, strict=True)]


def density_of(parts, values):
    return sum(weight * one.pdf(sign * values) for weight, one, sign in parts)


def cumulative_of(parts, values):
    return sum(w * (one.cdf(values) if sign > 0 else one.sf(-values)) for w, one, sign in parts)


@pytest.mark.parametrize(("name", "expected"), [("pdf", density_of), ("cdf", cumulative_of)])
def test_mixtures_have_the_components_densities(mixture, name, expected):
    marginal = MixtureMarginal(*mixture)
    values = np.linspace(-3, 3, 7)
    found = getattr(marginal, name)(values[:, None, None])
    assert found.shape == (7, 2, 3)
    for element in np.ndindex(2, 3):
        there = expected(peers(mixture, element), values)
        np.testing.assert_allclose(found[(slice(None), *element)], there, rtol=1e-6)
    np.testing.assert_allclose(getattr(marginal, name)(np.array(0.0)), found[3])


def integrals(function, parts):
    """E function(x)^k, k = 1, 2, 3, and variance and third central moment, by a fine lattice."""
    values = np.linspace(-14, 14, 200_001)
    mass = density_of(parts, values) * (values[1] - values[0])
    mean = mass @ function(values)
    return mean, *(mass @ (function(values) - mean) ** power for power in (2, 3))


@pytest.mark.parametrize(("transform", "function"), [(None, np.array), (UNIT, UNIT.forward)])
def test_moments_are_those_on_the_support(mixture, transform, function):
    marginal = MixtureMarginal(*mixture, transform=transform)
    for element in [(0, 0), (1, 2)]:
        mean, variance, third = integrals(function, peers(mixture, element))
        assert marginal.mean[element] == pytest.approx(mean, rel=1e-6)
        assert marginal.variance[element] == pytest.approx(variance, rel=1e-5)
        assert marginal.skewness[element] == pytest.approx(third / variance**1.5, rel=1e-4)


@pytest.mark.parametrize("transform", [None, EXP])
def test_quantiles_invert_the_distribution_function(mixture, transform):
    marginal = MixtureMarginal(*mixture, transform=transform)
    quantiles = marginal.quantile(PROBABILITIES)
    assert quantiles.shape == (6, 2, 3)
    expected = np.broadcast_to(PROBABILITIES[:, None, None], (6, 2, 3))
    np.testing.assert_allclose(marginal.cdf(quantiles), expected, rtol=1e-9)
    np.testing.assert_allclose(marginal.quantile(0.3), quantiles[2])
    lower, upper = marginal.interval(0.95)
    np.testing.assert_allclose(marginal.cdf(upper) - marginal.cdf(lower), 0.95)


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9])
def test_quantiles_far_out_and_of_narrow_components(p):
    weights = np.array([0.999, 0.001])
    marginal = MixtureMarginal(weights, np.array([[0.0], [40.0]]), np.array([[1e-6], [25.0]]))
    assert marginal.cdf(marginal.quantile(p))[0] == pytest.approx(p, rel=1e-6, abs=1e-12)


def test_transformed_mixtures_are_on_the_support(mixture):
    marginal = MixtureMarginal(*mixture, transform=EXP)
    values = np.array([0.2, 1.3, 4.0])
    found = marginal.pdf(values[:, None, None])[:, 1, 2]
    parts = peers(mixture, (1, 2))
    np.testing.assert_allclose(found, density_of(parts, np.log(values)) / values, rtol=1e-6)
    found = marginal.cdf(values[:, None, None])[:, 1, 2]
    np.testing.assert_allclose(found, cumulative_of(parts, np.log(values)), rtol=1e-6)
    np.testing.assert_array_equal(marginal.pdf(np.array(-1.0)), 0)
    np.testing.assert_array_equal(marginal.cdf(np.array(-1.0)), 0)


def test_draws_of_mixtures_have_their_distribution(mixture):
    marginal = MixtureMarginal(*mixture)
    draws = marginal.sample(np.random.default_rng(1), 4000)
    assert draws.shape == (4000, 2, 3)
    for element in np.ndindex(2, 3):
        uniform = marginal.cdf(draws)[(slice(None), *element)]
        assert stats.kstest(uniform, "uniform").pvalue > 1e-3


def test_a_scalar_site_and_a_single_point():
    marginal = MixtureMarginal(np.ones(1), np.array([2.0]), np.array([9.0]))
    assert marginal.shape == ()
    assert marginal.mean == 2
    assert marginal.skewness == 0
    assert marginal.cdf(np.array([2.0, 5.0])) == pytest.approx([0.5, stats.norm.cdf(1)])
    assert marginal.quantile(0.975) == pytest.approx(2 + 3 * stats.norm.ppf(0.975))
    assert marginal.sample(np.random.default_rng(0), 3).shape == (3,)
    np.testing.assert_array_equal(marginal.cdf(np.array([-np.inf, np.inf, np.nan])), [0, 1, np.nan])


def test_large_sites_go_block_by_block(monkeypatch):
    from moment_inference.nested.marginals import site as marginals

    generator = np.random.default_rng(0)
    parts = generator.dirichlet(np.ones(3)), generator.normal(size=(3, 50)), np.ones((3, 50))
    whole = MixtureMarginal(*parts).quantile(0.2)
    monkeypatch.setattr(marginals, "BLOCK", 30)
    np.testing.assert_allclose(MixtureMarginal(*parts).quantile(0.2), whole)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, np.nan, [0.5, 1.5]])
def test_what_is_no_probability_is_refused(mixture, p):
    for marginal in (MixtureMarginal(*mixture), TableMarginal(*table_of_gamma(3), EXP)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            marginal.quantile(p)
    with pytest.raises(ValueError, match="between 0 and 1"):
        marginal.interval(1.0)
