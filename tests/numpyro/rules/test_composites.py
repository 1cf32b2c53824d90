"""Softmax, log-softmax and logsumexp as JAX spells them out."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax import lax
from numpy.testing import assert_allclose

from moment_calculus.errors import UnsupportedMoments
from numpyro_moments import Moments, propagate
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import propagate_traced
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
from tests.numpyro.rules.spelled_out import COMPOSITES, rows

ROWS = rows(COMPOSITES)


@pytest.fixture(scope="module")
def spelled_out():
    """Moments of all rows for a kind of covariance."""
    return functools.cache(functools.partial(moments_of_rows, ROWS))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("name", ROWS)
def test_spelling_equals_the_pyro_front_end(name, covariance, spelled_out):
    agree(spelled_out(covariance)[name], ROWS[name][1], covariance)


def _softmax_over_samples(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def test_softmax_against_samples():
    """The documented errors at logit variances of order 1: 0.035 of a mean, 0.02 of a variance."""
    draws = samples()
    sampled = _softmax_over_samples(draws)
    with jax.enable_x64(True):
        found = in_jax(jax.nn.softmax, "full", propagate_traced)
    noise = 4 * sampled.std(0) / len(draws) ** 0.5
    assert np.all(abs(found.mean - sampled.mean(0)) < 0.035 + noise)
    assert np.all(abs(found.variance - sampled.var(0)) < 0.02 + noise)


REFUSED = {
    "numerator and denominator of different logits": (
        lambda x: jnp.exp(x) / jnp.exp(2 * x).sum(-1, keepdims=True),
        "division by a random value",
    ),
    "numerator and denominator over different axes": (
        lambda x: jnp.exp(x) / jnp.exp(x).sum(0, keepdims=True),
        "same latent site",
    ),
    "sum over part of the classes": (
        lambda x: jnp.exp(x) / jnp.exp(x[:, :3]).sum(-1, keepdims=True),
        "division by a random value",
    ),
    "groups of another row": (
        lambda x: jnp.exp(x) / jnp.exp(x).sum(-1)[::-1, None],
        "division by a random value",
    ),
    "two axes": (lambda x: jax.nn.softmax(x, axis=(0, 1)), "softmax over axes"),
    "logsumexp over two axes": (lambda x: jax.nn.logsumexp(x), "logsumexp over axes"),
    "dependent rows": (lambda x: jax.nn.softmax(x, axis=0), "same latent site"),
    "masked classes": (
        lambda x: jax.nn.softmax(x, where=jnp.arange(4) < 3),
        "not recognised as a softmax",
    ),
    "weighted classes": (
        lambda x: jax.nn.logsumexp(x, axis=-1, b=jnp.arange(1.0, 5.0)),
        "not recognised as a softmax",
    ),
    "a stabiliser that is not added back": (
        lambda x: jnp.log(jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True))).sum(-1)),
        "not recognised as a softmax",
    ),
    "a maximum without its gradient": (
        lambda x: lax.stop_gradient(x.max(-1)),
        "not recognised as a softmax",
    ),
    "a value without its gradient": (lambda x: lax.stop_gradient(x), "without its gradient"),
}


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("name", REFUSED)
def test_near_miss_is_refused(name, covariance):
    function, cause = REFUSED[name]
    with jax.enable_x64(True), pytest.raises(UnsupportedMoments, match=cause) as refusal:
        in_jax(function, covariance, propagate_traced)
    assert refusal.value.sites == ("input 0",)
    assert __file__ in refusal.value.location
    assert refusal.value.remedy


def test_independent_rows_have_a_softmax_over_the_first_axis():
    with jax.enable_x64(True):
        mean, variance = jnp.asarray(MEAN.T), jnp.asarray(MEAN.T**2)
        first = lambda x: jax.nn.softmax(x, axis=0)  # noqa: E731
        over_rows = propagate_traced(first, Moments(mean, variance=variance))
        turned = propagate_traced(jax.nn.softmax, Moments(mean.T, variance=variance.T))
    assert_allclose(over_rows.mean, turned.mean.T, rtol=1e-10)
    assert_allclose(over_rows.variance, turned.variance.T, rtol=1e-10)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_logits_may_be_masked_by_minus_infinity(covariance):
    kept = np.array([True, True, False, True])
    agree_in_one_program(
        lambda x: jax.nn.softmax(jnp.where(kept, x, -jnp.inf)),
        lambda x: F.softmax(x.masked_fill(~torch.tensor(kept), -math.inf), -1),
        covariance,
    )


def test_parts_have_their_own_moments_elsewhere():
    """What looks like the beginning of a softmax is an exponential or a sum of them."""
    with jax.enable_x64(True):
        exponential = in_jax(lambda x: jnp.exp(x) * 1.5, "diagonal")
        total = in_jax(lambda x: jnp.exp(x).sum(-1), "diagonal")
    expected = np.exp(MEAN + np.diagonal(COVARIANCE, axis1=-2, axis2=-1) / 2)
    assert_allclose(exponential.mean, 1.5 * expected, rtol=1e-10)
    assert_allclose(total.mean, expected.sum(-1), rtol=1e-10)


def test_a_user_s_function_called_log_softmax_is_what_it_computes():
    @by_numpy
    def log_softmax(x):
        return 2.0 * x

    assert_allclose(in_jax(log_softmax, "full").mean, 2 * MEAN, rtol=1e-6)


@pytest.mark.parametrize("function", [jax.nn.softmax, jax.nn.log_softmax])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_single_precision_of_extreme_logits(function, scale):
    check_single_precision(function, scale * MEAN, COVARIANCE, rtol=2e-3, atol=1e-5)


def test_compiled_and_differentiated():
    def score(mean):
        moments = Moments(mean, covariance=jnp.asarray(COVARIANCE))
        found = propagate(jax.nn.log_softmax, moments, covariance="full")
        return jnp.sum(found.mean[:, 0] - found.variance[:, 1] ** 2)

    with jax.enable_x64(True):
        mean, direction = jnp.asarray(MEAN), jnp.asarray(np.cos(MEAN))
        both = by_numpy(jax.value_and_grad(score))
        _, gradient = both(mean)
        step = 1e-5
        ahead, behind = (both(mean + sign * step * direction)[0] for sign in (1, -1))
        assert_allclose(jnp.sum(gradient * direction), (ahead - behind) / (2 * step), rtol=1e-6)
