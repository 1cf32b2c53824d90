"""Different elements of a latent site are independent: which of them a value depends on.

Sites alone would tie ``w[0]`` to ``w[1]``, so that no layer could be computed with weights that
are stacked in one site. Elements are counted along the leading axis of the site; a set of them is
a bit mask.
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


def whole(sites: Iterable[str]) -> Support:
    """All elements of some sites.

    Args:
        sites: their names.
    """
    return dict.fromkeys(sites, ALL)


def overlap(left: Any, right: Any) -> frozenset[str]:
    """Latent sites through which two values depend on each other, or may.

    Args:
        left: a value.
        right: a value.
    """
    ours, theirs = left.support, right.support
    return frozenset(site for site, mask in ours.items() if mask & theirs.get(site, 0))


def share_sites(*values: Any) -> frozenset[str]:
    """Latent sites on which at least two of the values depend.

    Args:
        values: any values.
    """
    return frozenset().union(*(overlap(*pair) for pair in combinations(values, 2)))


def union(values: Iterable[Any]) -> Support:
    """The elements on which a value depends that is computed from others.

    Args:
        values: all values that it is computed from.
    """
    parts = [value.support for value in values]
    if not parts or all(part is parts[0] for part in parts):
        return parts[0] if parts else NONE
    found: dict[str, int] = {}
    for part in parts:
        for site, mask in part.items():
            found[site] = found.get(site, 0) | mask
    return found


def selected(value: Any, key: Any) -> Support | None:
    """The elements that an index of the leading axis leaves; None if that is not known.

    Args:
        value: Gaussian of at least one axis.
        key: integer or slice.
    """
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
