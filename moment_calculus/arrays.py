"""Small helpers on arrays of any framework; a trailing [d, d] holds a covariance."""

from __future__ import annotations

from typing import Any

from moment_calculus.special import namespace

Array = Any


def device(array: Array) -> Any:
    """Device for arrays made beside this one; None for a JAX tracer, which does not know it."""
    return getattr(array, "device", None)


def outer(left: Array, right: Array) -> Array:
    """Outer product over the trailing axis: [..., d] and [..., e] to [..., d, e]."""
    return left[..., :, None] * right[..., None, :]


def diagonal(matrix: Array) -> Array:
    """Diagonal of trailing square matrices: [..., d, d] to [..., d]."""
    return namespace(matrix).linalg.diagonal(matrix)


def diagonal_matrix(vector: Array) -> Array:
    """Diagonal matrices over the trailing axis: [..., d] to [..., d, d]."""
    return vector[..., None] * identity_like(vector)


def identity_like(vector: Array) -> Array:
    """Identity matrix of the size of the trailing axis, with the vector's dtype and device."""
    size = vector.shape[-1]
    xp = namespace(vector)
    return xp.eye(size, dtype=vector.dtype, device=device(vector))


def transpose(matrix: Array) -> Array:
    """Swap the two trailing axes."""
    return matrix.mT


def contract(matrix: Array, covariance: Array) -> Array:
    """M C Mᵀ for matrices M [o, d] and covariances C [..., d, d]: [..., o, o]."""
    return matrix @ covariance @ matrix.mT


def positive_part(array: Array) -> Array:
    """Elementwise maximum with zero, for variances that rounding pushed below it."""
    return namespace(array).clip(array, min=0.0)
