"""Rearranged entries of a latent site, whose covariances need no Jacobian.

A slice, a gather or a reshape of a site with independent components consists of entries
of that site. The covariance of two such values, however their batches and features are
arranged, is the variance where both have the same entry, and zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from moment_calculus.numerics.arrays import Array, device, transpose
from moment_calculus.numerics.special import namespace
from moment_calculus.values.layout import batch_shape, broadcasts, features_last


class Entries(NamedTuple):
    """The entries of a latent site that are the components of a value."""

    site: Any  # a latent site with independent components
    indices: Callable[[], Array]  # computes the index of every entry, in the shape of the value

    @classmethod
    def of(cls, site: Any) -> Entries:
        """Return all entries of a latent site, in order."""
        return cls(site, lambda: _entry_indices(site.mean))

    def moved(self, move: Callable[[Array], Array]) -> Entries:
        """Return the entries after ``move``, which only rearranges the elements of an array."""
        return Entries(self.site, lambda: move(self.indices()))

    def covariance(self, variance: Array) -> Array:
        """Return the covariance along the trailing axis, given the variance of each component."""
        indices = self.indices()
        return _where_same(indices[..., :, None], indices[..., None, :], variance[..., :, None])


def _entry_indices(like: Array) -> Array:
    xp, count = namespace(like), 1
    for size in like.shape:
        count *= size
    return xp.reshape(xp.arange(count, device=device(like)), tuple(like.shape))


def entries_of(value: Any) -> Entries | None:
    """Return the entries of a latent site that are the components of a value, or None."""
    return value.step.entries(value)


def _of_one_site(*values: Any) -> list[Entries] | None:
    """Return the entries of values that are all entries of the same latent site; else None."""
    entries = [entries_of(value) for value in values]
    sites = {id(part.site) if part else None for part in entries}
    return None if len(sites) > 1 or None in sites else entries  # type: ignore[return-value]


def covariance_of_entries(left: Any, right: Any) -> Array | None:
    """Return Cov(left, right), ``batch + [d, e]``, if both are entries of one site; else None."""
    parts = _of_one_site(left, right)
    if parts is None or not _broadcast(left, right):
        return None
    ours, theirs = (
        features_last(part.indices(), value.axis)
        for part, value in zip(parts, (left, right), strict=True)
    )
    variance = features_last(left.variance, left.axis)[..., :, None]
    return _where_same(ours[..., :, None], theirs[..., None, :], variance)


def elementwise_covariance_of_entries(left: Any, right: Any) -> Array | None:
    """Return the covariance of equal components, if both values are entries of one site."""
    parts = _of_one_site(left, right)
    if parts is None:
        return None
    return _where_same(parts[0].indices(), parts[1].indices(), left.variance)


def _where_same(ours: Array, theirs: Array, variance: Array) -> Array:
    xp = namespace(variance)
    return xp.where(ours == theirs, variance, xp.zeros_like(variance))


def _broadcast(left: Any, right: Any) -> bool:
    return broadcasts(*(batch_shape(value.shape, value.axis) for value in (left, right)))


def covariance_by_older(value: Any, other: Any, query: Any) -> Array | None:
    """Return Cov(value, other) of entries by the inputs of the older value, else NotImplemented."""
    swapped = None if entries_of(value) is None else query.by_inputs(other, value)
    return NotImplemented if swapped is None else transpose(swapped)
