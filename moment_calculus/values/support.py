"""Which elements of latent sites a value depends on; different elements are independent.

The names of sites alone would make ``w[0]`` depend on ``w[1]``, and layers whose weights
are stacked in one site would be impossible. Elements are counted along the leading axis
of the site; a set of them is a bit mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from numbers import Integral
from typing import Any

Support = Mapping[str, int]
"""The latent sites on which a value depends, each with a bit mask of its elements."""

ALL = -1
NONE: Support = {}


def all_elements(sites: Iterable[str]) -> Support:
    """Return the support of all elements of some sites."""
    return dict.fromkeys(sites, ALL)


def overlap(left: Any, right: Any) -> frozenset[str]:
    """Return the latent sites through which two values may depend on each other."""
    ours, theirs = left.support, right.support
    return frozenset(site for site, mask in ours.items() if mask & theirs.get(site, 0))


def share_sites(*values: Any) -> frozenset[str]:
    """Return the latent sites on which at least two of the values depend."""
    return frozenset().union(*(overlap(*pair) for pair in combinations(values, 2)))


def union(values: Iterable[Any]) -> Support:
    """Return the support of a value that is computed from other values."""
    parts = [value.support for value in values]
    if not parts or all(part is parts[0] for part in parts):
        return parts[0] if parts else NONE
    masks: dict[str, int] = {}
    for part in parts:
        for site, mask in part.items():
            masks[site] = masks.get(site, 0) | mask
    return masks


def support_of_index(value: Any, key: Any) -> Support | None:
    """Return the support that an integer or slice of the leading axis leaves; None if unknown."""
    source = value.origin
    if source.step.inputs or not source.independent or source.shape != value.shape:
        return None
    size = value.shape[0]
    if isinstance(key, Integral):
        chosen: Iterable[int] = (int(key) % size,)
    elif isinstance(key, slice) and key != slice(None):
        chosen = range(*key.indices(size))
    else:
        return None
    return dict.fromkeys(source.sites, _mask(chosen))


def _mask(places: Iterable[int]) -> int:
    if isinstance(places, range) and abs(places.step) == 1 and places:
        return ((1 << len(places)) - 1) << min(places[0], places[-1])
    return sum(1 << place for place in places)
