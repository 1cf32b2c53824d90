"""Means of powers of densities of Gaussian vectors: dependent Normal observations together."""

from __future__ import annotations

from typing import Any

from moment_calculus.likelihoods.drivers import is_function
from moment_calculus.likelihoods.expectations import check_certain
from moment_calculus.likelihoods.multivariate import moments_of_features
from moment_calculus.likelihoods.normal import LOG_2PI
from moment_calculus.numerics.arrays import Array, diagonal, identity_like
from moment_calculus.numerics.special import double, in_precision_of, namespace, stop_gradient
from moment_calculus.operations.elementwise.arithmetic import subtract
from moment_calculus.refusals.errors import UnsupportedMoments


def log_mean_power(residual: Array, covariance: Array, scale: Any, weights: Any) -> Array:
    """log E[Π_i N(r_i; 0, s_i²)^{w_i}] of a Gaussian vector r, exact.

    With d_i = √w_i / s_i and B = I + D C D: −½ (|B^{-1/2} D m|² + log |B| + Σ w_i log 2πs_i²). For
    equal weights a it is log N(y; m, C + S/a) + ½ (1 − a) log |2πS| − ½ d log a. Relatively
    accurate for small weights, where log |B| comes from what Cholesky's pivots exceed one by; in
    double precision where there is any.

    Args:
        residual: m, the mean of r, [..., d]; what has no weight does not count, and may be NaN.
        covariance: C of r, [..., d, d].
        scale: s, certain standard deviations, broadcastable to [..., d].
        weights: w ≥ 0, likewise.

    Returns:
        Array [...].

    Source: the moment generating function of a quadratic form of a Gaussian.
    """
    xp, plain = namespace(residual), residual
    residual, covariance = double(residual), double(covariance)
    zero = xp.zeros_like(residual)
    weights, scale = weights + zero, scale + zero
    counted = weights > 0
    root = xp.where(counted, xp.where(counted, weights, 1 + zero) ** 0.5 / scale, zero)
    deviation = root * xp.where(counted, residual, zero)
    inner = root[..., :, None] * covariance * root[..., None, :]
    step = float(xp.finfo(plain.dtype).eps)  # to which the covariance is known
    squared, log_determinant = _against_identity(inner, deviation, step)
    constants = xp.sum(weights * (LOG_2PI + 2 * xp.log(scale)), axis=-1)
    return in_precision_of(-0.5 * (squared + log_determinant + constants), plain)


def _against_identity(matrix: Array, vector: Array, step: float) -> tuple[Array, Array]:
    """xᵀ (I + A)⁻¹ x and log |I + A| of A that is positive semi-definite but for rounding."""
    xp, size = namespace(matrix), matrix.shape[-1]
    identity = identity_like(vector)
    # rounding of large A may exceed the identity: only then the diagonal is lifted
    rounding = size * step * xp.max(diagonal(matrix), axis=-1)
    lift = stop_gradient(xp.clip(rounding - 0.5, min=0.0))[..., None, None]
    matrix = matrix + lift * identity
    root = xp.linalg.cholesky(identity + matrix)
    solved = xp.linalg.solve(root, vector[..., None])[..., 0]
    below = root * (1 - identity)
    excess = diagonal(matrix) - xp.sum(below * below, axis=-1)  # of the squared pivots over one
    excess = xp.where(excess < 0, xp.zeros_like(excess), excess)
    return xp.sum(solved * solved, axis=-1), xp.sum(xp.log1p(excess), axis=-1)


def tempered_multivariate_normal(power: Any, value: Any, loc: Any, scale_tril: Array) -> Array:
    """(1/a) log E[N(value; loc, L Lᵀ)ᵃ] for a location and a value that may be random: exact.

    Args:
        power: a, positive number or array of the batch shape.
        value: observation [..., d], array or value with its covariance over the trailing axis.
        loc: location, likewise; one of the two is random.
        scale_tril: L, lower triangular [..., d, d], certain.

    Returns:
        Array of the batch shape.

    Raises:
        UnsupportedMoments: if L is random, the residual is no Gaussian, or its covariance is over
            another axis.

    Source: :func:`log_mean_power` of the whitened residual.
    """
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
    return log_mean_power(whitened, within, 1.0, weights) / power - log_scale


def check_gaussian(location: Any, family: str) -> None:
    """Refuse a location that is a function of a Gaussian: powers see more of it than two moments.

    Args:
        location: value.
        family: what has it, as users call it.

    Raises:
        UnsupportedMoments: if it is none.
    """
    if is_function(location):
        raise UnsupportedMoments(
            f"the location of {family} is a function of a Gaussian: the mean of a power of the "
            "density of dependent components is known of Gaussian ones",
            sites=location.sites,
            remedy="end the network with a linear map, or use propagation='sampled'",
        )
