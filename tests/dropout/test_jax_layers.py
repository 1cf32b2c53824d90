"""Dropout of flax, equinox and by hand draws bits from the model's key: noise with moments."""

import itertools

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from flax import linen
from jax import random
from numpyro.contrib.module import flax_module, random_flax_module

from numpyro_moments import (
    SVI,
    DeterministicELBO,
    DVIGuide,
    MCDropoutGuide,
    UnsupportedMoments,
    predict,
)
from tests.checks.jaxprs import by_numpy

P, K = 0.3, 0.7
R = P / K
X = jnp.linspace(-1.0, 2.0, 12).reshape(4, 3)
Y = jnp.linspace(0.0, 1.0, 4)
A = np.linspace(-1.0, 1.0, 3)
KEY = random.key(0)
DROP = equinox.nn.Dropout(P)
key = numpyro.prng_key


def model_of(function):
    """The outputs of a function [rows] with noise of variance one, and a level."""

    def model(y=None):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", 4):
            numpyro.sample("obs", dist.Normal(function() + level, 1.0), obs=y)

    return model


def predicted(model, site, loc, scale, **options):
    """The mean and the epistemic variance for a posterior of the only site."""
    params = {f"{site}_auto_loc": jnp.array(loc), f"{site}_auto_scale": jnp.array(scale)}

    def run(params):
        found = predict(model, DVIGuide(), params, **options)["obs"]
        return found.mean, found.epistemic_variance

    return by_numpy(run)(params)


def variance(function, **options):
    """The mean of a function, and what it adds to the predictive variance."""
    return predicted(model_of(function), "level", 0.0, 1e-8, **options)


class Flax(linen.Module):
    axes: tuple = ()

    @linen.compact
    def __call__(self, x):
        self.param("unused", lambda key: jnp.zeros(()))
        return linen.Dropout(P, broadcast_dims=self.axes, deterministic=False)(x)


def of_flax(x):
    net = flax_module("net", Flax(), input_shape=x.shape, apply_rng=["dropout"])
    return net(x, rngs={"dropout": key()})


def by_hand(x, k):
    return jnp.where(random.bernoulli(k, K, x.shape), x / K, 0)


