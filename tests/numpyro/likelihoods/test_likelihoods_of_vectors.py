"""Likelihoods of vectors and of classes, whose random parameters have a covariance."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import special

from moment_calculus.values import Gaussian, Spread
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements
from numpyro_moments import UnsupportedMoments
from numpyro_moments.likelihoods.expected import evaluate, predictive
from tests.numpyro.likelihoods.cases import CONTINUOUS, MEAN, distribution
from tests.numpyro.one_program import evaluated

ROOT = np.array([[0.8, 0.0, 0.0], [0.3, 1.1, 0.0], [-0.4, 0.2, 0.6]])
COVARIANCE = np.array([[0.5, 0.2, 0.0], [0.2, 0.4, -0.1], [0.0, -0.1, 0.3]])


pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def close(actual, expected, rtol=1e-9, atol=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def vector(covariance=COVARIANCE, propagation=None):
    return Gaussian(
        jnp.asarray(MEAN),
        Spread(covariance=jnp.asarray(covariance)),
        support=all_elements(["f"]),
        propagation=propagation or Propagation(),
    )


@pytest.mark.parametrize("low_rank", [False, True])
def test_multivariate_normal(low_rank):
    factor, diagonal = ROOT[:, :2], np.array([0.3, 0.2, 0.5])

    def make(f):
        if low_rank:
            return dist.LowRankMultivariateNormal(f, factor, diagonal)
        return dist.MultivariateNormal(f, scale_tril=ROOT)

    def both():
        fn, certain = distribution(make, vector()), make(MEAN)
        noise = certain.covariance_matrix
        total = dist.MultivariateNormal(MEAN, noise + COVARIANCE)
        densities = certain.log_prob(CONTINUOUS), total.log_prob(CONTINUOUS)
        return (*term_and_prediction(fn, CONTINUOUS), noise, *densities)

    term, (mean, epistemic, aleatoric), log_prob, noise, certain, total = evaluated(both)
    trace = np.trace(np.linalg.inv(noise) @ COVARIANCE)
    close(term, certain - trace / 2)
    close(mean, MEAN)
    close(epistemic, np.diag(COVARIANCE))
    close(aleatoric, np.diag(noise))
    close(log_prob, total)


def term_and_prediction(fn, value, of=None):
    """The expected log density; moments and a log density of the prediction."""
    *moments, log_prob = predictive("obs", fn)
    return evaluate("obs", fn, value), moments, log_prob(value if of is None else of)


def draws(samples=200_000):
    noise = np.random.default_rng(1).normal(size=(samples, 3))
    return MEAN + noise @ np.linalg.cholesky(0.2 * COVARIANCE).T


def test_a_multinomial_is_a_sum_of_categorical_terms():
    counts = np.array([2.0, 0.0, 1.0])

    def terms():
        fn = distribution(lambda f: dist.MultinomialLogits(f, 3), vector())
        classes = distribution(lambda f: dist.CategoricalLogits(f), vector())
        return evaluate("obs", fn, counts), [evaluate("obs", classes, i) for i in (0, 2)]

    together, each = evaluated(terms)
    close(together, 2 * each[0] + each[1] + np.log(3))


def test_sampled_logits_take_their_key_from_the_seed_handler():
    sampled = Propagation(categorical="sample", categorical_draws=20_000)
    fn = distribution(lambda f: dist.CategoricalLogits(f), vector(0.2 * COVARIANCE, sampled))
    with handlers.seed(rng_seed=3):
        actual = evaluate("obs", fn, 1)
    exact = special.log_softmax(draws(), -1)[:, 1]
    assert abs(actual - exact.mean()) < 5 * exact.std() / np.sqrt(20_000)
    with handlers.trace(), pytest.raises(UnsupportedMoments, match="no random key"):
        evaluate("obs", fn, 1)


def test_other_probabilities_of_classes_are_refused():
    fn = dist.CategoricalProbs(jnp.ones(3) / 3)
    fn.probs = vector()
    with pytest.raises(UnsupportedMoments, match=r"needs logits[\s\S]*jax.nn.softmax"):
        evaluate("obs", fn, 0)
