"""Distributions inside others: masks, expansions and independent dimensions."""

from __future__ import annotations

from typing import Any


def unwrapped(fn: Any, wrappers: tuple[Any, ...]) -> tuple[Any, int]:
    """The distribution inside wrappers, and how many axes these sum over.

    Args:
        fn: a distribution.
        wrappers: the host's classes of distributions that are another one with more axes.
    """
    inner, summed = fn, 0
    while isinstance(inner, wrappers):
        summed += getattr(inner, "reinterpreted_batch_ndims", 0)
        inner = inner.base_dist
    return inner, summed
