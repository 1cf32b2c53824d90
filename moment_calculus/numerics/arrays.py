"""Small functions of arrays of any framework; a trailing [d, d] holds a covariance."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from moment_calculus.numerics.special import constants, namespace

Array = Any


def device(array: Array) -> Any:
    """Return the device for arrays made beside this one; None for a JAX tracer."""
    return getattr(array, "device", None)


def to_numpy(array: Any, dtype: Any = None) -> np.ndarray:
    """Return an array of any framework and device as NumPy array."""
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array, dtype)


def outer(left: Array, right: Array) -> Array:
    """Return the outer product of [..., d] and [..., e], [..., d, e]."""
    return left[..., :, None] * right[..., None, :]


def diagonal(matrix: Array) -> Array:
    """Return the diagonal of trailing square matrices: [..., d, d] to [..., d]."""
    if matrix.shape[-1] == 1:
        return matrix[..., 0]
    return namespace(matrix).linalg.diagonal(matrix)


def set_diagonal(matrix: Array, values: Any) -> None:
    """Overwrite the diagonal of NumPy or torch matrices [..., d, d] in place."""
    torch = array_api_compat.is_torch_array(matrix)
    view = diagonal(matrix) if torch else np.einsum("...ii->...i", matrix)
    view[...] = values


def diagonal_matrix(vector: Array) -> Array:
    """Return diagonal matrices over the trailing axis: [..., d] to [..., d, d]."""
    return vector[..., None] * identity_like(vector)


def diagonal_blocks(matrix: Array, parts: tuple[int, ...]) -> Array:
    """Return diagonal blocks [..., k, …, s, s] of [..., d, d], for parts (k, …, s)."""
    xp, lead, last = namespace(matrix), tuple(matrix.shape[:-2]), parts[-1]
    count = matrix.shape[-1] // last
    pairs = xp.reshape(matrix, (*lead, count, last, count, last))
    blocks = diagonal(xp.moveaxis(pairs, (-4, -2), (-2, -1)))
    return xp.reshape(xp.moveaxis(blocks, -1, -3), (*lead, *parts, last))


def identity_like(vector: Array) -> Array:
    """Return the identity matrix [d, d] for a vector [..., d], with its dtype and device."""
    size = vector.shape[-1]
    xp = namespace(vector)
    return xp.eye(size, dtype=vector.dtype, device=device(vector))


def transpose(matrix: Array) -> Array:
    """Swap the two trailing axes."""
    return matrix.mT


def off_diagonal_mask(vector: Array) -> Array:
    """Return where a [d, d] matrix is off the diagonal, for a vector [..., d]."""
    # made by NumPy, because an array that jax.jit traces has no device
    return constants(np.eye(vector.shape[-1]), vector) == 0


def contract(matrix: Array, covariance: Array) -> Array:
    """Return M C Mᵀ, [..., o, o], for matrices M [o, d] and covariances C [..., d, d]."""
    return matrix @ covariance @ matrix.mT


def positive_part(array: Array) -> Array:
    """Return the maximum with zero, for variances that rounding made negative."""
    return namespace(array).clip(array, min=0.0)


def standard_deviation(variance: Array) -> Array:
    """Return the square root of variances, with a zero derivative where they are zero."""
    xp = namespace(variance)
    return xp.sqrt(xp.clip(variance, min=float(xp.finfo(variance.dtype).tiny)))
