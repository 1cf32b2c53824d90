"""Entries of a latent site in another order: what is known of them without any Jacobian.

A slice, a gather or a reshape of a site with independent components is made of entries of that
site. Two such values have a known covariance, however their batches and features were arranged:
the variance where both have the same entry, zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from moment_calculus.numerics.arrays import Array, device, transpose
from moment_calculus.numerics.special import namespace
from moment_calculus.values.layout import batch_shape, broadcasts, features_last


class Entries(NamedTuple):
    """Which entries of a latent site the components of a value are.

    Args:
        site: the latent site, whose components are independent.
        numbers: computes their numbers, integers of the value's shape.
    """

    site: Any
    numbers: Callable[[], Array]

    @classmethod
    def of(cls, site: Any) -> Entries:
        """All entries of a latent site, in order.

        Args:
            site: the Gaussian.
        """
        return cls(site, lambda: _numbers(site.mean))

    def moved(self, move: Callable[[Array], Array]) -> Entries:
        """The entries of a value of which the elements are put elsewhere.

        Args:
            move: puts the elements of an array elsewhere; it computes nothing from them.
        """
        return Entries(self.site, lambda: move(self.numbers()))

    def covariance(self, variance: Array) -> Array:
        """Covariance along the trailing axis.

        Args:
            variance: of each component.
        """
        numbers = self.numbers()
        return _where_same(numbers[..., :, None], numbers[..., None, :], variance[..., :, None])


def _numbers(like: Array) -> Array:
    xp, count = namespace(like), 1
    for size in like.shape:
        count *= size
    return xp.reshape(xp.arange(count, device=device(like)), tuple(like.shape))


def entries_of(value: Any) -> Entries | None:
    """Which entries of a latent site the components of a value are; None if they are none.

    Args:
        value: Gaussian.
    """
    return value.step.entries(value)


def _of_one_site(*values: Any) -> list[Entries] | None:
    """The entries of values that are all made of those of one latent site; else None."""
    found = [entries_of(value) for value in values]
    sites = {id(part.site) if part else None for part in found}
    return None if len(sites) > 1 or None in sites else found  # type: ignore[return-value]


def covariance_of_entries(left: Any, right: Any) -> Array | None:
    """Exact covariance of two values that are made of entries of one latent site.

    Args:
        left: a value with features d.
        right: a value with features e.

    Returns:
        ``batch + [d, e]``; None for other values, or if their batches do not broadcast.
    """
    parts = _of_one_site(left, right)
    if parts is None or not _broadcast(left, right):
        return None
    ours, theirs = (
        features_last(part.numbers(), value.axis)
        for part, value in zip(parts, (left, right), strict=True)
    )
    variance = features_last(left.variance, left.axis)[..., :, None]
    return _where_same(ours[..., :, None], theirs[..., None, :], variance)


def variance_of_common(left: Any, right: Any) -> Array | None:
    """The same for each component of one value with the same component of the other.

    Args:
        left: a value.
        right: a value of the same shape.
    """
    parts = _of_one_site(left, right)
    if parts is None:
        return None
    return _where_same(parts[0].numbers(), parts[1].numbers(), left.variance)


def _where_same(ours: Array, theirs: Array, variance: Array) -> Array:
    xp = namespace(variance)
    return xp.where(ours == theirs, variance, xp.zeros_like(variance))


def _broadcast(left: Any, right: Any) -> bool:
    return broadcasts(*(batch_shape(value.shape, value.axis) for value in (left, right)))


def by_older(value: Any, other: Any, query: Any) -> Array | None:
    """Covariance of a value made of entries of a site with an older one, by the older's inputs.

    Args:
        value: a value.
        other: an older value.
        query: answers for pairs of values.

    Returns:
        NotImplemented: if it is made of no entries, or nothing is known.
    """
    swapped = None if entries_of(value) is None else query.by_inputs(other, value)
    return NotImplemented if swapped is None else transpose(swapped)
