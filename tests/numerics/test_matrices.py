"""Linear maps in the form that a framework runs fastest are the plain ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.numerics.matrices import (
    affine,
    affine_squared,
    pairs_of_rows,
    row_sums,
    squared,
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
