"""Rows of a layer without correlations, as of certain inputs beside uncertain ones."""

from __future__ import annotations

from moment_calculus.functions.base import Activation
from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    namespace,
    off_diagonal_mask,
    outer,
    safe_scale,
    stop_gradient,
)

MANY_ROWS = 0.75  # share of rows with correlations above which the others are not told apart


def correlated_rows(covariance: Array) -> Array | None:
    """Return which rows of a batch have correlations; None if nearly all have them, or none has.

    Certain inputs, such as known entries of rows with gaps, leave a layer's units uncorrelated.
    """
    xp = namespace(covariance)
    fixed = stop_gradient(covariance)
    entries = xp.count_nonzero(fixed, axis=(-2, -1)) - xp.count_nonzero(diagonal(fixed), axis=-1)
    rows = entries > 0
    count = int(xp.count_nonzero(rows))
    return rows if 0 < count <= MANY_ROWS * len(rows) else None


def covariance_without_correlations(
    activation: Activation, moments: tuple[Array, Array, Array], covariance: Array
) -> Array:
    """Return covariances of rows without correlations, whose derivatives need two terms."""
    mean, variance, spread = moments
    rho = covariance * outer(1 / safe_scale(variance), 1 / safe_scale(variance))
    first, second = activation.hermite(mean, variance, 2)
    values = rho * (outer(first, first) + rho * outer(second, second))
    return namespace(mean).where(off_diagonal_mask(mean), values, spread[..., None])
