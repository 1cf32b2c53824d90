"""The multivariate Normal likelihood with certain covariance."""

from __future__ import annotations

from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods.expectations import check_certain
from moment_calculus.likelihoods.normal import LOG_2PI
from moment_calculus.numerics.arrays import Array, diagonal, diagonal_matrix
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.elementwise.arithmetic import is_value, subtract


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
    """Return predictive mean, epistemic and aleatoric variance, covariance [..., d, d]."""
    check_certain(scale_tril=scale_tril)
    noise = scale_tril @ scale_tril.mT
    zero = namespace(scale_tril).zeros_like(noise)
    mean, covariance = moments_of_features(loc) if is_value(loc) else (loc, zero)
    spread = 0 * mean
    return mean, diagonal(covariance) + spread, diagonal(noise) + spread, noise + covariance


def moments_of_features(value: Any) -> tuple[Array, Array]:
    """Return mean [..., d] and covariance [..., d, d] of a value over its trailing axis."""
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
