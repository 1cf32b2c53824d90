"""Products and solutions with matrices, in the form that each framework runs fastest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.numerics.matrices import (
    BLOCK,
    LARGE,
    affine,
    affine_squared,
    pairs_of_rows,
    row_sums,
    squared,
    squared_products,
)

NUMBERS = np.array([0.0, -0.0, 3.0, -1.7, 1e-30, -1e30, np.inf, np.nan], np.float32)
RANDOM = np.random.default_rng(0)
X, MATRIX, SHIFT = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(4, 3)), RANDOM.normal(size=4)


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor, jnp.asarray])
def test_frameworks_agree(array):
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(squared(array(NUMBERS)), NUMBERS * NUMBERS)
    x, matrix, shift = (array(part.astype(np.float32)) for part in (X, MATRIX, SHIFT))
    np.testing.assert_allclose(affine(x, matrix, shift), X @ MATRIX.T + SHIFT, rtol=2e-5)
    np.testing.assert_allclose(affine(x, matrix), X @ MATRIX.T, rtol=2e-5)
    np.testing.assert_allclose(affine_squared(x, matrix), X @ (MATRIX**2).T, rtol=2e-5)


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor, jnp.asarray])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("lead", [(), (5,), (2, 5), (10_000,)])
def test_few_rows_map_as_many_do(array, rows, lead):
    inputs = RANDOM.normal(size=(*lead, 3)).astype(np.float32)
    matrix = MATRIX[:rows].astype(np.float32)
    x, few = array(inputs), array(matrix)
    np.testing.assert_allclose(affine(x, few), inputs @ matrix.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(affine_squared(x, few), inputs @ (matrix**2).T, rtol=1e-4, atol=1e-5)
    pairs = np.einsum("ik,jk,...k->...ij", matrix, MATRIX, inputs)
    found = pairs_of_rows(x, few, array(MATRIX.astype(np.float32)))
    np.testing.assert_allclose(found, pairs, rtol=1e-4, atol=1e-4)


def test_derivatives_of_squares_in_jax():
    x = jnp.asarray([0.0, 2.0, -3.0])
    np.testing.assert_array_equal(jax.vmap(jax.grad(squared))(x), 2 * x)
    np.testing.assert_array_equal(jax.vmap(jax.grad(jax.grad(squared)))(x), jnp.full(3, 2.0))
    np.testing.assert_array_equal(jax.jacfwd(squared)(x), jnp.diag(2 * x))


def test_row_sums_have_the_precision_of_the_dtype():
    x = RANDOM.normal(size=(7, 1000)).astype(np.float32)
    np.testing.assert_allclose(row_sums(jnp.asarray(x)), x.sum(-1, dtype=np.float64), atol=1e-4)
    assert row_sums(jnp.ones((3, 0))).tolist() == [0.0, 0.0, 0.0]


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
