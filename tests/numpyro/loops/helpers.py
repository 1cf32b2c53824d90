"""Loops and the same programs in Python, for the tests of control flow."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from numpyro_moments import Moments

STEPS, WIDTH = 5, 3
X = np.random.default_rng(7).normal(size=(4, WIDTH))


def uncertain(*shape, mean=0.0, variance=0.1):
    random = np.random.default_rng(len(shape))
    moments = mean + 0.6 * random.normal(size=shape), variance * random.uniform(0.5, 1, size=shape)
    return Moments(jnp.asarray(moments[0]), variance=jnp.asarray(moments[1]))


def layers(first, step):
    """Layers whose weights are stacked in one array, as a loop of JAX and as one of Python."""

    def looped(weights):
        return lax.scan(lambda h, w: (step(h, w), None), first(), weights)[0]

    def plain(weights):
        hidden = first()
        for i in range(weights.shape[0]):
            hidden = step(hidden, weights[i])
        return hidden

    return looped, plain


def relu_layer(h, w):
    return jax.nn.relu(h @ w)


def residual_layer(h, w):
    return h + jax.nn.tanh(h @ w)


def walk(scale, noise):
    return lax.scan(lambda x, e: (x + jnp.exp(scale) * e,) * 2, jnp.zeros(()), noise)[1]


def plain_walk(scale, noise):
    x, rows = jnp.zeros(()), []
    for i in range(noise.shape[0]):
        x = x + jnp.exp(scale) * noise[i]
        rows.append(x)
    return jnp.stack(rows)


def same(found, expected):
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-12, rtol=1e-10)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-12, rtol=1e-10)
    if expected.covariance is not None:
        np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-12, rtol=1e-10)
