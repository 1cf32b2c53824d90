"""Densities of vectors: multivariate Normals, also with a random correlation matrix; simplexes.

A random Cholesky factor is S = diag(s) L with the L of an LKJ prior, whose coordinates x
are independent in the posterior of a mean-field guide. Forward substitution in S w = r is a chain
of rotations u_i ← cosh(x_ij) u_i − sinh(x_ij) w_j of u = r / s, so that E |w|² is exact: each step
changes the second moments of all u and w by those of cosh and sinh of one Gaussian. Where x, s
and r depend on each other, ``operations/linear/rotations`` has the same expectation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods.expectations import check_certain, expected_value
from moment_calculus.likelihoods.links import expected_log, log
from moment_calculus.likelihoods.location_scale import LOG_2PI, normal
from moment_calculus.numerics.arrays import (
    Array,
    cast_clipped,
    constants,
    diagonal,
    diagonal_matrix,
    gammaln,
    identity_like,
    namespace,
    outer,
    stop_gradient,
    to_float64,
)
from moment_calculus.operations.elementwise.drivers import is_not_gaussian
from moment_calculus.operations.elementwise.elementary import power
from moment_calculus.operations.elementwise.sums import subtract
from moment_calculus.operations.elementwise.unary import is_value, shape_of
from moment_calculus.operations.linear.correlations import moments_of_scale, require_factor
from moment_calculus.operations.linear.factorisation import (
    CORRELATION,
    log_slope_of_square,
    scaled_matrix,
)
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.rotations import expected_squared_length
from moment_calculus.operations.shapes.coordinates import (
    Support,
    image_of,
    is_of_independent,
    on_support,
)
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.ordered import ORDERED
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.operations.shapes.sticks import (
    CORRELATION_FACTOR,
    SIMPLEX,
    expected_log_diagonal,
    expected_log_simplex,
)
from moment_calculus.values import Gaussian, share_sites


def multivariate_normal(value: Any, loc: Any, scale_tril: Any) -> Array:
    """Return E[log N(value; loc, S Sᵀ)], [...], for a factor S [..., d, d]: exact.

    It is −½ (d log 2π + E |S⁻¹ r|²) − E log |S| of the residual r. S is certain, a random
    number times a certain matrix, or diag(s) L of a latent L with an LKJ prior and scales s; s, L
    and r may depend on the same sites where s is an exponential and L has up to four rows.
    """
    residual = subtract(value, loc) if is_value(value) or is_value(loc) else value - loc
    if (scaled := scaled_matrix(scale_tril)) is not None:
        return _by_amplitude(residual, *scaled)
    if is_value(scale_tril):
        distance, log_scale = _distance_by_random_factor(residual, scale_tril)
    else:
        distance, log_scale = _distance_by_factor(residual, scale_tril)
    return -0.5 * (scale_tril.shape[-1] * LOG_2PI + distance) - log_scale


def _by_amplitude(residual: Any, amplitude: Any, factor: Array) -> Array:
    """Return E[log N(r; 0, a² L Lᵀ)] of a random a: that of independent L⁻¹ r, less log |L|."""
    xp = namespace(factor)
    inverse = xp.linalg.solve(factor, identity_like(factor[..., 0]))
    whitened = linear(residual, inverse) if is_value(residual) else residual @ inverse.mT
    terms = normal(whitened, 0.0, amplitude)
    return xp.sum(terms, axis=-1) - xp.sum(xp.log(diagonal(factor)), axis=-1)


def _distance_by_factor(residual: Any, scale_tril: Array) -> tuple[Array, Array]:
    """Return E |S⁻¹ r|² and log |S| of a certain S."""
    xp = namespace(scale_tril)
    mean: Any = residual
    trace: Any = 0.0
    if is_value(residual):
        mean, trace = _trace(residual, scale_tril)
    whitened = xp.linalg.solve(scale_tril, mean[..., None])[..., 0]
    distance = xp.sum(whitened * whitened, axis=-1)
    return distance + trace, xp.sum(xp.log(diagonal(scale_tril)), axis=-1)


def _distance_by_random_factor(residual: Any, scale_tril: Any) -> tuple[Array, Array]:
    """Return E |S⁻¹ r|² and E log |S| of a random S."""
    factor = require_factor(scale_tril)
    size = scale_tril.shape[-1]
    log_scale = namespace(factor.coordinates.mean).sum(
        expected_log_diagonal(factor.coordinates), axis=-1
    )
    log_scale = log_scale + sum(_sum_of_logs(scale, size) for scale in factor.scales)
    random = [part for part in (residual, *factor.scales, factor.correlation) if is_value(part)]
    if share_sites(*random) or not is_of_independent(factor.coordinates):
        return expected_squared_length(residual, factor), log_scale
    if is_value(residual):
        mean, covariance = moments_of_features(residual)
        second = covariance + outer(mean, mean)
    else:
        second = outer(residual, residual)
    for scale in factor.scales:
        inverse = power(scale, -1.0) if is_value(scale) else 1 / scale
        inverse_mean, spread = moments_of_scale(inverse, factor.correlation.mean[..., 0])
        second = second * (spread + outer(inverse_mean, inverse_mean))
    return _distance(second, factor.coordinates), log_scale


def _sum_of_logs(scale: Any, size: int) -> Any:
    """Return the expected sum of the logarithms of the scales of all rows."""
    logs = expected_value(log(scale))
    shape = shape_of(logs)
    if not shape or shape[-1] == 1:
        return size * (logs[..., 0] if shape else logs)
    return namespace(logs).sum(logs, axis=-1)


def _distance(second: Array, coordinates: Gaussian) -> Array:
    """Return E |L⁻¹ u|² from E[u uᵀ] by the chain of rotations."""
    xp, size = namespace(second), second.shape[-1]
    mean, variance = coordinates.mean, coordinates.variance
    growth = xp.exp(variance / 2)
    cosh, sinh = growth * xp.cosh(mean), growth * xp.sinh(mean)
    double = xp.exp(2 * variance)
    sinh_squared = double * xp.sinh(mean) ** 2 + xp.expm1(2 * variance) / 2
    mixed = double * xp.sinh(2 * mean) / 2  # E sinh x cosh x
    moments = [[second[..., i, j] for j in range(size)] for i in range(size)]
    entries = zip(*np.tril_indices(size, -1), strict=True)
    for entry, (i, j) in enumerate(entries):
        row, other = moments[i], moments[j]
        fresh = [
            cosh[..., entry] * a - sinh[..., entry] * b for a, b in zip(row, other, strict=True)
        ]
        grown = row[i] + sinh_squared[..., entry] * (row[i] + other[j])
        fresh[i] = grown - 2 * mixed[..., entry] * row[j]
        moments[i] = fresh
        for k in range(size):
            moments[k][i] = fresh[k]
    return sum(moments[i][i] for i in range(size))


def noise_covariance(scale_tril: Any) -> Array:
    """Return E[S Sᵀ], [..., d, d], of a certain or a random Cholesky factor S."""
    if not is_value(scale_tril):
        return scale_tril @ scale_tril.mT
    if (scaled := scaled_matrix(scale_tril)) is not None:
        amplitude, matrix = scaled
        return power(amplitude, 2.0).gaussian().mean * (matrix @ matrix.mT)
    return require_factor(scale_tril).noise_covariance


def multivariate_normal_predictive(loc: Any, scale_tril: Any) -> tuple[Array, Array, Array, Array]:
    """Return the mean, epistemic and aleatoric variance, covariance [..., d, d]: exact.

    With a random factor the predictive distribution is no Gaussian. The log density of a
    Gaussian with this covariance was off by at most 0.16 for a row and −0.015 in the mean
    where scales and correlation were known to a quarter, by 0.08 and −0.0005 where to an
    eighth (two wages equations, 8 and 30 rows, 20 000 draws).
    """
    noise = noise_covariance(scale_tril)
    mean, covariance = moments_of_features(loc) if is_value(loc) else (loc, 0 * noise)
    spread = 0 * mean
    return mean, diagonal(covariance) + spread, diagonal(noise) + spread, noise + covariance


# ---------------------------------------------------------------------------------------------
# Priors of correlations and simplexes


def lkj_cholesky(value: Any, concentration: Any) -> Array:
    """Return E[log LKJCholesky(value; concentration)], [...]: exact (Lewandowski et al. 2009)."""
    check_certain(concentration=concentration)
    logs = expected_log_diagonal(_coordinates(value, CORRELATION_FACTOR, "a Cholesky factor"))
    xp, size = namespace(logs), logs.shape[-1]
    concentration = concentration + 0 * logs[..., 0]
    weights = constants(np.arange(size, 0, -1) - 3.0, logs) + 2 * concentration[..., None]
    power = concentration + (size - 1) / 2
    halves = constants(np.arange(1, size) / 2, logs)
    constant = xp.sum(gammaln(power[..., None] - halves), axis=-1) - (size - 1) * gammaln(power)
    constant = constant + size * (size - 1) / 4 * math.log(math.pi)
    return xp.sum((weights * logs)[..., 1:], axis=-1) - constant


def log_prob_of_image(
    value: Any, base_log_prob: Callable[[Gaussian], Array], *, is_lkj: bool, is_ordered: bool
) -> Array | None:
    """Return E[log p], [...], of an image of coordinates by that of what it is made from.

    None of other values than a correlation matrix of an LKJ, by its Cholesky factor, and
    an ordered vector of a distribution that is one ordered transform of another.
    """
    image = image_of(value)
    if image is None:
        return None
    if is_lkj and image.support is CORRELATION:
        factor = on_support(CORRELATION_FACTOR, image.coordinates)
        return base_log_prob(factor) - log_slope_of_square(image.coordinates)
    if is_ordered and image.support is ORDERED:
        return base_log_prob(image.coordinates) - image.expected_log_slope
    return None


def dirichlet(value: Any, concentration: Any) -> Array:
    """Return E[log Dirichlet(value; concentration)], [...]: exact."""
    check_certain(concentration=concentration)
    logs = expected_log_simplex(_coordinates(value, SIMPLEX, "a simplex"))
    xp = namespace(logs)
    constant = gammaln(xp.sum(concentration, axis=-1)) - xp.sum(gammaln(concentration), axis=-1)
    return xp.sum((concentration - 1) * logs, axis=-1) + constant


def random_walk(value: Any, scale: Any) -> Array:
    """Return E[log GaussianRandomWalk(value; scale)], [...]: its steps are Normal."""
    first, later, before = (
        index(value, (..., slice(*ends))) for ends in ((0, 1), (1, None), (0, -1))
    )
    scale = _before_events(scale, 1)
    parts = normal(first, 0.0, scale), normal(later, before, scale)
    xp = namespace(parts[0])
    return sum(xp.sum(part, axis=-1) for part in parts)


def _before_events(scale: Any, rank: int) -> Any:
    shape = shape_of(scale)
    return reshape(scale, (*shape, *(1,) * rank)) if shape else scale


def zero_sum_normal(value: Any, scale: Any, event_shape: tuple[int, ...]) -> Array:
    """Return E[log ZeroSumNormal(value; scale)], [...]: a Normal of its free coordinates."""
    # The elements have the sum of squares of the coordinates, but are more.
    rank = len(event_shape)
    terms = normal(value, 0.0, _before_events(scale, rank))
    fixed = math.prod(event_shape) - math.prod(size - 1 for size in event_shape)
    of_fixed = fixed * (expected_log(scale) + LOG_2PI / 2)
    return namespace(terms).sum(terms, axis=tuple(range(-rank, 0))) + of_fixed


def _coordinates(value: Any, support: Support, what: str) -> Gaussian:
    image = image_of(value)
    if image is None or image.support is not support:
        raise UnsupportedMoments(
            f"the logarithms of {what} that is no latent site of a mean-field guide",
            sites=getattr(value, "sites", ()),
            remedy="sample it as a site of its own, use DVIGuide" + OR_DRAW,
        )
    return image.coordinates


# ---------------------------------------------------------------------------------------------
# Moments of a residual, and means of powers


def moments_of_features(value: Any) -> tuple[Array, Array]:
    """Return mean [..., d] and covariance [..., d, d] of the trailing axis."""
    matched = value.gaussian()
    if matched.axis == -1:
        return matched.mean, matched.joint_covariance()
    if not matched.independent:
        raise UnsupportedMoments(
            "the components of a multivariate Normal are not on the feature axis of its location",
            sites=matched.sites,
            remedy="apply the last linear map to inputs whose trailing axis is contracted"
            + OR_DRAW,
        )
    return matched.mean, diagonal_matrix(matched.variance)


def _trace(residual: Any, scale_tril: Array) -> tuple[Array, Array]:
    """Return the mean of the residual and tr(Σ⁻¹ C)."""
    mean, covariance = moments_of_features(residual)
    xp = namespace(scale_tril)
    root = xp.linalg.inv(scale_tril)
    return mean, xp.sum((root @ covariance) * root, axis=(-2, -1))


def log_mean_of_normal_powers(
    residual: Array, covariance: Array, scale: Any, weights: Any
) -> Array:
    """Return log E[Π_i N(r_i; 0, s_i²)^{w_i}], [...], of a Gaussian vector r [..., d]: exact.

    With d_i = √w_i / s_i, B = I + D C D it is −½ (|B^{-1/2} D m|² + log |B| + Σ w_i log
    2πs_i²), by the moment generating function of a quadratic form. m and C are moments of
    r; equal weights a give log N(y; m, C + S/a) + ½ (1 − a) log |2πS| − ½ d log a.
    """
    xp, plain = namespace(residual), residual
    residual, covariance = to_float64(residual), to_float64(covariance)
    zero = xp.zeros_like(residual)
    weights, scale = weights + zero, scale + zero
    counted = weights > 0  # elsewhere the residual may be NaN
    root = xp.where(counted, xp.where(counted, weights, 1 + zero) ** 0.5 / scale, zero)
    deviation = root * xp.where(counted, residual, zero)
    inner = root[..., :, None] * covariance * root[..., None, :]
    step = float(xp.finfo(plain.dtype).eps)  # relative precision of the covariance
    squared, log_determinant = _against_identity(inner, deviation, step)
    constants = xp.sum(weights * (LOG_2PI + 2 * xp.log(scale)), axis=-1)
    return cast_clipped(-0.5 * (squared + log_determinant + constants), plain)


def _against_identity(matrix: Array, vector: Array, step: float) -> tuple[Array, Array]:
    """Return xᵀ (I + A)⁻¹ x and log |I + A| of a positive semi-definite A."""
    xp, size = namespace(matrix), matrix.shape[-1]
    identity = identity_like(vector)
    # Rounding of large A may exceed the identity; only then the diagonal is lifted.
    rounding = size * step * xp.max(diagonal(matrix), axis=-1)
    lift = stop_gradient(xp.clip(rounding - 0.5, min=0.0))[..., None, None]
    matrix = matrix + lift * identity
    root = xp.linalg.cholesky(identity + matrix)
    solved = xp.linalg.solve(root, vector[..., None])[..., 0]
    below = root * (1 - identity)
    # How much the squared pivots exceed one: relatively accurate for small A.
    excess = diagonal(matrix) - xp.sum(below * below, axis=-1)
    excess = xp.where(excess < 0, xp.zeros_like(excess), excess)
    return xp.sum(solved * solved, axis=-1), xp.sum(xp.log1p(excess), axis=-1)


def tempered_multivariate_normal(power: Any, value: Any, loc: Any, scale_tril: Array) -> Array:
    """Return (1/a) log E[N(value; loc, L Lᵀ)ᵃ], [...], of certain L: exact."""
    check_certain(scale_tril=scale_tril)
    residual = subtract(value, loc)
    check_gaussian(residual, "a multivariate Normal")
    mean, covariance = moments_of_features(residual)
    xp = namespace(scale_tril)
    whitened = xp.linalg.solve(scale_tril, mean[..., None])[..., 0]
    half = xp.linalg.solve(scale_tril, covariance)
    within = xp.linalg.solve(scale_tril, half.mT)
    weights = power[..., None] if hasattr(power, "shape") else power
    log_scale = xp.sum(xp.log(diagonal(scale_tril)), axis=-1)
    return log_mean_of_normal_powers(whitened, within, 1.0, weights) / power - log_scale


def check_gaussian(location: Any, family: str) -> None:
    """Raise UnsupportedMoments if a location is a function of a Gaussian."""
    # The mean of a power depends on more than the first two moments of a location.
    if is_not_gaussian(location):
        raise UnsupportedMoments(
            f"the location of {family} is a function of a Gaussian: the mean of a power of the "
            "density of dependent components is known of Gaussian ones",
            sites=location.sites,
            remedy="end the network with a linear map, or use propagation='sampled'",
        )
