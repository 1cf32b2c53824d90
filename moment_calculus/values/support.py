"""Different elements of a latent site are independent: which of them a value depends on.

Sites alone would tie ``w[0]`` to ``w[1]``, so that no layer could be computed with weights that
are stacked in one site. Elements are counted along the leading axis of the site; a set of them is
a bit mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

Elements = Mapping[str, int]
"""For each site of which a value depends on some elements alone: a bit mask of these."""

NONE: Elements = {}


def overlap(left: Any, right: Any) -> frozenset[str]:
    """Latent sites through which two values depend on each other, or may.

    Args:
        left: a value.
        right: a value.
    """
    shared = left.sites & right.sites
    if not shared or not left.elements or not right.elements:
        return shared
    return frozenset(site for site in shared if _meet(left, right, site))


def _meet(left: Any, right: Any, site: str) -> bool:
    first, second = left.elements.get(site), right.elements.get(site)
    return first is None or second is None or bool(first & second)


def inherited(sites: frozenset[str], parents: Iterable[tuple[Any, Any]]) -> Elements:
    """The elements on which a value depends that is computed from others.

    Args:
        sites: the latent sites of the value.
        parents: pairs of a value and a map, all values that it is computed from.
    """
    values = [parent for parent, _ in parents]
    if not any(parent.elements for parent in values):
        return NONE
    return {site: mask for site in sites if (mask := _union(site, values))}


def _union(site: str, values: list[Any]) -> int | None:
    """All elements of a site that enter; None if some value depends on it as a whole."""
    union = 0
    for value in values:
        if site in value.sites:
            mask = value.elements.get(site)
            if mask is None:
                return None
            union |= mask
    return union


def selected(value: Any, key: Any) -> Elements | None:
    """The elements that an index of the leading axis leaves; None if that is not known.

    Args:
        value: Gaussian of at least one axis.
        key: integer or slice.
    """
    source = value.origin
    if source.parents or not source.independent or source.shape != value.shape:
        return None
    size = value.shape[0]
    if isinstance(key, Integral):
        chosen: Iterable[int] = (int(key) % size,)
    elif isinstance(key, slice) and key != slice(None):
        chosen = range(*key.indices(size))
    else:
        return None
    mask = sum(1 << place for place in chosen)
    return dict.fromkeys(source.sites, mask)
