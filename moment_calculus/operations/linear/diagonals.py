"""Diagonals of matrices, and diagonal matrices, which scale the rows or columns of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import identity_like
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian, Value

__all__ = ["diagonal", "diagonal_matrix"]

_DIAGONAL = "diagonal"


def diagonal(value: Value) -> Value:
    """Return the diagonal [..., d] of matrices [..., d, d]."""
    columns = np.arange(value.shape[-1])
    return index(value, (..., columns, columns))


def diagonal_matrix(vector: Value) -> Gaussian:
    """Return diagonal matrices [..., d, d] of vectors [..., d]."""
    rows = reshape(vector, (*vector.shape, 1))
    matrix = scale_shift(rows, identity_like(vector.at_mean)).gaussian()
    matrix.memo.arrays[_DIAGONAL] = vector
    return matrix


def times_diagonal(left: Any, right: Any) -> Value | None:
    """Return left @ right if one of them was made from its diagonal; else None."""
    if (rows := _diagonal_of(left)) is not None and len(right.shape) > 1:
        return multiply(reshape(rows, (*rows.shape, 1)), right)
    if (columns := _diagonal_of(right)) is not None and len(left.shape) > 1:
        return multiply(left, reshape(columns, (*columns.shape[:-1], 1, columns.shape[-1])))
    return None


def _diagonal_of(operand: Any) -> Any:
    return operand.memo.arrays.get(_DIAGONAL) if isinstance(operand, Gaussian) else None
