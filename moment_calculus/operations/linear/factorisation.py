"""Correlation matrices R with an LKJ prior, and Cholesky factors of covariances s sᵀ ∘ R.

A program writes diag(s) L z, L Lᵀ or cholesky(R * s * s[:, None]). Here such products are
recognised by the steps of their operands, so that the factor stays a function of its coordinates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.errors import random_covariance
from moment_calculus.functions.combinators import Scaled, bounds_of
from moment_calculus.functions.families.elementary import Exp
from moment_calculus.numerics.arrays import Array, constants, namespace
from moment_calculus.operations.elementwise.elementary import power
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import terms_of
from moment_calculus.operations.elementwise.unary import is_value, shape_of
from moment_calculus.operations.linear.correlations import (
    Factor,
    correlation_matrix,
    factor_of,
    require_factor,
    times_factor,
)
from moment_calculus.operations.linear.diagonals import times_diagonal
from moment_calculus.operations.linear.rotations import times_dependent_factor
from moment_calculus.operations.shapes.coordinates import Support, image_of, on_support
from moment_calculus.operations.shapes.moves import Permuted, swap_last
from moment_calculus.operations.shapes.reshaping import Expanded, Reshaped, narrow, reshape
from moment_calculus.operations.shapes.sticks import CORRELATION_FACTOR, expected_log_diagonal
from moment_calculus.values import Deferred, Gaussian, Value
from moment_calculus.values.deferred import as_function
from moment_calculus.values.protocols import Symmetric
from moment_calculus.values.step import Product

__all__ = ["CORRELATION", "check_factor", "cholesky"]


def structured_product(left: Any, right: Any) -> Value | None:
    """Return left @ right of a diagonal matrix or a random Cholesky factor; else None.

    These are diag(s) A, A diag(s), S z, z Sᵀ and L Lᵀ.
    """
    if (scaled := times_diagonal(left, right)) is not None:
        return scaled
    transposed = right.step.source if _is_transposed(right) else None
    if transposed is not None and (factor := factor_of(transposed)) is not None:
        if transposed is left and not factor.scales:
            return on_support(CORRELATION, factor.coordinates)
        return _times_vectors(factor, left)
    if (factor := factor_of(left)) is None or not isinstance(right, Gaussian):
        return None
    if len(right.shape) == 1:
        return _times_vectors(factor, right)
    if right.shape[-1] == 1:
        mapped = _times_vectors(factor, reshape(right, right.shape[:-1]))
        return None if mapped is None else reshape(mapped, (*mapped.shape, 1))
    mapped = _times_vectors(factor, swap_last(right))
    return None if mapped is None else swap_last(mapped)


def _times_vectors(factor: Factor, vectors: Any) -> Gaussian | None:
    return times_factor(factor, vectors) or times_dependent_factor(factor, vectors)


def _is_transposed(value: Any) -> bool:
    step = getattr(value, "step", None)
    return isinstance(step, Permuted) and tuple(step.order) == (1, 0)


def _correlation(coordinates: Gaussian) -> Gaussian:
    return correlation_matrix(on_support(CORRELATION_FACTOR, coordinates))


def log_slope_of_square(coordinates: Gaussian) -> Array:
    """Return E log |Jacobian| of L Lᵀ by L, [...] (Lewandowski et al. 2009)."""
    logs = expected_log_diagonal(coordinates)
    weights = constants(np.arange(logs.shape[-1] - 1, -1, -1), logs)
    return namespace(logs).sum(weights * logs, axis=-1)


def _slope(coordinates: Gaussian) -> Array:
    return CORRELATION_FACTOR.expected_log_slope(coordinates) + log_slope_of_square(coordinates)


CORRELATION = Support(_correlation, _slope, 2, of_independent=True)


def scaled_matrix(value: Any) -> tuple[Deferred, Array] | None:
    """Return a and M of a positive random number a times a certain matrix M; None of others."""
    if not isinstance(value, Deferred) or narrow(value.base).shape != ():
        return None
    function, matrix = value.function, 1.0
    while isinstance(function, Scaled) and isinstance(function.shift, int | float):
        if function.shift != 0:
            return None
        function, matrix = function.inner, matrix * function.scale
    if not bounds_of(function).positive or len(getattr(matrix, "shape", ())) != 2:
        return None
    return Deferred(narrow(value.base), function), matrix


def check_factor(value: Value) -> None:
    """Raise unless a random matrix is a Cholesky factor whose inverse has moments."""
    if scaled_matrix(value) is None:
        require_factor(value)


def cholesky(covariance: Value) -> Value:
    """Return the Cholesky factor of a random covariance s sᵀ ∘ R or a M; raise for others.

    R is a correlation matrix with an LKJ prior, s a positive vector or number; a is a positive
    number and M certain.
    """
    if (scaled := scaled_matrix(covariance)) is not None:
        amplitude, matrix = scaled
        return multiply(power(amplitude, 0.5), namespace(matrix).linalg.cholesky(matrix))
    factors = _elementwise_factors(covariance)
    images = [image for part in factors if (image := image_of(part)) is not None]
    others = [part for part in factors if image_of(part) is None]
    scales = _row_scales(others) if [i.support for i in images] == [CORRELATION] else None
    if scales is None:
        raise random_covariance(covariance.sites)
    value: Any = on_support(CORRELATION_FACTOR, images[0].coordinates)
    for scale in scales:
        value = multiply(scale, value)
    return value.gaussian()


def _elementwise_factors(value: Any) -> list[Any]:
    """Return the values and arrays of which a value is the elementwise product."""
    function = as_function(narrow(value) if isinstance(value, Gaussian) else value)
    if isinstance(function, Deferred):
        terms = terms_of(function.base) if type(function.function) is Exp else []
        return [Deferred(part, Exp()) for part in terms] or [function]
    if not isinstance(function, Gaussian) or image_of(function) is not None:
        return [function]
    step = function.step
    if _is_transposed(function) and isinstance(step.inputs[0].step, Symmetric):
        return [step.inputs[0]]
    if step.affine is not None and isinstance(step.affine[2], int | float) and not step.affine[2]:
        return [*_elementwise_factors(step.affine[0]), step.affine[1]]
    parts = step.inputs if isinstance(step, Product) else ()
    return [part for source in parts for part in _elementwise_factors(source)] or [function]


def _row_scales(factors: list[Any]) -> list[Any] | None:
    """Return the scales s of the rows, if the parts multiply to s sᵀ; else None."""
    rows: list[Any] = []
    columns: list[Any] = []
    numbers: list[Any] = []
    for factor in factors:
        shape = (1, 1, *shape_of(factor))[-2:]
        kind = numbers if shape == (1, 1) else rows if shape[1] == 1 else columns
        kind.append(factor)
    pairs = zip(rows, columns, strict=False)
    if len(rows) != len(columns) or not all(_is_transpose(*pair) for pair in pairs):
        return None
    return [*rows, *(power(factor, 0.5) if is_value(factor) else factor**0.5 for factor in numbers)]


def _is_transpose(row: Any, column: Any) -> bool:
    """Whether two functions of one vector differ by the axis on which it stands."""
    if not (isinstance(row, Deferred) and isinstance(column, Deferred)):
        return False
    one, other = (_source_vector(part.base) for part in (row, column))
    return one is other and row.function == column.function


def _source_vector(value: Gaussian) -> Gaussian:
    while isinstance(value.step, Expanded | Reshaped | Permuted) or _is_unchanged(value.step):
        value = value.step.inputs[0]
    return value


def _is_unchanged(step: Any) -> bool:
    """Whether the step multiplies by one and adds zero."""
    numbers = step.affine[1:] if step.affine is not None else ()
    return all(isinstance(part, int | float) for part in numbers) and numbers == (1, 0)
