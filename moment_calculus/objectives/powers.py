"""Power means on the logarithmic scale, and the black-box α energy made of them."""

from __future__ import annotations

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace, stop_gradient

_NEAR = 1.0  # below this exponent expm1 and log1p keep full precision, also for α → 0


def log_mean_power(values: Array, alpha: float, axis: int = 0) -> Array:
    """Return (1/α) log of the mean of exp(α x) over an axis; for α = 0 the mean of x."""
    xp = namespace(values)
    if alpha == 0:
        return xp.mean(values, axis=axis)
    centre = stop_gradient(_centre(values, axis))  # the two parts of its gradient would cancel
    deviation = alpha * (values - centre)
    # Under jax.jit the operands are computed again for the gradient. The maximum may then
    # equal none of them, and its gradient would reach none.
    largest = stop_gradient(xp.max(deviation, axis=axis, keepdims=True))
    near = largest < _NEAR
    small = xp.log1p(xp.mean(xp.expm1(xp.where(near, deviation, 0.0)), axis=axis, keepdims=True))
    large = largest + xp.log(xp.mean(xp.exp(deviation - largest), axis=axis, keepdims=True))
    return xp.squeeze(centre + xp.where(near, small, large) / alpha, axis)


def bb_alpha_energy(data: Array, latent: Array, scale: Array, alpha: float) -> Array:
    """Return the black-box α energy of particles; for α = 0 the negative ELBO."""
    xp = namespace(data)
    # Log-densities of the data [particles, ...], contributions of the latent sites
    # [particles], and the number of data that each datum stands for.
    return -xp.sum(log_mean_power(data, alpha)) * scale[0] - xp.mean(latent)


def _centre(values: Array, axis: int) -> Array:
    """Return the mean; the maximum where the mean is infinite, as of densities that vanish."""
    xp = namespace(values)
    mean, most = (part(values, axis=axis, keepdims=True) for part in (xp.mean, xp.max))
    finite = xp.where(xp.isfinite(most), most, 0.0)
    return xp.where(xp.isfinite(mean), mean, finite)