SPELLINGS = {
    "flax": of_flax,
    "equinox": lambda x: DROP(x, key=key()),
    "equinox, row by row": lambda x: jax.vmap(lambda row, k: DROP(row, key=k))(
        x, random.split(key(), len(x))
    ),
    "where": lambda x: by_hand(x, key()),
    "select": lambda x: jax.lax.select(
        random.bernoulli(key(), K, x.shape), x / K, jnp.zeros_like(x)
    ),
    "product": lambda x: x * random.bernoulli(key(), K, x.shape) / K,
    "mask of numbers": lambda x: random.bernoulli(key(), K, x.shape).astype(x.dtype) / K * x,
    "below": lambda x: x * (random.uniform(key(), x.shape) < K) / K,
    "above": lambda x: x * (random.uniform(key(), x.shape) >= P) / K,
    "negated": lambda x: jnp.where(~random.bernoulli(key(), P, x.shape), x / K, 0.0),
    "jit": lambda x: jax.jit(by_hand)(x, random.split(key())[1]),
    "checkpoint": lambda x: jax.checkpoint(by_hand)(x, key()),
    "moved": lambda x: x * random.bernoulli(key(), K, x.size).reshape(x.T.shape).T / K,
    "raw key": lambda x: by_hand(x, random.key_data(key())),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_of_a_certain_value(name):
    """Over all masks of the inputs of a linear map."""
    masks = np.array(list(itertools.product((0, 1), repeat=3)))
    chances = np.prod(np.where(masks, K, P), axis=1)
    outputs = X @ (masks / K * A).T
    centre = outputs @ chances
    mean, found = variance(lambda: SPELLINGS[name](X) @ A)
    np.testing.assert_allclose(mean, centre, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found, (outputs - centre[:, None]) ** 2 @ chances, rtol=1e-5)


@pytest.mark.parametrize("name", ["flax", "equinox", "product"])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_of_a_random_value(name, covariance):
    """h = x w for a scalar w: E[(m h)²] = (E h² )/k, and the components of h are dependent."""

    def model(y=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", 4):
            numpyro.sample("obs", dist.Normal(SPELLINGS[name](X * w) @ A, 1.0), obs=y)

    mean, found = predicted(model, "w", 0.5, 0.8, covariance=covariance)
    np.testing.assert_allclose(mean, 0.5 * X @ A, rtol=1e-5, atol=1e-6)
    own = 0.64 * ((X @ A) ** 2 if covariance == "full" else X**2 @ A**2)
    noise = R * (0.64 + 0.25) * (X**2 @ A**2)
    np.testing.assert_allclose(found, own + noise, rtol=1e-5)


def test_shared_noise():
    """Rows share flax's mask of broadcast_dims, as if each had its own."""

    def function():
        net = flax_module("net", Flax((0,)), input_shape=X.shape, apply_rng=["dropout"])
        return net(X, rngs={"dropout": key()}) @ A

    np.testing.assert_allclose(variance(function)[1], R * X**2 @ A**2, rtol=1e-5)


def once():
    mask = random.bernoulli(key(), K, X.shape)
    return jnp.where(mask, X, 0) @ A + (mask * X) @ A


def with_one_key():
    own = key()
    return by_hand(X, own) @ A + by_hand(X, own) @ A


def with_one_key_in_another_way():
    own = key()
    again = random.wrap_key_data(random.key_data(own))
    return by_hand(X, own) @ A + jax.jit(by_hand)(X, again) @ A


def with_two_keys():
    first, second = random.split(key())
    return by_hand(X, first) @ A + by_hand(X, second) @ A


@pytest.mark.parametrize(
    ("function", "factor"),
    [(once, 4 * K * P), (with_one_key, 4 * R), (with_one_key_in_another_way, 4 * R),
     (with_two_keys, 2 * R)],
)  # fmt: skip
def test_one_draw_is_one_value_and_two_are_independent(function, factor):
    np.testing.assert_allclose(variance(function)[1], factor * X**2 @ A**2, rtol=1e-5)


def two_shapes():
    own = key()
    return random.bernoulli(own, K, (4,)) + random.bernoulli(own, K, (4, 1))[:, 0]


def two_thresholds():
    u = random.uniform(key(), (4,))
    return jnp.where(u < K, 1.0, 0.0) + jnp.where(u < P, 1.0, 0.0)


def scanned():
    return jax.lax.scan(lambda k, x: (random.split(k)[0], by_hand(x, k) @ A), key(), X)[1]


def one_key_for_all_rows():
    return jax.vmap(by_hand)(X, jnp.broadcast_to(key(), (4,))) @ A


SILENT = "belong to no site"
REFUSED = {
    "two shapes with one key": (two_shapes, SILENT),
    "two thresholds": (two_thresholds, "compared with two probabilities"),
    "a loop": (scanned, SILENT),
    "repeated keys": (one_key_for_all_rows, SILENT),
    "another range": (lambda: random.uniform(key(), (4,), maxval=2.0) * X[:, 0], SILENT),
    "laplace": (lambda: random.laplace(key(), (4,)), SILENT),
    "uniform as a number": (lambda: random.uniform(key(), (4,)), "uniform numbers, which the"),
    "booleans": (
        lambda: (random.bernoulli(key(), K, (4,)) & (X[:, 0] > 0)).astype(float),
        "random booleans that are no numbers",
    ),
    "equality": (lambda: (random.uniform(key(), (4,)) == 0.5) * 1.0, "uniform numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, cause = REFUSED[name]
    with pytest.raises(UnsupportedMoments, match=cause) as raised:
        variance(function)
    assert "test_jax_layers.py" in raised.value.location
    assert raised.value.remedy


@pytest.mark.parametrize("guide", [DVIGuide, MCDropoutGuide])
def test_training_with_dropout_layers_is_deterministic(guide):
    """Of a Bayesian network, with any key; and beside masked sites."""

    def model(y=None):
        rest = {"input_shape": X.shape, "apply_rng": ["dropout"]}
        net = random_flax_module("net", Flax(), dist.Normal(0.0, 1.0), **rest)
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand((3,)).to_event(1))
        with numpyro.plate("data", 4):
            mean = net(X, rngs={"dropout": key()}) @ w
            numpyro.sample("obs", dist.Normal(mean, 0.5), obs=y)

    guide = guide()
    svi = SVI(model, guide, DeterministicELBO())
    result = svi.run(KEY, 5, Y, progress_bar=False)
    assert result.losses[-1] < result.losses[0]
    keys, loss = random.split(KEY), DeterministicELBO().loss
    first, second = (loss(k, result.params, model, guide, Y) for k in keys)
    assert first == second
