"""Choose between two ways to compute the same values.

A framework is imported only when one of its arrays is passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat

from moment_calculus.numerics.derivatives.elementwise import may_branch
from moment_calculus.numerics.execution import LARGE

Array = Any


def known_all_false(condition: Array) -> bool:
    """Return whether a condition is seen to hold for no element; False if traced or on a GPU."""
    if array_api_compat.is_jax_array(condition) or not may_branch(condition):
        return False
    return not condition.any()


def where_cheap(
    condition: Array, cheap: Callable[..., tuple], general: Callable[..., tuple], *arrays: Array
) -> tuple:
    """Return cheap(*arrays) where the condition holds and general(*arrays) elsewhere, as tuples."""
    if array_api_compat.is_jax_array(condition):
        # Small arrays are not worth the time to compile both rules.
        if condition.size < LARGE:
            return general(*arrays)
        import jax

        return jax.lax.cond(condition.all(), cheap, general, *arrays)
    if not may_branch(condition):
        return general(*arrays)  # to rounding the same as the cheap rule where that holds
    if condition.all():
        return cheap(*arrays)
    rest = ~condition
    parts = general(*(array[rest] for array in arrays))
    return tuple(
        _masked_scatter(*results, rest) for results in zip(cheap(*arrays), parts, strict=True)
    )


def cond(
    condition: Array, cheap: Callable[..., Array], general: Callable[..., Array], *arrays: Array
) -> Array:
    """Return cheap(*arrays) if one JAX truth value holds at run time, else general(*arrays)."""
    import jax

    return jax.lax.cond(condition, cheap, general, *arrays)


def _masked_scatter(array: Array, part: Array, places: Array) -> Array:
    """Replace the elements of a NumPy or torch array at ``places``; differentiable."""
    if array_api_compat.is_torch_array(array):
        return array.masked_scatter(places, part)
    array[places] = part
    return array
