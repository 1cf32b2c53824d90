"""The multivariate Normal likelihood, and powers of Gaussian vectors."""

from __future__ import annotations

from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods.expectations import check_certain, is_not_gaussian
from moment_calculus.likelihoods.location_scale import LOG_2PI
from moment_calculus.numerics.arrays import Array, diagonal, diagonal_matrix, identity_like
from moment_calculus.numerics.special import cast_clipped, namespace, stop_gradient, to_float64
from moment_calculus.operations.elementwise.sums import subtract
from moment_calculus.operations.elementwise.unary import is_value


def multivariate_normal(value: Any, loc: Any, scale_tril: Array) -> Array:
    """Return E[log N(value; loc, L Lᵀ)], [...], for a certain L [..., d, d]: exact.

    It is −½ (d log 2π + log |Σ| + rᵀ Σ⁻¹ r + tr(Σ⁻¹ C)), r and C moments of the residual.
    """
    check_certain(scale_tril=scale_tril)
    xp = namespace(scale_tril)
    residual = subtract(value, loc) if is_value(value) or is_value(loc) else value - loc
    log_scale = xp.sum(xp.log(diagonal(scale_tril)), axis=-1)
    size = scale_tril.shape[-1]
    mean: Any = residual
    trace: Any = 0.0
    if is_value(residual):
        mean, trace = _trace(residual, scale_tril)
    whitened = xp.linalg.solve(scale_tril, mean[..., None])[..., 0]
    distance = xp.sum(whitened * whitened, axis=-1)
    return -0.5 * (size * LOG_2PI + distance + trace) - log_scale


def multivariate_normal_predictive(
    loc: Any, scale_tril: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the mean, epistemic and aleatoric variance, covariance [..., d, d]."""
    check_certain(scale_tril=scale_tril)
    noise = scale_tril @ scale_tril.mT
    zero = namespace(scale_tril).zeros_like(noise)
    mean, covariance = moments_of_features(loc) if is_value(loc) else (loc, zero)
    spread = 0 * mean
    return mean, diagonal(covariance) + spread, diagonal(noise) + spread, noise + covariance


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
