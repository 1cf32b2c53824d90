"""Products and solutions with matrices, as each framework computes them fastest."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import array_api_compat

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace

BLOCK = 20_000  # elements of a matrix that are squared together
LARGE = 8  # number of blocks from which on a loop over them pays
FEW = 2  # maps with at most so many outputs compute them one by one ...
SMALL = 20_000  # ... if the inputs have at most so many elements


def squared(x: Array) -> Array:
    """Return x∘x."""
    return _jax_squared()(x) if array_api_compat.is_jax_array(x) else x * x


@functools.cache
def _jax_squared() -> Callable[[Array], Array]:
    import jax

    # XLA on a CPU takes a third of the time for a kernel with a constant in it, here a
    # bound that holds anyway, than for a product of whole arrays alone.
    bounded = jax.custom_jvp(lambda x: jax.numpy.maximum(abs(x), 0) * abs(x))
    bounded.defjvp(lambda primals, tangents: (bounded(*primals), 2 * primals[0] * tangents[0]))
    return bounded


def squared_products(x: Array, vector: Array) -> Array:
    """Return (x∘x) v for x [..., k] and v [k]."""
    block = BLOCK // max(x.shape[-1], 1)
    if array_api_compat.is_jax_array(x) and len(x.shape) == 2 and x.shape[0] >= LARGE * block > 0:
        return _jax_squared_products(x, vector, block)
    return (x * x) @ vector


def _jax_squared_products(x: Array, vector: Array, block: int) -> Array:
    import jax

    # Squares of one block, also those of the backward pass, stay in the processor's
    # cache.
    @jax.checkpoint
    def products(vector: Array, start: Array) -> Array:
        rows = jax.lax.dynamic_slice_in_dim(x, start, block)
        return (rows * rows) @ vector

    count = x.shape[0] // block
    starts = block * jax.numpy.arange(count)
    _, products_of_blocks = jax.lax.scan(
        lambda _, start: (None, products(vector, start)), None, starts
    )
    rest = x[count * block :]
    return jax.numpy.concatenate([products_of_blocks.reshape(-1), (rest * rest) @ vector])


def affine(inputs: Array, matrix: Array, shift: Array | None = None) -> Array:
    """Return M x + c, [..., out], for x [..., in], M [..., out, in] and c [out] or None."""
    alike = len(matrix.shape) == 2 and (shift is None or len(shift.shape) == 1)
    if alike and array_api_compat.is_torch_array(matrix):
        return _torch_linear()(inputs, matrix, shift)
    mapped = _product(inputs, matrix)
    return mapped if shift is None else mapped + shift


def affine_squared(inputs: Array, matrix: Array) -> Array:
    """Return (M∘M) x, [..., out]: what M [..., out, in] does to variances x [..., in]."""
    if array_api_compat.is_torch_array(matrix):
        return affine(inputs, matrix * matrix)
    # JAX models hold weights [in, out]: without the transposes XLA would copy the
    # squares.
    return _product(inputs, squared(matrix.mT).mT)


def pairs_of_rows(inputs: Array, left: Array, right: Array) -> Array:
    """Return Σ_k l_ik r_jk x_k, [..., rows, columns], for x [..., in]."""
    rows, columns, size = left.shape[0], right.shape[0], left.shape[1]
    xp = namespace(left)
    pairs = xp.reshape(left[:, None, :] * right[None, :, :], (rows * columns, size))
    mapped = affine(inputs, pairs)
    return xp.reshape(mapped, (*mapped.shape[:-1], rows, columns))


def _product(inputs: Array, matrix: Array) -> Array:
    """Return x Mᵀ; few columns one by one, as XLA is slow for thin matrices."""
    few = len(matrix.shape) == 2 and 1 < matrix.shape[0] <= FEW
    if not few or math.prod(inputs.shape) > SMALL or not array_api_compat.is_jax_array(matrix):
        return inputs @ matrix.mT
    columns = [inputs @ matrix[row] for row in range(matrix.shape[0])]
    return namespace(inputs).stack(columns, axis=-1)


@functools.cache
def _torch_linear() -> Callable[..., Array]:
    import torch

    return torch.nn.functional.linear


def row_sums(x: Array) -> Array:
    """Return the sums over the trailing axis of a JAX array."""
    import jax.numpy as jnp

    # XLA computes a product with ones together with what it sums, but a sum separately.
    return jnp.matmul(x, jnp.ones(x.shape[-1], x.dtype), precision="highest")


def cholesky(matrix: Array) -> Array:
    """Return lower Cholesky factors [..., d, d]; NaN if not definite (NumPy: error)."""
    xp = namespace(matrix)
    if not array_api_compat.is_torch_array(matrix):
        return xp.linalg.cholesky(matrix)
    import torch

    root, failed = torch.linalg.cholesky_ex(matrix)
    return torch.where(failed[..., None, None] == 0, root, torch.nan)


def solve(matrix: Array, vector: Array) -> Array:
    """Return the solution x [..., d] of A x = b for A [..., d, d] and b [..., d]."""
    columns = vector[..., None]
    if not array_api_compat.is_torch_array(matrix):
        return namespace(matrix).linalg.solve(matrix, columns)[..., 0]
    import torch

    return torch.linalg.solve_ex(matrix, columns)[0][..., 0]
