"""Small helpers on arrays of any framework; a trailing [d, d] holds a covariance."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from moment_calculus.numerics.special import constants, namespace

Array = Any


def device(array: Array) -> Any:
    """Device for arrays made beside this one; None for a JAX tracer, which does not know it."""
    return getattr(array, "device", None)


def outer(left: Array, right: Array) -> Array:
    """Outer product over the trailing axis: [..., d] and [..., e] to [..., d, e]."""
    return left[..., :, None] * right[..., None, :]


def diagonal(matrix: Array) -> Array:
    """Diagonal of trailing square matrices: [..., d, d] to [..., d]."""
    if matrix.shape[-1] == 1:
        return matrix[..., 0]
    return namespace(matrix).linalg.diagonal(matrix)


def set_diagonal(matrix: Array, values: Any) -> None:
    """Overwrite the diagonal of trailing square matrices of NumPy or torch.

    Args:
        matrix: [..., d, d].
        values: what broadcasts to [..., d].
    """
    torch = array_api_compat.is_torch_array(matrix)
    view = diagonal(matrix) if torch else np.einsum("...ii->...i", matrix)
    view[...] = values


def diagonal_matrix(vector: Array) -> Array:
    """Diagonal matrices over the trailing axis: [..., d] to [..., d, d]."""
    return vector[..., None] * identity_like(vector)


def diagonal_blocks(matrix: Array, parts: tuple[int, ...]) -> Array:
    """Diagonal blocks of trailing square matrices, for an axis that is split into others.

    Args:
        matrix: [..., d, d].
        parts: sizes k, …, s of the axes, with k · … · s = d.

    Returns:
        ``[..., k, …, s, s]``.
    """
    xp, lead, last = namespace(matrix), tuple(matrix.shape[:-2]), parts[-1]
    count = matrix.shape[-1] // last
    pairs = xp.reshape(matrix, (*lead, count, last, count, last))
    blocks = diagonal(xp.moveaxis(pairs, (-4, -2), (-2, -1)))
    return xp.reshape(xp.moveaxis(blocks, -1, -3), (*lead, *parts, last))


def identity_like(vector: Array) -> Array:
    """Identity matrix of the size of the trailing axis, with the vector's dtype and device."""
    size = vector.shape[-1]
    xp = namespace(vector)
    return xp.eye(size, dtype=vector.dtype, device=device(vector))


def transpose(matrix: Array) -> Array:
    """Swap the two trailing axes."""
    return matrix.mT


def off_diagonal_mask(vector: Array) -> Array:
    """Whether an entry of a matrix of the size of the trailing axis is beside its diagonal."""
    # built by hand because an array traced by jax.jit has no device to ask for
    return constants(np.eye(vector.shape[-1]), vector) == 0


def contract(matrix: Array, covariance: Array) -> Array:
    """M C Mᵀ for matrices M [o, d] and covariances C [..., d, d]: [..., o, o]."""
    return matrix @ covariance @ matrix.mT


def positive_part(array: Array) -> Array:
    """Elementwise maximum with zero, for variances that rounding pushed below it."""
    return namespace(array).clip(array, min=0.0)


def standard_deviation(variance: Array) -> Array:
    """Square root with a finite derivative, zero, where the variance is.

    Args:
        variance: not negative.
    """
    xp = namespace(variance)
    return xp.sqrt(xp.clip(variance, min=float(xp.finfo(variance.dtype).tiny)))
