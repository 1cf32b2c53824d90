"""Give functions of JAX arrays their derivatives in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat

from moment_calculus.numerics.derivatives.partials import Array, Partials, as_tuple, directional
from moment_calculus.numerics.derivatives.private_apis import is_traced


def with_tangent(function: Callable[..., Array], tangent: Callable[..., Any]) -> Any:
    """Return a function whose (value, derivative) is ``tangent(arrays, directions)``."""
    import jax

    wrapped = jax.custom_jvp(function)
    wrapped.defjvp(tangent)
    return wrapped


def directional_derivative(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return the directional derivative of a function, of the arrays and then their directions."""
    import jax

    def derivative(*both: Array) -> Array:
        count = len(both) // 2
        return jax.jvp(function, both[:count], both[count:])[1]

    return derivative


def optimization_barrier(*arrays: Array) -> tuple[Array, ...]:
    """Return small arrays that XLA computes once, not anew for every use in large ones."""
    import jax

    return tuple(jax.lax.optimization_barrier(arrays))


def differentiable(
    function: Callable[..., Any], partials: Partials, values_and_partials: Any = None
) -> Callable[..., Any]:
    """Do what ``elementwise.elementwise`` does, for JAX arrays."""
    return (
        _separate(function, partials)
        if values_and_partials is None
        else _joint(values_and_partials, partials)
    )


def _separate(function: Callable[..., Any], partials: Partials) -> Callable[..., Any]:
    import jax

    wrapped = jax.custom_jvp(lambda *arrays: function(*arrays))

    @wrapped.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        outputs = wrapped(*primals)
        slopes = _alike(directional(partials(*primals), tangents), as_tuple(outputs))
        return outputs, (slopes if isinstance(outputs, tuple) else slopes[0])

    return wrapped


def _alike(slopes: Sequence[Array], outputs: Sequence[Array]) -> tuple[Array, ...]:
    """Bring arrays to the shapes and dtypes of others."""
    from jax.numpy import broadcast_to

    pairs = zip(slopes, outputs, strict=True)
    return tuple(broadcast_to(slope, like.shape).astype(like.dtype) for slope, like in pairs)


def _joint(values_and_partials: Any, partials: Partials) -> Callable[..., Any]:
    """Give a function its derivatives; one computation yields values and partial derivatives."""
    import jax

    both = jax.custom_jvp(lambda *arrays: values_and_partials(*arrays))

    def tangents_of(slopes: Any, tangents: Any) -> list[Array]:
        count = len(tangents)
        rows = [slopes[i : i + count] for i in range(0, len(slopes), count)]
        return directional(rows, tangents)

    @both.defjvp
    def second_order(primals: Any, tangents: Any) -> Any:
        """Differentiate the partial derivatives themselves."""
        flat = lambda *arrays: [slope for row in partials(*arrays) for slope in row]  # noqa: E731
        slopes, bends = jax.jvp(flat, primals, tangents)
        outputs = both(*primals)
        return outputs, _alike([*tangents_of(slopes, tangents), *bends], outputs)

    @jax.custom_jvp
    def values(*arrays: Array) -> tuple[Array, ...]:
        outputs = both(*arrays)
        return tuple(outputs[: len(outputs) // (1 + len(arrays))])

    @values.defjvp
    def first_order(primals: Any, tangents: Any) -> Any:
        outputs = both(*primals)
        count = len(outputs) // (1 + len(primals))
        return tuple(outputs[:count]), _alike(
            tangents_of(outputs[count:], tangents), outputs[:count]
        )

    return values


def is_jitted(array: Any) -> bool:
    """Return whether an array is traced by JAX, so that its elements are not known."""
    return array_api_compat.is_jax_array(array) and is_traced(array)
