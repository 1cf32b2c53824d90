"""Mean-field Gaussian family: independent components with free locations and scales."""

from __future__ import annotations

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.matrices import squared


def moments(loc: Array, scale: Array) -> tuple[Array, Array]:
    """Mean and variance of every component.

    Args:
        loc: locations.
        scale: standard deviations, positive.
    """
    return loc, squared(scale)


def sample(loc: Array, scale: Array, noise: Array) -> Array:
    """Reparameterised sample.

    Args:
        loc: locations.
        scale: standard deviations, positive.
        noise: standard normal, broadcastable with ``loc`` from the right.
    """
    return loc + scale * noise
