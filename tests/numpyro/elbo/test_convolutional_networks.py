"""Largest entries of windows against samples: what the docstrings state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments import Moments, propagate
from tests.checks.jaxprs import by_numpy

SAMPLES = 8_000
IMAGE = jnp.asarray(np.random.default_rng(1).normal(size=(1, 6, 6, 2)), jnp.float32)


def convolved(w):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(IMAGE, w, (1, 1), "SAME", dimension_numbers=numbers)


MAXIMA = {
    "independent": lambda x: x,
    "shared weights": convolved,
    "relu": lambda w: jax.nn.relu(convolved(w)),
}


# The mean in standard deviations, and the least ratio of standard deviations: windows that a relu
# has cut off nearly always are worst.
STATED = {
    ("independent", 2): (0.03, 0.95),
    ("independent", 3): (0.04, 0.93),
    ("shared weights", 2): (0.04, 0.92),
    ("shared weights", 3): (0.04, 0.9),
    ("relu", 2): (0.06, 0.84),
    ("relu", 3): (0.15, 0.5),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", MAXIMA)
def test_largest_entry_has_the_stated_error(name, size):
    shape = (1, 6, 6, 3) if name == "independent" else (3, 3, 2, 3)
    mean, variance = np.random.default_rng(0).normal(size=shape).astype(np.float32), 0.3

    def largest(x):
        window = (1, size, size, 1)
        return lax.reduce_window(MAXIMA[name](x), -jnp.inf, lax.max, window, (1, 2, 2, 1), "SAME")

    @by_numpy
    def both(mean):
        found = propagate(largest, Moments(mean, variance=jnp.full(shape, variance)))
        draw = lambda key: largest(mean + variance**0.5 * jax.random.normal(key, shape))  # noqa: E731
        samples = lax.map(draw, jax.random.split(jax.random.key(0), SAMPLES), batch_size=1000)
        return found.mean, found.variance, samples.mean(0), samples.var(0)

    found, spread, centre, sampled = map(np.asarray, both(mean))
    error, least_ratio = STATED[name, size]
    ratio = np.sqrt(spread / sampled)
    assert (np.abs(found - centre) / np.sqrt(sampled)).max() < error
    assert ratio.min() > least_ratio
    assert ratio.max() < 1.03
