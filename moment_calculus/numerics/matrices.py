"""Linear maps of arrays, in the form that each framework runs fastest."""

from __future__ import annotations

import functools
from collections.abc import Callable

import array_api_compat

from moment_calculus.numerics.arrays import Array


def squared(x: Array) -> Array:
    """x∘x.

    XLA takes a third of the time on a CPU for a kernel with a constant in it, here a bound that
    holds anyway, than for a product of whole arrays alone.

    Args:
        x: any real array.
    """
    return _jax_squared()(x) if array_api_compat.is_jax_array(x) else x * x


@functools.cache
def _jax_squared() -> Callable[[Array], Array]:
    import jax

    bounded = jax.custom_jvp(lambda x: jax.numpy.maximum(abs(x), 0) * abs(x))
    bounded.defjvp(lambda primals, tangents: (bounded(*primals), 2 * primals[0] * tangents[0]))
    return bounded


def affine(inputs: Array, matrix: Array, shift: Array | None = None) -> Array:
    """M x + c over the trailing axis of x, as one operation where the framework has it.

    Args:
        inputs: x, [..., in].
        matrix: M, [..., out, in].
        shift: c, [out] or broadcastable with the result, or None.
    """
    alike = len(matrix.shape) == 2 and (shift is None or len(shift.shape) == 1)
    if alike and array_api_compat.is_torch_array(matrix):
        return _torch_linear()(inputs, matrix, shift)
    mapped = inputs @ matrix.mT
    return mapped if shift is None else mapped + shift


def affine_squared(inputs: Array, matrix: Array) -> Array:
    """(M∘M) x over the trailing axis of x: what M does to variances.

    Args:
        inputs: x, [..., in].
        matrix: M, [..., out, in].
    """
    if array_api_compat.is_torch_array(matrix):
        return affine(inputs, matrix * matrix)
    # The layout in which JAX models hold weights: XLA would copy the squares.
    return inputs @ squared(matrix.mT)


@functools.cache
def _torch_linear() -> Callable[..., Array]:
    import torch

    return torch.nn.functional.linear


def row_sums(x: Array) -> Array:
    """Sums over the trailing axis.

    XLA computes a product with ones together with what it sums, a sum of a matrix apart from it.

    Args:
        x: JAX array with an axis at least.
    """
    import jax.numpy as jnp

    return jnp.matmul(x, jnp.ones(x.shape[-1], x.dtype), precision="highest")
