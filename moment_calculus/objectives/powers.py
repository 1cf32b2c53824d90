"""Means of powers on the logarithmic scale."""

from __future__ import annotations

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace, stop_gradient

_NEAR = 1.0  # below which powers are taken about their mean


def log_mean_power(values: Array, alpha: float, axis: int = 0) -> Array:
    """(1/α) log of the mean of exp(α x), to full precision for α → 0, where it is the mean of x.

    Args:
        values: x, logarithms.
        alpha: the power α, not negative.
        axis: over which the mean is taken.
    """
    xp = namespace(values)
    if alpha == 0:
        return xp.mean(values, axis=axis)
    centre = stop_gradient(_centre(values, axis))  # its gradient would cancel
    apart = alpha * (values - centre)
    # Under jax.jit a maximum may equal none of its operands, which are computed anew for the
    # gradient, and share it among none.
    largest = stop_gradient(xp.max(apart, axis=axis, keepdims=True))
    near = largest < _NEAR
    small = xp.log1p(xp.mean(xp.expm1(xp.where(near, apart, 0.0)), axis=axis, keepdims=True))
    large = largest + xp.log(xp.mean(xp.exp(apart - largest), axis=axis, keepdims=True))
    return xp.squeeze(centre + xp.where(near, small, large) / alpha, axis)


def energy(data: Array, latent: Array, scale: Array, alpha: float) -> Array:
    """The black-box α energy of particles; for α = 0 the negative ELBO.

    Args:
        data: log-densities of the data, [particles, ...].
        latent: what the latent sites contribute, [particles].
        scale: how many data each stands for, [particles].
        alpha: the power.
    """
    xp = namespace(data)
    return -xp.sum(log_mean_power(data, alpha)) * scale[0] - xp.mean(latent)


def _centre(values: Array, axis: int) -> Array:
    """The mean; the maximum where that is infinite, as of densities that vanish."""
    xp = namespace(values)
    mean, most = (part(values, axis=axis, keepdims=True) for part in (xp.mean, xp.max))
    finite = xp.where(xp.isfinite(most), most, 0.0)
    return xp.where(xp.isfinite(mean), mean, finite)
