"""Mean-field Gaussian family: independent components with free locations and scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moment_calculus.hosts.wording import dependent_posterior, ignored_dependence
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.matrices import squared
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.elementwise.arithmetic import add, leaf
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian, Value


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


def site(
    name: str,
    loc: Array | Value,
    scale: Array | Value,
    propagation: Propagation,
    *,
    shape: Sequence[int],
    event_dim: int,
    zeros_like: Callable[[Array], Array],
    broadcast_to: Callable[[Array, tuple[int, ...]], Array],
) -> Gaussian:
    """The live value of a latent site with a Normal posterior.

    It may be centred at another latent value: x ~ N(m, s²) with a random m is m plus an independent
    N(0, s²), which is exact where m is Gaussian.

    Args:
        name: the site.
        loc: location, possibly random.
        scale: standard deviation.
        propagation: how randomness flows from the site.
        shape: of the site, to which both broadcast.
        event_dim: number of trailing axes that make up one draw.
        zeros_like: the host's function of this name.
        broadcast_to: likewise.

    Raises:
        UnsupportedMoments: if the scale is random, or the location is and not Gaussian; in diagonal
            mode also if the location ties the components of a vector to each other.
    """
    if hasattr(scale, "sites"):
        raise dependent_posterior(name, "scale", scale.sites)
    centred = hasattr(loc, "sites")
    if centred and not isinstance(loc, Gaussian):
        raise dependent_posterior(name, "non-linear location", loc.sites)
    shape = tuple(shape)
    parts = moments(zeros_like(scale) if centred else loc, scale)
    mean, variance = (broadcast_to(part, shape) for part in parts)
    gaussian = leaf(name, mean, variance, propagation, event_dim=event_dim)
    if not centred:
        return gaussian
    value = add(broadcast(loc, shape), gaussian).gaussian()
    if not (propagation.full or value.independent) and _features(value) > 1:
        raise ignored_dependence(name, loc.sites)
    return value


def _features(value: Gaussian) -> int:
    return 1 if value.axis is None else value.shape[value.axis]
