"""How a program chooses between two ways to compute the same.

A framework is imported only when one of its arrays arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat

from moment_calculus.numerics.derivatives.elementwise import may_branch
from moment_calculus.numerics.execution import LARGE

Array = Any


def nowhere(condition: Array) -> bool:
    """Whether a condition is seen to hold for no element, so that a choice by it is none.

    Never in a program that is traced, or on a GPU, where nobody looks.

    Args:
        condition: truth values.
    """
    if array_api_compat.is_jax_array(condition) or not may_branch(condition):
        return False
    return not condition.any()


def where_cheap(
    condition: Array, cheap: Callable[..., tuple], general: Callable[..., tuple], *arrays: Array
) -> tuple:
    """An elementwise function by a cheap rule where that holds, by a general one elsewhere.

    Under JAX by the cheap one if it holds for all elements, of a large array; small ones are not
    worth the time to compile both.

    Args:
        condition: where the cheap rule holds.
        cheap: elementwise function, to a tuple.
        general: likewise, of the same results to rounding.
        arrays: of one shape, that of the condition.
    """
    if array_api_compat.is_jax_array(condition):
        if condition.size < LARGE:
            return general(*arrays)
        import jax

        return jax.lax.cond(condition.all(), cheap, general, *arrays)
    if not may_branch(condition):
        return general(*arrays)
    if condition.all():
        return cheap(*arrays)
    rest = ~condition
    parts = general(*(array[rest] for array in arrays))
    return tuple(_replaced(*results, rest) for results in zip(cheap(*arrays), parts, strict=True))


def either(
    condition: Array, cheap: Callable[..., Array], general: Callable[..., Array], *arrays: Array
) -> Array:
    """One of two functions of JAX arrays, chosen when the program runs.

    Args:
        condition: one truth value.
        cheap: the function where it holds.
        general: the function elsewhere.
        arrays: their arguments.
    """
    import jax

    return jax.lax.cond(condition, cheap, general, *arrays)


def _replaced(array: Array, part: Array, places: Array) -> Array:
    """A NumPy or torch array with other elements in some places; differentiable."""
    if array_api_compat.is_torch_array(array):
        return array.masked_scatter(places, part)
    array[places] = part
    return array
