"""Random Cholesky factors diag(s) L, of scales s and a correlation matrix with an LKJ prior."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from moment_calculus.errors import random_covariance
from moment_calculus.operations.elementwise.elementary import factors_of
from moment_calculus.operations.elementwise.unary import is_value, shape_of
from moment_calculus.operations.linear.maps import check_no_shared_sites
from moment_calculus.operations.shapes.coordinates import image_of
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import Expanded, Reshaped
from moment_calculus.operations.shapes.sticks import CORRELATION_FACTOR
from moment_calculus.values import Gaussian


class Factor(NamedTuple):
    """A random Cholesky factor diag(s₁ s₂ …) L."""

    coordinates: Gaussian  # of L
    correlation: Gaussian  # L
    scales: tuple[Any, ...] = ()  # values or arrays, [..., d], [..., 1] or numbers


def factor_of(value: Any) -> Factor | None:
    """Return the parts of a random Cholesky factor; None of other values."""
    if not isinstance(value, Gaussian):
        return None
    image = image_of(value)
    if image is not None:
        known = image.support is CORRELATION_FACTOR
        return Factor(image.coordinates, value) if known else None
    step = value.step
    if step.affine is not None:
        source, scale, shift = step.affine
        unshifted = isinstance(shift, int | float) and shift == 0
        return _scaled_rows(source, scale) if unshifted else None
    if step.is_product:
        one, other = step.inputs
        return _scaled_rows(one, _narrow(other)) or _scaled_rows(other, _narrow(one))
    return factor_of(step.source) if _is_repeated(value) else None


def _is_repeated(value: Gaussian) -> bool:
    """Whether the value repeats one matrix along the batch."""
    if not isinstance(value.step, Expanded | Reshaped):
        return False
    source = value.step.source
    return source.shape[-2:] == value.shape[-2:] and math.prod(source.shape[:-2]) == 1


def _narrow(value: Gaussian) -> Gaussian:
    """Return the value that was broadcast to this one."""
    while isinstance(value.step, Expanded):
        value = value.step.source
    return value


def _scaled_rows(value: Gaussian, scale: Any) -> Factor | None:
    """Return the parts of a factor times a scale that is the same for all columns."""
    shape = shape_of(scale)
    factor = factor_of(value) if not shape or shape[-1] == 1 else None
    scales = [scale] if not is_value(scale) else factors_of(scale)
    if factor is None or scales is None:
        return None
    rows = [index(part, (..., 0)) if shape_of(part) else part for part in scales]
    return factor._replace(scales=(*factor.scales, *rows))


def require_factor(value: Any) -> Factor:
    """Return the parts of a random Cholesky factor; raise UnsupportedMoments for other values."""
    factor = factor_of(value)
    if factor is None:
        raise random_covariance(value.sites)
    check_no_shared_sites(
        "the scales and the correlations of a multivariate Normal",
        [factor.correlation, *filter(is_value, factor.scales)],
    )
    return factor
