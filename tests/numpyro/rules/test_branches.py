"""Branches of JAX by a certain choice; a random one is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments import Moments, propagate
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import propagate_traced

WIDTH = 3


pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def uncertain(*shape):
    random = np.random.default_rng(len(shape))
    mean, variance = 0.6 * random.normal(size=shape), random.uniform(0.05, 0.1, size=shape)
    return Moments(jnp.asarray(mean), variance=jnp.asarray(variance))


def branch(choice, x):
    branches = jnp.exp, lambda x: 2 * x + 1, lambda x: jnp.ones_like(x)
    return lax.switch(choice, branches, x)


@pytest.mark.parametrize("choice", [0, 1, 2])
def test_branch_chosen_under_tracing_has_the_moments_of_the_branch(choice):
    x = uncertain(WIDTH)
    expected = propagate_traced(lambda x: branch(choice, x), x)
    traced = by_numpy(lambda c: vars_of(propagate(lambda x: branch(c, x), x)))
    found = traced(choice)
    np.testing.assert_allclose(found[0], expected.mean)
    np.testing.assert_allclose(found[1], expected.variance, atol=1e-15)


def vars_of(moments):
    return moments.mean, moments.variance


def test_branch_keeps_its_dependence_on_the_operand():
    x = uncertain(WIDTH)
    half = lambda flag, x: x - lax.cond(flag, lambda v: 0.5 * v, lambda v: -v, x)  # noqa: E731
    traced = by_numpy(lambda flag: propagate(lambda x: half(flag, x), x).variance)
    np.testing.assert_allclose(traced(True), 0.25 * x.variance)
    np.testing.assert_allclose(traced(False), 4 * x.variance)


def test_scale_chosen_by_a_branch_stays_positive():
    """exp of either branch is still seen as positive: dividing by it is possible."""
    x = uncertain(WIDTH)
    same_kind = lambda flag, x: lax.cond(flag, lambda v: jnp.exp(v), lambda v: jnp.exp(v + 1), x)  # noqa: E731
    found = by_numpy(lambda flag: propagate(lambda x: 1.0 / same_kind(flag, x), x).mean)(True)
    np.testing.assert_allclose(found, jnp.exp(-x.mean + x.variance / 2), rtol=1e-10)


def test_while_loop_over_certain_values_runs():
    x = uncertain()
    doubled = lambda x: x * lax.while_loop(lambda n: n < 5, lambda n: 2 * n, 1.0)  # noqa: E731
    np.testing.assert_allclose(propagate(doubled, x).variance, 64 * x.variance)
