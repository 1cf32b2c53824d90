"""Exact moments of linear and bilinear maps, beside what is propagated through them."""

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_moments import Moments, propagate
from tests.checks.jaxprs import by_numpy

GENERATOR = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(GENERATOR.normal(size=shape))


def spread(*shape):
    return jnp.asarray(0.1 + GENERATOR.random(shape))


def linear_variance(function, point, variance):
    """Exact variance of a linear function of independent variables, by its matrix."""
    jacobian = jax.jacfwd(function)(point)
    return jnp.tensordot(jacobian**2, variance, axes=variance.ndim)


def linear_moments(function, x):
    return function(x[0]), linear_variance(function, *x)


def bilinear_moments(function, x, w):
    """Exact mean and variance of a bilinear function of independent variables."""
    (m, v), (n, s) = x, w
    both = jax.jacfwd(jax.jacfwd(function), argnums=1)(m, n)  # the same everywhere
    mixed = jnp.tensordot(both**2, s, axes=s.ndim)
    variance = jnp.tensordot(mixed, v, axes=v.ndim)
    variance += linear_variance(lambda x: function(x, n), m, v)
    return function(m, n), variance + linear_variance(lambda w: function(m, w), n, s)


def layer_moments(function, w, b):
    """Exact mean and variance of a linear function of independent weights and biases."""
    variance = linear_variance(lambda w: function(w, b[0]), *w)
    return function(w[0], b[0]), variance + linear_variance(lambda b: function(w[0], b), *b)


def evaluated(rows, covariance="diagonal"):
    """What is propagated and an oracle, for rows of both with inputs; all are compiled together."""

    def moments(function, expected, arrays):
        given = [Moments(a[0], variance=a[1]) for a in arrays]
        result = propagate(function, *given, covariance=covariance)
        return (result.mean, result.variance), expected(function, *arrays)

    def program(inputs):
        return {name: moments(*rows[name][:2], arrays) for name, arrays in inputs.items()}

    return by_numpy(program)({name: row[2] for name, row in rows.items()})


def agree(rows, covariance="diagonal"):
    """What is propagated and its oracle, for every row."""
    for name, both in evaluated(rows, covariance).items():
        for actual, exact in zip(*both, strict=True):
            np.testing.assert_allclose(actual, exact, rtol=1e-10, atol=1e-12, err_msg=str(name))


def check(function, expected, *inputs):
    agree({"": (function, expected, inputs)})
