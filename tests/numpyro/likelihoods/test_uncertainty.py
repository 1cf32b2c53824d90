"""Entropy, mutual information, variation ratio and credible intervals of predictions."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from moment_calculus.values import Gaussian, Opaque, Spread
from moment_calculus.values.propagation import Propagation
from numpyro_moments import (
    Prediction,
    SampledPrediction,
    UnsupportedMoments,
)
from tests.checks import uncertainty
from tests.checks.jaxprs import by_numpy
from tests.checks.predictions import LEVELS, check_draws, check_levels
from tests.numpyro.likelihoods.cases import CASES as ALL
from tests.numpyro.likelihoods.cases import distribution, latent
from tests.numpyro.one_program import evaluated

KEY = jax.random.key(0)
NAMES = ("Normal", "Bernoulli", "Poisson", "StudentT")  # the others are the other host's

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def made(name, f):
    return uncertainty.CASES[name].host(dist, jnp, f)


def prediction(name, mean=uncertainty.MEAN, variance=uncertainty.VARIANCE):
    f = latent(mean=mean, variance=variance)
    return Prediction("y", distribution(lambda f: made(name, f), f))


def by_particles(name, locations=uncertainty.LOCATIONS):
    return SampledPrediction("y", made(name, jnp.asarray(locations)))


MOMENTS = uncertainty.MEAN, uncertainty.VARIANCE


def computed(attributes, predicted, *arrays):
    """Attributes of a prediction, and a credible interval, by one program.

    Args:
        attributes: their names.
        predicted: makes the prediction of arrays.
        *arrays: these.
    """

    @by_numpy
    def parts(*arrays):
        found = predicted(*arrays)
        interval = found.credible_interval(uncertainty.MASS)
        return {name: getattr(found, name) for name in attributes}, interval

    values, interval = parts(*arrays)
    return SimpleNamespace(**values, credible_interval={uncertainty.MASS: interval}.get)


@pytest.mark.parametrize("name", NAMES)
def test_against_quadrature(name):
    found = computed(("entropy", "mutual_information"), partial(prediction, name), *MOMENTS)
    uncertainty.check_uncertainty(name, found)


VARIANCES = "epistemic_variance", "aleatoric_variance"


@pytest.mark.parametrize("name", NAMES)
def test_particles_against_sums_and_integrals(name):
    values = 1.0, np.ones(3), np.ones((2, 3))

    @by_numpy
    def others(locations):
        found = by_particles(name, locations)
        return found.quantile(0.3), [found.log_prob(jnp.asarray(value)) for value in values]

    attributes = "mean", *VARIANCES, "entropy", "mutual_information"
    found = computed(attributes, partial(by_particles, name), uncertainty.LOCATIONS)
    quantile, densities = others(uncertainty.LOCATIONS)
    found.quantile = {0.3: quantile}.get
    uncertainty.check_particles(name, found)
    exact = np.broadcast_to(uncertainty.log_density(name, 1.0), (2, 3))
    for density in densities:
        np.testing.assert_allclose(np.broadcast_to(density, (2, 3)), exact, rtol=1e-6)


def test_single_precision():
    name = "Poisson"
    with jax.enable_x64(False):
        moments = (np.float32(part) for part in MOMENTS)
        found = computed(("entropy", "mutual_information"), partial(prediction, name), *moments)
        ends = found.credible_interval(uncertainty.MASS)
        assert found.entropy.dtype == ends[0].dtype == jnp.float32
        uncertainty.check_uncertainty(name, found, rtol=1e-4)


ATTRIBUTES = "probs", "entropy", "mutual_information", "variation_ratio"


def test_classes():
    covariance = np.broadcast_to(uncertainty.ROOT @ uncertainty.ROOT.T, (2, 3, 3))

    def classes(mean, covariance):
        spread = Spread(jnp.diagonal(covariance, axis1=-2, axis2=-1), covariance)
        flow = Propagation(covariance="full")
        logits = Gaussian(mean, spread, Opaque(), axis=-1, propagation=flow)
        return Prediction("y", distribution(lambda f: dist.Categorical(logits=f), logits))

    def ordered(mean, variance):
        f = latent(mean=mean, variance=variance)
        return Prediction("y", distribution(ALL["OrderedLogistic"][0], f))

    uncertainty.check_classes(computed(ATTRIBUTES, classes, uncertainty.LOGITS, covariance))
    uncertainty.check_ordered(computed(ATTRIBUTES, ordered, *MOMENTS))


def test_classes_by_particles():
    probs = uncertainty.class_draws(64)

    def program(probs):
        found = SampledPrediction("y", dist.Categorical(logits=jnp.log(probs)))
        moments = found.probs, found.epistemic_variance, found.mutual_information
        return *moments, found.credible_interval(0.8), jnp.exp(found.log_prob(jnp.array([0, 2])))

    mean, variance, information, interval, chosen = evaluated(program, probs)
    np.testing.assert_allclose(mean, probs.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, probs.var(0), rtol=1e-6)
    exact = uncertainty.class_information(probs)
    np.testing.assert_allclose(information, exact, rtol=1e-6)
    ends = np.quantile(probs, [0.1, 0.9], axis=0, method="hazen")
    np.testing.assert_allclose(interval, ends, rtol=1e-6)
    np.testing.assert_allclose(chosen, probs.mean(0)[[0, 1], [0, 2]], rtol=1e-6)


def test_draws_of_particles():
    def program(locations):
        found = by_particles("Normal", locations)
        return found.quantile(LEVELS), found.sample(20_000, KEY), found.sample(3, key=KEY)

    quantiles, draws, few = map(np.asarray, evaluated(program, uncertainty.LOCATIONS))
    law = uncertainty.CASES["Normal"].scipy(uncertainty.LOCATIONS)
    check_levels(np.stack([law.cdf(value).mean(0) for value in quantiles]))
    check_draws(draws, quantiles)
    assert few.shape == (3, 3)


def test_components_of_a_vector():
    root = np.array([[1.0, 0.0, 0.0], [0.5, 0.2, 0.0], [0.1, 0.3, 0.7]])

    def program(root, mean, variance):
        flow = Propagation(covariance="full")
        f = latent("f", mean, variance, event_dim=1, propagation=flow)
        fn = distribution(lambda f: dist.MultivariateNormal(f, scale_tril=root), f)
        found = Prediction("y", fn)
        return found.entropy, found.mutual_information

    entropy, information = evaluated(program, root, *MOMENTS)
    total = root @ root.T + np.diag(uncertainty.VARIANCE)
    exact = 0.5 * (3 * math.log(2 * math.pi * math.e) + np.linalg.slogdet(total)[1])
    np.testing.assert_allclose(entropy, exact)
    noise = np.linalg.slogdet(root @ root.T)[1]
    np.testing.assert_allclose(information, 0.5 * (np.linalg.slogdet(total)[1] - noise))


def test_events_and_extremes():
    def program(mean, chances):
        fn = distribution(lambda f: dist.Normal(f, 0.5), latent("f", mean))
        whole = Prediction("y", fn.expand([2, 3]).to_event(1)).entropy
        sure = Prediction("y", dist.Bernoulli(chances))
        known = sure.entropy, sure.mutual_information, sure.variation_ratio
        return whole, prediction("Normal", mean).entropy, known

    chances = np.array([0.0, 1.0, 0.5])
    whole, one, known = evaluated(program, uncertainty.MEAN, chances)
    entropy, information, ratio = known
    np.testing.assert_allclose(whole, np.full(2, one.sum()))
    np.testing.assert_allclose(entropy, [0.0, 0.0, math.log(2)], atol=1e-12)
    np.testing.assert_allclose(information, np.zeros(3), atol=1e-6)
    np.testing.assert_array_equal(ratio, [0.0, 0.0, 0.5])
    vectors = dist.MultivariateNormal(jnp.zeros((4, 2)), jnp.eye(2))
    with pytest.raises(UnsupportedMoments, match="mixture of MultivariateNormals"):
        _ = SampledPrediction("y", vectors).entropy


def test_what_is_not_known_is_refused():
    vonmises = Prediction("y", distribution(ALL["VonMises"][0], latent()))
    with pytest.raises(UnsupportedMoments, match="'y': no predictive entropy of a VonMises"):
        _ = vonmises.entropy
    logistic = Prediction("y", distribution(ALL["Gumbel"][0], latent()))
    with pytest.raises(UnsupportedMoments, match="entropy given its parameters is not known"):
        _ = logistic._marginal.expected_conditional_entropy(logistic._moments())
    with pytest.raises(UnsupportedMoments, match="has no classes, and so no variation ratio"):
        _ = prediction("Normal").variation_ratio
    random = distribution(lambda f: dist.Normal(f, 1.0), latent())
    for fn in (dist.Normal(0.0, 1.0), random):
        with pytest.raises(ValueError, match="'y': a SampledPrediction is of certain parameters"):
            SampledPrediction("y", fn)
