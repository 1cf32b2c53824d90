"""Normalisations as JAX and its libraries spell them out."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax import lax
from numpy.testing import assert_allclose

from moment_calculus.errors import CovarianceDroppedWarning, UnsupportedMoments
from numpyro_moments import Moments, propagate
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import evaluated, propagate_traced
from tests.numpyro.rules.composite_checks import (
    COVARIANCE,
    MEAN,
    agree,
    agree_in_one_program,
    check_single_precision,
    in_jax,
    moments_of_rows,
    samples,
)
from tests.numpyro.rules.spelled_out import EPS, FEATURES, NORMALISATIONS, rows

ROWS = rows(NORMALISATIONS)


@pytest.fixture(scope="module")
def spelled_out():
    """Moments of all rows for a kind of covariance."""
    return functools.cache(functools.partial(moments_of_rows, ROWS))


@pytest.mark.filterwarnings("ignore::moment_calculus.errors.CovarianceDroppedWarning")
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("name", ROWS)
def test_spelling_equals_the_pyro_front_end(name, covariance, spelled_out):
    agree(spelled_out(covariance)[name], ROWS[name][1], covariance)


def test_groups_drop_the_covariance_as_on_the_pyro_side():
    with jax.enable_x64(True), pytest.warns(CovarianceDroppedWarning):
        in_jax(ROWS["group norm: by hand"][0], "full", propagate_traced)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_variance_of_a_sample_has_another_scale(covariance):
    """n − 1 in place of n: another scale, and another share of ε."""
    share = FEATURES / (FEATURES - 1)
    agree_in_one_program(
        _by_sample_variance,
        lambda x: F.layer_norm(x, (FEATURES,), eps=EPS / share) / share**0.5,
        covariance,
    )


def _by_sample_variance(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, ddof=1, keepdims=True) + EPS)


def test_random_scale_enters_before_the_features():
    """flax multiplies the scale into the reciprocal root; a latent one is multiplied as it is."""
    normalised = nn.LayerNorm(epsilon=EPS)

    def spelled(x, scale, bias):
        return normalised.apply({"params": {"scale": scale, "bias": bias}}, x)

    with jax.enable_x64(True):
        scale = Moments(jnp.arange(1.0, 5.0), variance=jnp.full(FEATURES, 0.1))
        bias = Moments(jnp.arange(4.0), variance=jnp.full(FEATURES, 0.2))
        x = Moments(jnp.asarray(MEAN), covariance=jnp.asarray(COVARIANCE))
        found = propagate_traced(spelled, x, scale, bias)
        plain = propagate_traced(lambda x: jax.nn.standardize(x, epsilon=EPS), x)
        second = plain.variance + plain.mean**2
        assert_allclose(found.mean, plain.mean * scale.mean + bias.mean, rtol=1e-10)
        expected = plain.variance * scale.mean**2 + second * scale.variance + bias.variance
        assert_allclose(found.variance, expected, rtol=1e-10)


def test_batch_norm_scales_and_shifts_by_its_averages():
    statistics = {"mean": np.linspace(-1, 1, FEATURES), "var": np.linspace(0.5, 2, FEATURES)}
    parameters = {"scale": np.linspace(1, 2, FEATURES), "bias": np.linspace(0, 3, FEATURES)}
    variables = {"params": parameters, "batch_stats": statistics}
    module = nn.BatchNorm(use_running_average=True, epsilon=EPS)
    arrays = [torch.tensor(a) for a in (*statistics.values(), *parameters.values())]
    agree_in_one_program(
        lambda x: module.apply(variables, x),
        lambda x: F.batch_norm(x, *arrays, eps=EPS),
        "full",
    )


def _over_two(x):
    largest = jnp.maximum(x.std(-1, keepdims=True), 1e-6)
    return x / largest


REFUSED = {
    "mean of another value": lambda x: (
        (x - (2 * x).mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + EPS)
    ),
    "variance of another value": lambda x: (
        (x - x.mean(-1, keepdims=True)) / jnp.sqrt((2 * x).var(-1, keepdims=True) + EPS)
    ),
    "variance over another axis": lambda x: (
        (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(0, keepdims=True) + EPS)
    ),
    "not centred": lambda x: x / jnp.sqrt(x.var(-1, keepdims=True) + EPS),
    "centred, but the root of the mean square": lambda x: (
        (x - x.mean(-1, keepdims=True)) * lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + EPS)
    ),
    "half of the mean removed": lambda x: (
        (x - x.sum(-1, keepdims=True) / 8) * lax.rsqrt(x.var(-1, keepdims=True) + EPS)
    ),
    "half of the squared mean removed": lambda x: (
        (x - x.mean(-1, keepdims=True))
        * lax.rsqrt(jnp.mean(x**2, -1) - 0.5 * jnp.mean(x, -1) ** 2 + EPS)[:, None]
    ),
    "ε outside of the root": lambda x: (
        (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + EPS)
    ),
    "a bound on the deviation": _over_two,
    "masked features": lambda x: jax.nn.standardize(x, where=jnp.arange(FEATURES) < 3),
    "weighted squares, clipped": lambda x: (
        x * lax.rsqrt(jnp.maximum((x**2 * jnp.arange(1.0, 5.0)).sum(-1, keepdims=True), 0) + EPS)
    ),
    "variance minus another, clipped": lambda x: (
        x * lax.rsqrt(jnp.maximum(jnp.mean(x**2) - jnp.mean(x, -1, keepdims=True) ** 2, 0) + EPS)
    ),
    "a deviation alone": lambda x: x.std(-1),
    "a norm alone": lambda x: jnp.linalg.norm(x, axis=-1),
}


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("name", REFUSED)
def test_near_miss_is_refused(name, covariance):
    refused = pytest.raises(UnsupportedMoments, match="not recognised as a normalisation")
    with jax.enable_x64(True), refused as refusal:
        in_jax(REFUSED[name], covariance, propagate_traced)
    assert refusal.value.sites == ("input 0",)
    assert __file__ in refusal.value.location
    assert refusal.value.remedy


def _of_other_groups(x):
    return (x - x.mean(0)) * lax.rsqrt(x.var(-1, keepdims=True) + EPS)


def _of_other_rows(x):
    return x / jnp.sqrt(jnp.mean(x**2, -1)[::-1, None] + EPS)


def test_means_and_deviations_of_other_groups_are_refused():
    with pytest.raises(UnsupportedMoments, match="not recognised as a normalisation"):
        in_jax(_of_other_groups, "full", propagate_traced)
    with pytest.raises(UnsupportedMoments, match="takes negative values"):
        in_jax(_of_other_rows, "full", propagate_traced)


def test_statistics_of_a_random_batch_are_refused():
    module = nn.BatchNorm(use_running_average=False)
    variables = evaluated(module.init, jax.random.key(0), jnp.ones(MEAN.shape))
    refused = pytest.raises(UnsupportedMoments, match="same latent site")
    with jax.enable_x64(True), refused:
        in_jax(lambda x: module.apply(variables, x, mutable=["batch_stats"])[0], "full")


def test_parts_have_their_own_moments_elsewhere():
    """Means, centred features and variances are linear or quadratic like any other."""
    with jax.enable_x64(True):
        centred = in_jax(lambda x: x - x.mean(-1, keepdims=True), "full", propagate_traced)
        variance = np.asarray(in_jax(lambda x: x.var(-1), "full", propagate_traced).mean)
    centre = np.eye(FEATURES) - 1 / FEATURES
    spread = centre @ COVARIANCE @ centre
    assert_allclose(centred.mean, MEAN @ centre, atol=1e-12)
    assert_allclose(centred.covariance, spread, atol=1e-12)
    trace = np.trace(spread, axis1=-2, axis2=-1)
    square = np.sum(np.asarray(centred.mean) ** 2, -1)
    assert_allclose(variance, (trace + square) / FEATURES, rtol=1e-10)


def test_layer_norm_against_samples():
    """The documented errors for four features: 0.08 of a mean, 0.6 of the mean variance."""
    draws = samples()
    centred = draws - draws.mean(-1, keepdims=True)
    sampled = centred / np.sqrt(draws.var(-1, keepdims=True) + EPS)
    with jax.enable_x64(True):
        found = in_jax(ROWS["layer norm: by hand"][0], "full", propagate_traced)
    noise = 4 * sampled.std(0) / len(draws) ** 0.5
    assert np.all(abs(found.mean - sampled.mean(0)) < 0.08 + noise)
    scale = sampled.var(0).mean(-1, keepdims=True)
    assert np.all(abs(found.variance - sampled.var(0)) < 0.6 * scale + noise)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_single_precision_of_extreme_features(scale):
    """ε is far above and far below the variance."""
    spelled = ROWS["layer norm: flax.linen"][0]
    inputs = scale * MEAN, scale**2 * COVARIANCE
    check_single_precision(spelled, *inputs, rtol=1e-4, atol=1e-6)


def test_compiled_and_differentiated():
    def score(mean, eps):
        moments = Moments(mean, covariance=jnp.asarray(COVARIANCE))
        centred = lambda x: x - x.mean(-1, keepdims=True)  # noqa: E731
        layer = lambda x: centred(x) / jnp.sqrt(x.var(-1, keepdims=True) + eps)  # noqa: E731
        found = propagate(layer, moments, covariance="full")
        return jnp.sum(found.mean[:, 0] - found.variance[:, 1] ** 2)

    with jax.enable_x64(True):
        mean, direction = jnp.asarray(MEAN), jnp.asarray(np.cos(MEAN))
        both = by_numpy(jax.value_and_grad(score, argnums=(0, 1)))
        _, (gradient, by_eps) = both(mean, 0.1)
        step = 1e-5
        ahead, behind = (both(mean + sign * step * direction, 0.1)[0] for sign in (1, -1))
        assert_allclose(jnp.sum(gradient * direction), (ahead - behind) / (2 * step), rtol=1e-6)
        ahead, behind = (both(mean, 0.1 + sign * step)[0] for sign in (1, -1))
        assert_allclose(by_eps, (ahead - behind) / (2 * step), rtol=1e-6)
