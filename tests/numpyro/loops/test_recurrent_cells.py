"""Recurrent cells of flax and equinox with random weights, by covariances computed backwards."""

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from numpyro_moments import Moments
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import propagate_traced

pytestmark = pytest.mark.filterwarnings("ignore::moment_calculus.errors.DependenceWarning")
X = np.random.default_rng(0).normal(size=(3, 2, 2))


def scanned_gru():
    """A GRU of flax inside of jax.lax.scan."""
    cell = nnx.GRUCell(2, 2, rngs=nnx.Rngs(0), param_dtype=jnp.float64)
    graph, state = nnx.split(cell)
    weights, tree = jax.tree.flatten(state)

    def program(*weights):
        cell = nnx.merge(graph, jax.tree.unflatten(tree, weights))
        step = lambda hidden, x: (cell(hidden, x)[0], None)  # noqa: E731
        return jax.lax.scan(step, jnp.zeros((2, 2)), jnp.asarray(X))[0]

    return program, weights


def looped_lstm():
    """An LSTM of equinox in a loop of Python."""
    cell = equinox.nn.LSTMCell(2, 2, key=jax.random.key(0), dtype=jnp.float64)
    arrays, rest = equinox.partition(cell, equinox.is_array)
    weights, tree = jax.tree.flatten(arrays)

    def program(*weights):
        cell = equinox.combine(jax.tree.unflatten(tree, weights), rest)
        state = jnp.zeros(2), jnp.zeros(2)
        for x in X[:2, 0]:
            state = cell(jnp.asarray(x), state)
        return state[0]

    return program, weights


@pytest.mark.parametrize("make", [scanned_gru, looped_lstm])
def test_small_variances(make):
    with jax.enable_x64(True):
        program, weights = make()
        inputs = [Moments(w, variance=jnp.full_like(w, 1e-10)) for w in weights]
        found = propagate_traced(program, *inputs, covariance="backward")
        slopes = by_numpy(jax.jacrev(program, argnums=tuple(range(len(weights)))))(*weights)
        squares = [(s.reshape(*found.mean.shape, -1) ** 2).sum(-1) for s in slopes]
        np.testing.assert_allclose(found.variance, 1e-10 * sum(squares), rtol=1e-6)
        np.testing.assert_allclose(found.mean, by_numpy(program)(*weights), rtol=1e-7)
