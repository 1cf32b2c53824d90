"""Take masks, expansions and independent dimensions off a distribution."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def _is_one_of(kind: type, wrappers: tuple[Any, ...]) -> bool:
    """Return whether a class is a wrapper; cached, because isinstance of the frameworks is slow."""
    return issubclass(kind, wrappers)


def unwrapped(fn: Any, wrappers: tuple[Any, ...]) -> tuple[Any, int]:
    """Return the distribution inside wrappers, and the number of axes that they sum over."""
    inner, summed = fn, 0
    kind: Any = type(fn)
    while _is_one_of(kind, wrappers):
        summed += getattr(inner, "reinterpreted_batch_ndims", 0)
        inner = inner.base_dist
        kind = type(inner)
    return inner, summed
