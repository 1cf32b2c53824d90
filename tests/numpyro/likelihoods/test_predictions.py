"""Predictions, and mixtures of particles; ``tests/pyro`` has all rows."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from moment_calculus.values import Gaussian, Opaque, Spread
from moment_calculus.values.propagation import Propagation
from numpyro_moments import Prediction, SampledPrediction, UnsupportedMoments
from numpyro_moments.likelihoods.expected import draw_observations, predictive
from tests.checks import uncertainty
from tests.checks.predictions import (
    LEVELS,
    check_draws,
    check_frequencies,
    check_levels,
    check_smallest,
)
from tests.numpyro.likelihoods.cases import CASES, CUTS, MEAN, VARIANCE, distribution, latent
from tests.numpyro.one_program import evaluated

DRAWS, KEY = 20_000, jax.random.key(0)
MOMENTS = MEAN, VARIANCE
UNCERTAINTY = "entropy", "mutual_information"

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def close(actual, expected, rtol=1e-9, atol=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def points():
    """Points of f with weights, [points, 3] and [points, 1]."""
    z, weights = np.polynomial.hermite_e.hermegauss(150)
    return MEAN + np.sqrt(VARIANCE) * z[:, None], (weights / weights.sum())[:, None]


def prediction(name, mean=MEAN, variance=VARIANCE):
    return Prediction("y", distribution(CASES[name][0], latent("f", mean, variance)))


def of_case(name, mean, variance):
    """The prediction of a row of ``tests/checks/uncertainty.py``."""
    f = latent("f", mean, variance)
    return Prediction("y", distribution(lambda f: uncertainty.CASES[name].host(dist, jnp, f), f))


def answers(attributes, predicted, *arrays):
    """Attributes of a prediction, and a credible interval, by one program."""

    def parts(*arrays):
        found = predicted(*arrays)
        interval = found.credible_interval(uncertainty.MASS)
        return {name: getattr(found, name) for name in attributes}, interval

    values, interval = evaluated(parts, *arrays)
    return SimpleNamespace(**values, credible_interval={uncertainty.MASS: interval}.get)


@pytest.mark.parametrize("name", ["LogNormal, scale", "truncated Normal"])
def test_continuous_distributions(name):
    def program(*moments):
        found = prediction(name, *moments)
        quantiles = found.quantile(LEVELS)
        return quantiles, found.cdf(quantiles), found.sample(DRAWS, KEY)

    quantiles, below, draws = map(np.asarray, evaluated(program, *MOMENTS))
    check_levels(below)
    f, weights = points()
    exact = [np.nansum(weights * CASES[name][0](f).cdf(value), axis=0) for value in quantiles]
    close(below, exact, atol=2e-6)
    check_draws(draws, quantiles)


def test_counts():
    name, counts = "Poisson, exp", np.arange(81)

    def program(*moments):
        found = prediction(name, *moments)
        wide = jnp.broadcast_to(counts[:8, None] + 0.7, (8, 3))
        return found.quantile(LEVELS), found.cdf(wide), found.sample(DRAWS, KEY)

    quantiles, below, draws = map(np.asarray, evaluated(program, *MOMENTS))
    f, weights = points()
    law = scipy.stats.poisson(np.exp(f))
    probabilities = np.stack([(weights * law.pmf(k)).sum(0) for k in counts])
    close(below, probabilities.cumsum(0)[:8], atol=1e-8)
    check_smallest(quantiles, probabilities.cumsum(0))
    check_frequencies(draws, probabilities[:6])


def test_uncertainty_against_quadrature():
    found = answers(UNCERTAINTY, lambda *moments: of_case("StudentT", *moments), *MOMENTS)
    uncertainty.check_uncertainty("StudentT", found)


def test_single_precision():
    with jax.enable_x64(False):
        moments = (np.float32(part) for part in MOMENTS)
        found = answers(UNCERTAINTY, lambda *moments: of_case("Binomial", *moments), *moments)
        ends = found.credible_interval(uncertainty.MASS)
        assert found.entropy.dtype == ends[0].dtype == jnp.float32
        uncertainty.check_uncertainty("Binomial", found, rtol=1e-4)


def test_a_gaussian_prediction_has_the_shape_of_the_site_and_closed_forms():
    y = np.arange(6.0).reshape(2, 3)

    def program(mean):
        fn = distribution(lambda f: dist.Normal(f, 0.5), latent("f", mean))
        found = Prediction("y", fn.expand([2, 3]).to_event(1))
        moments = found.mean, found.epistemic_variance, found.aleatoric_variance, found.variance
        levels = found.quantile(0.3), found.interval(0.9), found.cdf(0.3)
        draws = found.sample(7, key=KEY), found.quantile([0.1, 0.5])
        return moments, levels, draws, found.log_prob(y), found.entropy

    moments, levels, draws, log_prob, entropy = evaluated(program, MEAN)
    total = scipy.stats.norm(MEAN, np.sqrt(VARIANCE + 0.25))
    exact = MEAN, VARIANCE, np.full(3, 0.25), VARIANCE + 0.25
    for actual, expected in zip(moments, exact, strict=True):
        close(actual, np.tile(expected, (2, 1)))
    quantile, interval, below = levels
    close(quantile, np.tile(total.ppf(0.3), (2, 1)))
    close(interval, [np.tile(total.ppf(level), (2, 1)) for level in (0.05, 0.95)])
    close(below, np.tile(total.cdf(0.3), (2, 1)))
    close(log_prob, total.logpdf(y).sum(-1))
    close(entropy, np.full(2, total.entropy().sum()))
    assert [part.shape for part in draws] == [(7, 2, 3), (2, 2, 3)]
    fn = distribution(lambda f: dist.Normal(f, 0.5), latent()).expand([2, 3]).to_event(1)
    assert repr(Prediction("y", fn)) == "Prediction('y', shape=(2, 3))"


def test_parameters_of_certain_distributions_may_be_numbers():
    def program():
        counts = Prediction("y", dist.Poisson(3.0).expand([2]))
        real = Prediction("y", dist.StudentT(4.0, 0.0, 2.0)).quantile(0.9)
        return counts.mean, counts.quantile([0.5, 0.99]), counts.sample(5, KEY), real

    mean, quantiles, draws, real = evaluated(program)
    close(mean, [3.0, 3.0])
    assert np.asarray(quantiles).tolist() == [[3.0, 3.0], [8.0, 8.0]]
    assert draws.shape == (5, 2)
    close(real, scipy.stats.t(4.0, 0.0, 2.0).ppf(0.9), rtol=1e-7)


def test_classes():
    covariance = np.broadcast_to(uncertainty.ROOT @ uncertainty.ROOT.T, (2, 3, 3))

    def classes(mean, covariance):
        spread = Spread(jnp.diagonal(covariance, axis1=-2, axis2=-1), covariance)
        flow = Propagation(covariance="full")
        logits = Gaussian(mean, spread, Opaque(), axis=-1, propagation=flow)
        return Prediction("y", distribution(lambda f: dist.Categorical(logits=f), logits))

    attributes = "probs", *UNCERTAINTY, "variation_ratio"
    uncertainty.check_classes(answers(attributes, classes, uncertainty.LOGITS, covariance))
    ordered = answers(
        attributes, lambda *moments: prediction("OrderedLogistic", *moments), *MOMENTS
    )
    uncertainty.check_ordered(ordered)


def test_draws_and_probabilities_of_classes():
    f, weights = points()

    def program(f, *moments):
        names = "Bernoulli, logits", "Binomial, logits", "OrderedLogistic"
        found = [prediction(name, *moments) for name in names]
        below = [found[-1].cdf(jnp.full(3, k)) for k in range(len(CUTS) + 1)]
        drawn = found[-1].quantile(LEVELS), found[-1].sample(DRAWS, KEY)
        certain = jax.nn.sigmoid(f), dist.OrderedLogistic(f, CUTS).probs
        return [part.probs for part in found], drawn, certain, below

    found = jax.tree.map(np.asarray, evaluated(program, f, *MOMENTS))
    (binary, several, classes), (quantiles, draws), certain, below = found
    for probs in (binary, several):
        close(probs, (weights * certain[0]).sum(0), rtol=1e-8)
    expected = (weights[..., None] * certain[1]).sum(0)
    close(classes, expected, rtol=1e-6)
    close(below, expected.cumsum(-1).T, rtol=1e-6)
    check_smallest(quantiles, expected.cumsum(-1).T)
    check_frequencies(draws, expected.T)


@pytest.mark.parametrize(
    ("name", "question", "refusal"),
    [
        ("VonMises", lambda p: p.quantile(0.5), "'y': no predictive quantiles of a VonMises"),
        ("VonMises", lambda p: p.cdf(0.5), "distribution function of a VonMises"),
        ("VonMises", lambda p: p.entropy, "'y': no predictive entropy of a VonMises"),
        ("Poisson, exp", lambda p: p.probs, "a Poisson has no classes"),
        ("Poisson, exp", lambda p: p.variation_ratio, "has no classes, and so no variation ratio"),
        ("Gumbel", lambda p: p.mutual_information, "entropy given its parameters is not known"),
    ],
)
def test_what_is_not_known_is_refused(name, question, refusal):
    with pytest.raises(UnsupportedMoments, match=refusal):
        jax.eval_shape(lambda *moments: question(prediction(name, *moments)), *MOMENTS)


def test_particles_of_random_parameters_or_of_none_are_refused():
    random = distribution(lambda f: dist.Normal(f, 1.0), latent())
    for fn in (dist.Normal(0.0, 1.0), random):
        with pytest.raises(ValueError, match="'y': a SampledPrediction is of certain parameters"):
            SampledPrediction("y", fn)


def test_observations_of_three_random_parameters_are_drawn():
    student = lambda a, b, c: dist.StudentT(6 + jnp.exp(a), b, jnp.exp(0.5 * c))  # noqa: E731

    def program():
        fn = distribution(student, *map(latent, "abc"))
        drawn = draw_observations(fn, jax.random.key(0), 4000, (3,))
        return drawn, *predictive("obs", fn)[:3]

    drawn, mean, epistemic, aleatoric = map(np.asarray, evaluated(program))
    assert drawn.shape == (4000, 3)
    error = 5 * np.sqrt((epistemic + aleatoric) / 4000)
    np.testing.assert_array_less(np.abs(drawn.mean(0) - mean), error)
    np.testing.assert_allclose(drawn.var(0), epistemic + aleatoric, rtol=0.25)


def of_particles(name, locations):
    return SampledPrediction("y", uncertainty.CASES[name].host(dist, jnp, jnp.asarray(locations)))


def test_particles():
    values = 1.0, np.ones(3), np.ones((2, 3))
    attributes = "mean", "epistemic_variance", "aleatoric_variance", *UNCERTAINTY

    def program(locations):
        found = of_particles("Normal", locations)
        densities = [found.log_prob(jnp.asarray(value)) for value in values]
        quantiles = found.quantile(LEVELS), found.quantile(0.3), found.cdf(jnp.zeros(3))
        return quantiles, densities, found.sample(DRAWS, KEY), found.sample(3, key=KEY)

    locations = uncertainty.LOCATIONS
    found = answers(attributes, lambda locations: of_particles("Normal", locations), locations)
    (quantiles, found_quantile, below), densities, draws, few = evaluated(program, locations)
    found.quantile = {0.3: found_quantile}.get
    uncertainty.check_particles("Normal", found)
    exact = np.broadcast_to(uncertainty.log_density("Normal", 1.0), (2, 3))
    for density in densities:
        close(np.broadcast_to(density, (2, 3)), exact, rtol=1e-6)
    law = uncertainty.CASES["Normal"].scipy(locations)
    check_levels(np.stack([law.cdf(np.asarray(value)).mean(0) for value in quantiles]))
    close(below, law.cdf(0.0).mean(0), rtol=1e-6)
    check_draws(np.asarray(draws), np.asarray(quantiles))
    assert few.shape == (3, 3)


def test_particles_of_counts_and_classes():
    probs = uncertainty.class_draws(64)

    def program(probs, locations):
        found = SampledPrediction("y", dist.Categorical(logits=jnp.log(probs)))
        moments = found.probs, found.epistemic_variance, found.mutual_information
        chosen = jnp.exp(found.log_prob(jnp.array([0, 2])))
        counts = SampledPrediction("y", dist.Poisson(jnp.exp(locations)))
        return *moments, found.credible_interval(0.8), chosen, counts.cdf(1.2)

    locations = np.array([[-1.0, 0.0], [0.5, 2.0]])
    found = evaluated(program, probs, locations)
    exact = (
        probs.mean(0),
        probs.var(0),
        uncertainty.class_information(probs),
        np.quantile(probs, [0.1, 0.9], axis=0, method="hazen"),
        probs.mean(0)[[0, 1], [0, 2]],
        scipy.stats.poisson(np.exp(locations)).cdf(1.2).mean(0),
    )
    for actual, expected in zip(found, exact, strict=True):
        close(actual, expected, rtol=1e-5)
