"""Components of a latent site in another order: what is known of them without any Jacobian.

A slice, a gather or a reshape of a site with independent components is made of components of that
site. Two such values have a known covariance, however their batches and features were arranged:
the variance where both have the same component, zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from moment_calculus.numerics.arrays import Array, device
from moment_calculus.numerics.special import namespace
from moment_calculus.values.layout import batch_shape, features_last
from moment_calculus.values.support import overlap

if TYPE_CHECKING:
    from moment_calculus.values.gaussian import Gaussian


class Components(NamedTuple):
    """Which components of a latent site the components of a value are.

    Args:
        site: the latent site, whose components are independent.
        places: computes their numbers, integers of the value's shape.
    """

    site: Gaussian
    places: Callable[[], Array]

    @classmethod
    def of(cls, site: Gaussian) -> Components:
        """All components of a latent site, in order.

        Args:
            site: the latent site.
        """
        return cls(site, lambda: _numbers(site.mean))

    def moved(self, move: Callable[[Array], Array]) -> Components:
        """The components of a value of which the elements are put elsewhere.

        Args:
            move: puts the elements of an array elsewhere; it computes nothing from them.
        """
        return Components(self.site, lambda: move(self.places()))


def _numbers(like: Array) -> Array:
    xp, count = namespace(like), 1
    for size in like.shape:
        count *= size
    return xp.reshape(xp.arange(count, device=device(like)), tuple(like.shape))


def components_of(*values: Any) -> list[Components] | None:
    """The components of values that are all made of those of one latent site; else None.

    Args:
        values: Gaussian values.
    """
    found = [value.components for value in values]
    sites = {id(part.site) if part else None for part in found}
    return None if len(sites) > 1 or None in sites else found


def covariance_of_components(left: Gaussian, right: Gaussian) -> Array | None:
    """Exact covariance of two values that are made of components of one latent site.

    Args:
        left: a value with features d.
        right: a value with features e.

    Returns:
        ``batch + [d, e]``; None for other values, or if their batches do not broadcast.
    """
    parts = components_of(left, right)
    if parts is None or not _broadcast(left, right):
        return None
    ours, theirs = (
        features_last(part.places(), value.axis)
        for part, value in zip(parts, (left, right), strict=True)
    )
    variance = features_last(left.variance, left.axis)[..., :, None]
    return _where_same(ours[..., :, None], theirs[..., None, :], variance)


def variance_of_common(left: Gaussian, right: Gaussian) -> Array | None:
    """The same for each component of one value with the same component of the other.

    Args:
        left: a value.
        right: a value of the same shape.
    """
    parts = components_of(left, right)
    if parts is None:
        return None
    return _where_same(parts[0].places(), parts[1].places(), left.variance)


def _where_same(ours: Array, theirs: Array, variance: Array) -> Array:
    xp = namespace(variance)
    return xp.where(ours == theirs, variance, xp.zeros_like(variance))


def _broadcast(left: Gaussian, right: Gaussian) -> bool:
    ours, theirs = (batch_shape(value.shape, value.axis) for value in (left, right))
    shorter = min(len(ours), len(theirs))
    pairs = zip(ours[len(ours) - shorter :], theirs[len(theirs) - shorter :], strict=True)
    return all(1 in pair or pair[0] == pair[1] for pair in pairs)


def is_rearranged(left: Gaussian, right: Gaussian) -> bool:
    """Whether two dependent values see elements of a common site in different places.

    Then an element of the batch of one depends on another element of the batch of the other, as in
    ``z[1:] - z[:-1]``.

    Args:
        left: a value.
        right: a value aligned with it.
    """
    shared = overlap(left, right)
    return bool(shared) and len(_arrangements(left, shared) | _arrangements(right, shared)) > len(
        shared
    )


def _arrangements(value: Gaussian, sites: frozenset[str]) -> set[tuple[str, int]]:
    """For each site the values that, of all ancestors, were the last to put elements elsewhere."""
    found: set[tuple[str, int]] = set()
    waiting, seen = [value], set()
    while waiting:
        current = waiting.pop()
        if current.serial in seen:
            continue
        seen.add(current.serial)
        if not current.parents:
            found.update((site, current.serial) for site in current.sites & sites)
        for parent, jacobian in current.parents:
            if jacobian is None:
                found.update((site, current.serial) for site in parent.sites & sites)
            elif parent.sites & sites:
                waiting.append(parent)
    return found
