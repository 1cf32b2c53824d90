"""Models as users write them, unmodified: a regression and a network."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

HIDDEN, INPUTS, POINTS = 8, 3, 20


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(POINTS, INPUTS)).astype(np.float32)
    noise = random.normal(size=POINTS)
    return x, (np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.2 * noise).astype(np.float32)


def observe(x, fn, y):
    """Rows of data under a plate."""
    with numpyro.plate("data", len(x)):
        return numpyro.sample("obs", fn, obs=y)


def dense(name: str, x: jax.Array, outputs: int) -> jax.Array:
    shape = [x.shape[-1], outputs]
    weight = numpyro.sample(f"{name}_weight", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
    bias = numpyro.sample(f"{name}_bias", dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    return x @ weight + bias


def network(x, y=None):
    """A hidden layer, one output and Gaussian noise."""
    mean = dense("last", jax.nn.relu(dense("hidden", x, HIDDEN)), 1)[:, 0]
    return observe(x, dist.Normal(mean, 0.3), y)


def linear_regression(x, y=None):
    """Bayesian linear regression with a vector site."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([INPUTS]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    return observe(x, dist.Normal(x @ w + b, 0.3), y)
