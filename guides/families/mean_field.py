"""Implement the mean-field Gaussian family: independent components with free loc and scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moment_calculus.errors import dependent_posterior, ignored_dependence
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.matrices import squared
from moment_calculus.operations.elementwise.arithmetic import add, site_value
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian
from moment_calculus.values.propagation import Propagation


def moments(loc: Array, scale: Array) -> tuple[Array, Array]:
    """Return the mean and the variance of every component."""
    return loc, squared(scale)


def sample(loc: Array, scale: Array, noise: Array) -> Array:
    """Return reparameterised draws; ``noise`` is standard normal and broadcasts with ``loc``."""
    return loc + scale * noise


def site(
    name: str,
    loc: Any,  # array or value
    scale: Any,
    propagation: Propagation,
    *,
    shape: Sequence[int],
    event_dim: int,
    broadcast_to: Callable[[Array, tuple[int, ...]], Array],  # of the framework
) -> Gaussian:
    """Return the Gaussian value of a latent site with a Normal posterior.

    A random location m is supported where it is Gaussian: x ~ N(m, s²) is m plus an
    independent N(0, s²). Raises UnsupportedMoments for other random locations, for a
    random scale, and in diagonal mode for a location that makes the components of a
    vector dependent.
    """
    if hasattr(scale, "sites"):
        raise dependent_posterior(name, "scale", scale.sites)
    centred = hasattr(loc, "sites")
    if centred and not isinstance(loc, Gaussian):
        raise dependent_posterior(name, "non-linear location", loc.sites)
    shape = tuple(shape)
    parts = moments(0.0 * scale if centred else loc, scale)
    mean, variance = (broadcast_to(part, shape) for part in parts)
    gaussian = site_value(name, mean, variance, propagation, event_dim=event_dim)
    if not centred:
        return gaussian
    value = add(broadcast(loc, shape), gaussian).gaussian()
    if not (propagation.full or value.independent) and _features(value) > 1:
        raise ignored_dependence(name, loc.sites)
    return value


def _features(value: Gaussian) -> int:
    return 1 if value.axis is None else value.shape[value.axis]
