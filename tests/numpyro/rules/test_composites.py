"""Softmax, log-softmax, logsumexp and normalisations as JAX and its libraries write them out."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
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
    shared_input,
)
from tests.numpyro.rules.spelled_out import (
    COMPOSITES,
    EPS,
    FEATURES,
    NORMALISATIONS,
    NOT_NORMALISATIONS,
    NOT_SOFTMAX,
    rows,
)

ROWS = rows(COMPOSITES | NORMALISATIONS)
NOT_A_NORMALISATION = "not recognised as a normalisation"
NEAR_MISSES = NOT_SOFTMAX | {
    name: (function, NOT_A_NORMALISATION) for name, function in NOT_NORMALISATIONS.items()
}


FEW = [
    "softmax: jax.nn.softmax",
    "log_softmax: log of softmax",
    "logsumexp: by hand",
    "layer norm: by hand",
    "rms norm: flax.nnx",
    "group norm: by hand",
    "batch norm: flax.linen",
]


@pytest.mark.filterwarnings("ignore::moment_calculus.errors.CovarianceDroppedWarning")
@pytest.mark.parametrize(
    ("names", "covariance"),
    [(FEW, "diagonal"), ([*ROWS], "diagonal"), ([*ROWS], "full")],
    ids=["few-diagonal", "diagonal", "full"],
)
def test_spellings_equal_the_pyro_front_end(names, covariance):
    """By one program: each of its own takes longer to compile."""
    spellings = {name: ROWS[name][0] for name in names}
    program = lambda x: {n: propagate(f, x, covariance=covariance) for n, f in spellings.items()}  # noqa: E731
    with jax.enable_x64(True):
        found = evaluated(program, shared_input())
    for name, moments in found.items():
        agree(moments, ROWS[name][1], covariance, name)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_miss_is_refused(name, covariance):
    function, cause = NEAR_MISSES[name]
    with jax.enable_x64(True), pytest.raises(UnsupportedMoments, match=cause) as refusal:
        in_jax(function, covariance, propagate_traced)
    assert refusal.value.sites == ("input 0",)
    assert "spelled_out.py" in refusal.value.location
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
def test_single_precision_of_extreme_logits(function):
    for scale in (1e-4, 1.0, 1e4):
        check_single_precision(function, scale * MEAN, COVARIANCE, rtol=2e-3, atol=1e-5)


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
        lambda x: module.apply(variables, x), lambda x: F.batch_norm(x, *arrays, eps=EPS), "full"
    )


def test_statistics_of_a_random_batch_are_refused():
    module = nn.BatchNorm(use_running_average=False)
    variables = evaluated(module.init, jax.random.key(0), jnp.ones(MEAN.shape))
    refused = pytest.raises(UnsupportedMoments, match="same latent site")
    with jax.enable_x64(True), refused:
        in_jax(lambda x: module.apply(variables, x, mutable=["batch_stats"])[0], "full")


def test_parts_of_normalisations_have_their_own_moments_elsewhere():
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


def test_single_precision_of_extreme_features():
    """ε is far above and far below the variance."""
    spelled = ROWS["layer norm: flax.linen"][0]
    for scale in (1e-3, 1.0, 1e3):
        inputs = scale * MEAN, scale**2 * COVARIANCE
        check_single_precision(spelled, *inputs, rtol=1e-4, atol=1e-6)


def test_the_gradient_by_epsilon():
    def score(eps):
        moments = Moments(jnp.asarray(MEAN), covariance=jnp.asarray(COVARIANCE))
        layer = lambda x: jax.nn.standardize(x, epsilon=eps)  # noqa: E731
        found = propagate(layer, moments, covariance="full")
        return jnp.sum(found.mean[:, 0] - found.variance[:, 1] ** 2)

    with jax.enable_x64(True):
        slope, step = by_numpy(jax.grad(score))(0.1), 1e-5
        ahead, behind = map(by_numpy(score), (0.1 + step, 0.1 - step))
    assert_allclose(slope, (ahead - behind) / (2 * step), rtol=1e-6)
