"""Distributions inside others: masks, expansions and independent dimensions."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def _is_one_of(kind: type, wrappers: tuple[Any, ...]) -> bool:
    """By class: the hosts' answers to ``isinstance`` are slow."""
    return issubclass(kind, wrappers)


def unwrapped(fn: Any, wrappers: tuple[Any, ...]) -> tuple[Any, int]:
    """The distribution inside wrappers, and how many axes these sum over.

    Args:
        fn: a distribution.
        wrappers: the host's classes of distributions that are another one with more axes.
    """
    inner, summed = fn, 0
    kind: Any = type(fn)
    while _is_one_of(kind, wrappers):
        summed += getattr(inner, "reinterpreted_batch_ndims", 0)
        inner = inner.base_dist
        kind = type(inner)
    return inner, summed
