"""Wrappers of distributions, latent sites, two Gaussians, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_moments import UnsupportedMoments
from numpyro_moments.likelihoods.expected import evaluate, predictive
from tests.checks.jaxprs import by_numpy
from tests.numpyro.likelihoods.cases import (
    CASES,
    CONTINUOUS,
    MEAN,
    POSITIVE,
    SHARES,
    VARIANCE,
    distribution,
    latent,
)
from tests.oracles import quadrature as oracles

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def close(actual, expected, rtol=1e-9, atol=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def compiled(function):
    """What a function of nothing returns; compiled at once, which is faster than step by step."""
    return by_numpy(function)()


def poisson():
    make, value = CASES["Poisson, exp"]
    return distribution(make, latent()), value, evaluate("obs", distribution(make, latent()), value)


# ---------------------------------------------------------------------------------------------
# Wrappers


def test_masks_expansions_and_independent_dimensions():
    fn, value, plain = poisson()
    mask = np.array([True, False, True])
    close(evaluate("obs", fn.mask(mask), value), plain * mask)
    close(evaluate("obs", dist.MaskedDistribution(fn, True), value), plain)
    close(evaluate("obs", fn.mask(False), value), 0 * plain)
    close(evaluate("obs", fn.to_event(1), value), plain.sum())
    close(evaluate("obs", fn.expand([2, 3]), np.tile(value, (2, 1))), np.tile(plain, (2, 1)))
    close(evaluate("obs", fn.expand([2, 3]).to_event(1).mask(False), value), np.zeros(2))


def test_an_observation_with_more_axes_than_the_batch():
    fn, value, plain = poisson()
    close(evaluate("obs", fn, np.tile(value, (2, 1))), np.tile(plain, (2, 1)))


def test_masked_observations_may_be_missing():
    """NaN where the mask excludes spoils neither the value nor the gradient."""
    make, value = CASES["Gamma, log link"]
    mask = np.array([True, False, True])
    missing = np.where(mask, value, np.nan)

    def total(mean):
        return evaluate("obs", distribution(make, latent("f", mean)).mask(mask), missing).sum()

    gradient = by_numpy(jax.grad(total))(MEAN)
    assert jnp.isfinite(gradient).all()
    assert gradient[1] == 0
    assert gradient[0] != 0


def test_expansion_keeps_two_parameters_on_one_gaussian():
    make, value = CASES["StudentT, both"]

    def both():
        fn = distribution(make, latent())
        wide = evaluate("obs", fn.expand([2, 3]), np.tile(value, (2, 1)))
        return evaluate("obs", fn, value), wide

    plain, wide = compiled(both)
    close(wide, np.tile(plain, (2, 1)))


def test_random_factors_enter_with_their_mean():
    close(evaluate("factor", distribution(lambda f: dist.Unit(2 * f), latent()), []), 2 * MEAN)
    actual = evaluate("factor", distribution(lambda f: dist.Unit(jnp.exp(f)), latent()), [])
    close(actual, np.exp(MEAN + VARIANCE / 2))


def test_a_delta_contributes_the_mean_of_its_log_density():
    fn = distribution(lambda f: dist.Delta(f, log_density=jnp.exp(f)), latent())
    close(evaluate("x", fn, fn.v), np.exp(MEAN + VARIANCE / 2))


def test_parameters_that_are_numpy_arrays():
    fn = distribution(lambda f: dist.Normal(f, 1.0), latent())
    fn.scale = np.array([0.5, 1.0, 2.0])
    expected = dist.Normal(MEAN, fn.scale).log_prob(CONTINUOUS) - VARIANCE / (2 * fn.scale**2)
    close(evaluate("obs", fn, CONTINUOUS), expected)


# ---------------------------------------------------------------------------------------------
# Two Gaussians


def test_two_independent_gaussians_are_not_taken_as_one():
    first, second = latent(), latent("h", MEAN / 2, VARIANCE / 3)
    z, weights = oracles.hermite_grid(60, 2)
    f = MEAN + np.sqrt(VARIANCE) * z[:, :1]
    h = MEAN / 2 + np.sqrt(VARIANCE / 3) * z[:, 1:]
    for make, value in (
        (lambda f, h: dist.Gamma(jnp.exp(f), jnp.exp(h)), POSITIVE),
        (lambda f, h: dist.Logistic(f, jnp.exp(h)), CONTINUOUS),
        (lambda f, h: dist.Beta(jnp.exp(f), jnp.exp(h)), SHARES),
    ):

        def both(make=make, value=value):
            actual = evaluate("obs", distribution(make, first, second), value)
            return actual, weights @ make(f, h).log_prob(value)

        close(*compiled(both), rtol=2e-5)


def test_three_dependent_gaussians_are_refused_with_remedy():
    values = [latent(name) for name in "ab"]

    def hurdle(a, b):
        return dist.HurdleGamma(jax.nn.sigmoid(a), jnp.exp(b), jnp.exp(a + b))

    with pytest.raises(UnsupportedMoments, match=r"three parameters[\s\S]*sliced from one"):
        evaluate("obs", distribution(hurdle, *values), POSITIVE)


# ---------------------------------------------------------------------------------------------
# Refusals


def test_parameters_of_vectors_are_not_taken_as_univariate():
    def make(f):
        parts = [dist.Normal(jnp.zeros(2), 1.0)] * 3
        return dist.MixtureGeneral(dist.Categorical(jax.nn.softmax(f)), parts)

    fn = distribution(make, latent("w", np.tile(MEAN, (2, 1)), np.tile(VARIANCE, (2, 1))))
    with pytest.raises(UnsupportedMoments, match="not those of a univariate"):
        evaluate("obs", fn, np.zeros(2))


def test_distributions_without_a_rule_are_refused_by_name():
    kind = dist.DirichletMultinomial
    fn = distribution(lambda f: kind(jnp.exp(f), total_count=3), latent(event_dim=1))
    with pytest.raises(UnsupportedMoments, match=r"site 'obs': no expected log-prob[\s\S]*Poisson"):
        evaluate("obs", fn, np.ones(3))
    with pytest.raises(UnsupportedMoments, match=r"no predictive moments for DirichletMultinomial"):
        predictive("obs", fn)
    censored = CASES["left-censored Normal"][0]
    with pytest.raises(UnsupportedMoments, match="no predictive moments for LeftCensored"):
        predictive("obs", distribution(censored, latent()))


def test_shapes_that_do_not_fit_are_refused():
    fn, _, _ = poisson()
    with pytest.raises(UnsupportedMoments, match=r"\(2,\) does not fit a Poisson of batch shape"):
        evaluate("obs", fn, np.zeros(2))


def test_validated_observations_outside_the_support_are_impossible():
    """As in the host: a warning, and a log-probability of −∞."""
    fn, value, plain = poisson()
    with numpyro.validation_enabled(), pytest.warns(UserWarning, match="Out-of-support"):
        actual = evaluate("obs", fn, np.array([-1.0, *value[1:]]))
    close(actual, [-np.inf, *plain[1:]])
