"""Largest entries of windows, and whole networks, against samples: what the docstrings state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments import Moments, propagate
from tests.checks.jaxprs import by_numpy

pytestmark = pytest.mark.slow

SAMPLES = 8_000


def convolved(x, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)


def pooled(x, size, start=-jnp.inf, reduce=lax.max):
    window = (1, size, size, 1)
    return lax.reduce_window(x, start, reduce, window, (1, 2, 2, 1), "SAME")


def both(function, *moments, covariance="diagonal"):
    """Mean and variance by propagation and by samples, compiled together."""

    def run(moments):
        given = [Moments(m, variance=v) for m, v in moments]
        result = propagate(function, *given, covariance=covariance)

        def draw(key):
            keys = jax.random.split(key, len(moments))
            return function(
                *(
                    m + jnp.sqrt(v) * jax.random.normal(k, m.shape)
                    for k, (m, v) in zip(keys, moments, strict=True)
                )
            )

        samples = lax.map(draw, jax.random.split(jax.random.key(0), SAMPLES), batch_size=1000)
        return (result.mean, result.variance), (samples.mean(0), samples.var(0))

    return by_numpy(run)(moments)


def errors(ours, theirs):
    """Largest error of the mean in standard deviations, and the range of ratios of deviations."""
    deviation = np.sqrt(theirs[1])
    ratio = np.sqrt(ours[1]) / deviation
    return np.abs((ours[0] - theirs[0]) / deviation).max(), ratio.min(), ratio.max()


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


IMAGE = normal(1, 6, 6, 2, seed=1)
MAXIMA = {
    "independent": lambda x, size: pooled(x, size),
    "shared weights": lambda w, size: pooled(convolved(IMAGE, w), size),
    "relu": lambda w, size: pooled(jax.nn.relu(convolved(IMAGE, w)), size),
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
    moments = normal(*shape), jnp.full(shape, 0.3)
    of_mean, low, high = errors(*both(lambda x: MAXIMA[name](x, size), moments))
    largest, smallest_ratio = STATED[name, size]
    assert of_mean < largest
    assert low > smallest_ratio
    assert high < 1.03
