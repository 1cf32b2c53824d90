"""Models as users write them, unmodified: plain functions, regressions, networks of flax."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

HIDDEN, INPUTS, POINTS = 8, 3, 20


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(POINTS, INPUTS)).astype(np.float32)
    noise = random.normal(size=POINTS)
    return x, (np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.2 * noise).astype(np.float32)


def classes(y: np.ndarray) -> np.ndarray:
    return (y > 0).astype(int) + (y > 1).astype(int)


def dense(name: str, x: jax.Array, outputs: int) -> jax.Array:
    shape = [x.shape[-1], outputs]
    weight = numpyro.sample(f"{name}_weight", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
    bias = numpyro.sample(f"{name}_bias", dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    return x @ weight + bias


def perceptron(
    x: jax.Array, outputs: int, layers: int = 1, activation: Callable = jax.nn.relu
) -> jax.Array:
    for layer in range(layers):
        x = activation(dense(f"hidden{layer}", x, HIDDEN))
    return dense("last", x, outputs)


def sequential(layers: int = 1, activation: Callable = jax.nn.relu) -> Callable:
    """A network with one output and Gaussian noise."""

    def model(x, y=None):
        mean = perceptron(x, 1, layers, activation)[:, 0]
        with numpyro.plate("data", len(x)):
            return numpyro.sample("obs", dist.Normal(mean, 0.3), obs=y)

    return model


def residual(x, y=None):
    """Two residual blocks between linear maps."""
    h = dense("first", x, HIDDEN)
    for block in range(2):
        h = h + jax.nn.relu(dense(f"block{block}", h, HIDDEN))
    mean = dense("last", h, 1)[:, 0]
    with numpyro.plate("data", len(x)):
        return numpyro.sample("obs", dist.Normal(mean, 0.3), obs=y)


def linear_regression(x, y=None):
    """Bayesian linear regression with a vector site."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([INPUTS]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(x)):
        return numpyro.sample("obs", dist.Normal(x @ w + b, 0.3), obs=y)


def heteroscedastic(x, y=None):
    """Mean and log-variance sliced from one output."""
    out = perceptron(x, 2)
    with numpyro.plate("data", len(x)):
        scale = jnp.exp(0.5 * out[..., 1])
        return numpyro.sample("obs", dist.Normal(out[..., 0], scale), obs=y)


def classifier(x, y=None):
    """Softmax classification with three classes."""
    logits = perceptron(x, 3, activation=jnp.tanh)
    with numpyro.plate("data", len(x)):
        return numpyro.sample("obs", dist.Categorical(logits=logits), obs=y)
