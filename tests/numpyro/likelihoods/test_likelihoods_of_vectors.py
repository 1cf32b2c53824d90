"""Likelihoods of vectors and of classes, whose random parameters have a covariance."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import special

from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.normalised.composites import Softmax
from moment_calculus.values import Gaussian, Spread
from moment_calculus.values.support import whole
from numpyro_moments import UnsupportedMoments
from numpyro_moments.likelihoods import evaluate, predictive
from tests.numpyro.likelihoods.cases import CONTINUOUS, MEAN, distribution

ROOT = np.array([[0.8, 0.0, 0.0], [0.3, 1.1, 0.0], [-0.4, 0.2, 0.6]])
COVARIANCE = np.array([[0.5, 0.2, 0.0], [0.2, 0.4, -0.1], [0.0, -0.1, 0.3]])


pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def close(actual, expected, rtol=1e-9, atol=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def vector(covariance=COVARIANCE, propagation=None):
    return Gaussian(
        jnp.asarray(MEAN),
        Spread(covariance=jnp.asarray(covariance)),
        support=whole(["f"]),
        propagation=propagation or Propagation(),
    )


@pytest.mark.parametrize("low_rank", [False, True])
def test_multivariate_normal(low_rank):
    factor, diagonal = ROOT[:, :2], np.array([0.3, 0.2, 0.5])

    def make(f):
        if low_rank:
            return dist.LowRankMultivariateNormal(f, factor, diagonal)
        return dist.MultivariateNormal(f, scale_tril=ROOT)

    fn, certain = distribution(make, vector()), make(MEAN)
    precision = np.linalg.inv(certain.covariance_matrix)
    trace = np.trace(precision @ COVARIANCE)
    close(evaluate("obs", fn, CONTINUOUS), certain.log_prob(CONTINUOUS) - trace / 2)
    mean, epistemic, aleatoric, log_prob = predictive("obs", fn)
    close(mean, MEAN)
    close(epistemic, np.diag(COVARIANCE))
    close(aleatoric, np.diag(certain.covariance_matrix))
    total = dist.MultivariateNormal(MEAN, certain.covariance_matrix + COVARIANCE)
    close(log_prob(CONTINUOUS), total.log_prob(CONTINUOUS))


def draws(samples=200_000):
    noise = np.random.default_rng(1).normal(size=(samples, 3))
    return MEAN + noise @ np.linalg.cholesky(0.2 * COVARIANCE).T


@pytest.mark.parametrize("probabilities", [False, True])
def test_categorical(probabilities):
    """Second order in the logits, whether or not a softmax comes before."""
    logits = vector(0.2 * COVARIANCE)
    fn = distribution(lambda f: dist.CategoricalLogits(f), logits)
    if probabilities:
        fn = dist.CategoricalProbs(jnp.ones(3) / 3)
        fn.probs = Softmax(logits)
    sampled = special.log_softmax(draws(), -1)
    errors = sampled.std(0) / np.sqrt(len(sampled))
    actual = evaluate("obs", fn, np.arange(3))
    assert (abs(actual - sampled.mean(0)) < 5 * errors + 2e-3).all()
    mean, epistemic, aleatoric, log_prob = predictive("obs", fn)
    shares = np.exp(sampled)
    close(mean, shares.mean(0), rtol=0, atol=0.01)
    close(epistemic, shares.var(0), rtol=0, atol=0.005)
    close(epistemic + aleatoric, mean * (1 - mean))
    close(log_prob(1), jnp.log(mean[1]))


def test_a_multinomial_is_a_sum_of_categorical_terms():
    counts = np.array([2.0, 0.0, 1.0])
    fn = distribution(lambda f: dist.MultinomialLogits(f, 3), vector())
    classes = distribution(lambda f: dist.CategoricalLogits(f), vector())
    each = [evaluate("obs", classes, label) for label in (0, 2)]
    close(evaluate("obs", fn, counts), 2 * each[0] + each[1] + np.log(3))


def test_sampled_logits_take_their_key_from_the_seed_handler():
    sampled = Propagation(categorical="sample", categorical_draws=20_000)
    fn = distribution(lambda f: dist.CategoricalLogits(f), vector(0.2 * COVARIANCE, sampled))
    with handlers.seed(rng_seed=3):
        actual = evaluate("obs", fn, 1)
    exact = special.log_softmax(draws(), -1)[:, 1]
    assert abs(actual - exact.mean()) < 5 * exact.std() / np.sqrt(20_000)
    with handlers.trace(), pytest.raises(UnsupportedMoments, match="no random key"):
        evaluate("obs", fn, 1)
    multinomial = distribution(lambda f: dist.MultinomialLogits(f, 3), vector(COVARIANCE, sampled))
    with pytest.raises(UnsupportedMoments, match="no draws"):
        evaluate("obs", multinomial, np.ones(3))


def test_other_probabilities_of_classes_are_refused():
    fn = dist.CategoricalProbs(jnp.ones(3) / 3)
    fn.probs = vector()
    with pytest.raises(UnsupportedMoments, match=r"needs logits[\s\S]*jax.nn.softmax"):
        evaluate("obs", fn, 0)
