"""Derivatives in closed form under JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moment_calculus.derivatives import Array, Partials, as_tuple, directional


def elementwise(function: Callable[..., Any], partials: Partials) -> Callable[..., Any]:
    """As :func:`moment_calculus.derivatives.elementwise`, of JAX arrays.

    Args:
        function: as there.
        partials: as there.
    """
    import jax

    wrapped = jax.custom_jvp(lambda *arrays: function(*arrays))

    @wrapped.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        outputs = wrapped(*primals)
        slopes = _alike(directional(partials(*primals), tangents), as_tuple(outputs))
        return outputs, (slopes if isinstance(outputs, tuple) else slopes[0])

    return wrapped


def _alike(slopes: Sequence[Array], outputs: Sequence[Array]) -> tuple[Array, ...]:
    """JAX arrays brought to the shapes and dtypes of others."""
    from jax.numpy import broadcast_to

    pairs = zip(slopes, outputs, strict=True)
    return tuple(broadcast_to(slope, like.shape).astype(like.dtype) for slope, like in pairs)


def together_elementwise(together: Any, partials: Partials) -> Callable[..., Any]:
    """As :func:`elementwise`, with values and partial derivatives from one computation.

    Args:
        together: as of :func:`moment_calculus.derivatives.elementwise`.
        partials: as there; serves where a gradient is differentiated itself.
    """
    import jax

    both = jax.custom_jvp(lambda *arrays: together(*arrays))

    def tangents_of(slopes: Any, tangents: Any) -> list[Array]:
        count = len(tangents)
        rows = [slopes[i : i + count] for i in range(0, len(slopes), count)]
        return directional(rows, tangents)

    @both.defjvp
    def second_order(primals: Any, tangents: Any) -> Any:
        """The gradient is to be differentiated itself."""
        flat = lambda *arrays: [slope for row in partials(*arrays) for slope in row]  # noqa: E731
        slopes, bends = jax.jvp(flat, primals, tangents)
        outputs = both(*primals)
        return outputs, _alike([*tangents_of(slopes, tangents), *bends], outputs)

    @jax.custom_jvp
    def values(*arrays: Array) -> tuple[Array, ...]:
        found = both(*arrays)
        return tuple(found[: len(found) // (1 + len(arrays))])

    @values.defjvp
    def first_order(primals: Any, tangents: Any) -> Any:
        found = both(*primals)
        count = len(found) // (1 + len(primals))
        return tuple(found[:count]), _alike(tangents_of(found[count:], tangents), found[:count])

    return values
