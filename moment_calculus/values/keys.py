"""Keys by which elements of a batch are chosen, compared with each other."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

from moment_calculus.functions.pairs.mehler import truth
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace


def alike_keys(first: tuple, second: tuple) -> bool:
    """Whether two keys are known to choose the same elements.

    Args:
        first: integers, slices and index arrays.
        second: likewise.
    """
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(_is_alike(*pair) for pair in pairs)


def _is_alike(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if not (_is_array(first) and _is_array(second)):
        return type(first) is type(second) and not _is_array(first) and first == second
    if tuple(first.shape) != tuple(second.shape) or first.dtype != second.dtype:
        return False
    return truth(namespace(first).all(first == second)) is True


def same_element(first: tuple, second: tuple) -> Array | None:
    """At which places two keys choose the same element; None if they are not of index arrays.

    Args:
        first: index arrays, as many as the batch has axes.
        second: likewise, of the same shape.
    """
    if len(first) != len(second) or not all(map(_is_index, (*first, *second))):
        return None
    if len({tuple(key.shape) for key in (*first, *second)}) > 1:
        return None
    return reduce(and_, (a == b for a, b in zip(first, second, strict=True)))


def _is_array(key: Any) -> bool:
    return hasattr(key, "shape") and hasattr(key, "dtype")


def _is_index(key: Any) -> bool:
    return _is_array(key) and bool(key.shape) and "bool" not in str(key.dtype)
