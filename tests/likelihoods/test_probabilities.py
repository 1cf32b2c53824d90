"""Logarithms of probabilities that are made of others: guessing, and hitting within a width."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.expectations import expected_value
from moment_calculus.likelihoods.links import log_probabilities
from moment_calculus.operations.elementwise.products import divide, multiply
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.shapes.moves import is_same
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.evaluation.interpreter import Interpreter
from tests.numpyro.likelihoods.cases import latent

Z, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def site(name, mean, variance):
    moments = Moments(np.array([mean]), variance=np.array([variance]))
    return as_value(moments, name, propagation_of("full", "exact"))


def test_a_chance_of_guessing_beside_that_of_knowing():
    """The three-parameter model of item response: g + (1 − g) S(v)."""
    u, v = site("u", -1.0, 0.5), site("v", 0.4, 1.5)
    guess, know = (apply(activation("sigmoid"), part) for part in (u, v))
    probability = add(guess, multiply(scale_shift(guess, -1.0, 1.0), know))
    found = [expected_value(part)[0] for part in log_probabilities(probability)]
    g, k = special.expit(-1.0 + 0.5**0.5 * Z)[:, None], special.expit(0.4 + 1.5**0.5 * Z)
    logs = np.log(g + (1 - g) * k), np.log1p(-g) + np.log1p(-k)
    np.testing.assert_allclose(found, [WEIGHTS @ part @ WEIGHTS for part in logs], rtol=1e-6)


@pytest.mark.parametrize("spelling", ["ndtr", "erf", "erfc"])
def test_the_chance_to_be_within_a_positive_width(spelling):
    """2 Φ(z) − 1 of z = eˣ, as of a putt that stays within the angle of the hole."""
    width = apply(activation("exp"), site("x", -0.3, 0.4))
    inner, scale, shift = {
        "ndtr": (1.0, 2.0, -1.0),
        "erf": (math.sqrt(0.5), 1.0, 0.0),
        "erfc": (-math.sqrt(0.5), 1.0, -1.0),
    }[spelling]
    whole = scale_shift(apply(activation(spelling), scale_shift(width, inner)), scale, shift)
    found = [expected_value(part)[0] for part in log_probabilities(whole)]
    z = np.exp(-0.3 + 0.4**0.5 * Z)
    logs = np.log(special.erf(z / math.sqrt(2))), math.log(2) + special.log_ndtr(-z)
    np.testing.assert_allclose(found, [WEIGHTS @ part for part in logs], rtol=1e-6)


def test_a_reciprocal_of_an_exponential_in_the_complementary_log_log():
    """1 − 1 / exp(exp x)."""
    rate = apply(activation("exp"), site("x", -0.3, 0.4))
    whole = scale_shift(divide(1.0, apply(activation("exp"), rate)), -1.0, 1.0)
    found = [expected_value(part)[0] for part in log_probabilities(whole)]
    lam = np.exp(-0.3 + 0.4**0.5 * Z)
    logs = np.log(-np.expm1(-lam)), -lam
    np.testing.assert_allclose(found, [WEIGHTS @ part for part in logs], rtol=1e-6)


def test_a_traced_index_that_is_written_twice_takes_one_value():
    """So that g[i] + (1 - g[i]) * p is a probability where NumPyro compiles with the data i."""
    found = []

    def program(index):
        twice = jax.make_jaxpr(lambda x, i: (x[i], x[i]))(jnp.zeros(3), index)
        values = Interpreter().run_closed(twice, [latent(), index])
        found.append(is_same(*(value.gaussian() for value in values)))
        return index

    jax.eval_shape(program, jnp.zeros(4, int))
    assert found == [True]


def test_the_choices_by_which_jax_spells_the_normal_distribution_function():
    """They are one function of a positive value, which has an array within."""
    sizes = np.array([0.1, 0.7, 2.0])

    def logs(x):
        spelled = jax.make_jaxpr(lambda x, c: 2 * jax.scipy.special.ndtr(jnp.exp(x) * c) - 1)
        value, c = latent("x", x, 0.4 + 0 * x), jnp.asarray(sizes)
        (whole,) = Interpreter().run_closed(spelled(x, c), [value, c])
        return [expected_value(part) for part in log_probabilities(whole)]

    with jax.enable_x64(True):
        found = jax.jit(logs)(jnp.full(3, -0.3))
    z = np.exp(-0.3 + 0.4**0.5 * Z[:, None]) * sizes
    exact = np.log(special.erf(z / math.sqrt(2))), math.log(2) + special.log_ndtr(-z)
    np.testing.assert_allclose(found, [WEIGHTS @ part for part in exact], rtol=1e-6)
