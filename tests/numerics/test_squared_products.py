"""(x∘x) v of large data, block by block under JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moment_calculus.numerics.matrices import BLOCK, LARGE, squared_products


@pytest.mark.parametrize("columns", [1, 7])
def test_blocks_give_what_the_whole_gives(columns):
    rows = (LARGE + 1) * BLOCK // columns + 5
    x = jax.random.normal(jax.random.key(0), (rows, columns))
    weight = jax.random.normal(jax.random.key(1), (rows,))
    vector = jnp.arange(1.0, columns + 1)
    value, gradient = jax.jit(jax.value_and_grad(lambda v: weight @ squared_products(x, v)))(vector)
    squares = np.asarray(x, np.float64) ** 2
    expected = np.asarray(weight, np.float64) @ squares
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-2 * np.sqrt(rows))
    assert abs(float(value) - expected @ np.arange(1.0, columns + 1)) < 1e-2 * rows**0.5


def test_several_vectors_at_once():
    x = jax.random.normal(jax.random.key(0), (LARGE * BLOCK, 1))
    vectors = jnp.asarray([[1.0], [3.0]])
    found = jax.vmap(lambda v: squared_products(x, v))(vectors)
    np.testing.assert_allclose(found, vectors * (x * x)[:, 0], rtol=1e-6)
