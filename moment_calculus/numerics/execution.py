"""How a computation is carried out where its steps would take too much memory.

A framework is imported only when one of its arrays arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat

from moment_calculus.numerics.special import namespace

Array = Any


def sequentially(function: Callable[..., tuple], arrays: list[Array], size: int) -> tuple:
    """An elementwise function, of a number of elements at a time, to bound the memory.

    Args:
        function: of arrays [size], to a tuple of such arrays.
        arrays: of one shape.
        size: how many elements.

    Returns:
        The results, of the shape of the arrays.
    """
    xp, shape = namespace(arrays[0]), arrays[0].shape
    flat = [xp.reshape(array, (-1,)) for array in arrays]
    count = flat[0].shape[0]
    if array_api_compat.is_jax_array(arrays[0]):  # one compiled loop, whatever the count
        import jax

        rounds = -(-count // size)
        missing = (0, rounds * size - count)
        rows = tuple(
            xp.reshape(jax.numpy.pad(part, missing, mode="edge"), (rounds, size)) for part in flat
        )
        columns = jax.lax.map(lambda parts: function(*parts), rows)
        return tuple(xp.reshape(xp.reshape(part, (-1,))[:count], shape) for part in columns)
    pieces = [function(*(part[i : i + size] for part in flat)) for i in range(0, count, size)]
    return tuple(xp.reshape(xp.concat(column), shape) for column in zip(*pieces, strict=True))


UNROLLED = 4  # terms in one round of a compiled loop: of one alone, the rounds take the time


def summed(term: Callable[..., Array], nodes: Sequence[tuple[float, float]], like: Array) -> Array:
    """Σ term(node, weight); under JAX in a loop, for the time to compile.

    Args:
        term: of two numbers, to an array; not to be differentiated itself.
        nodes: pairs of numbers.
        like: an array of the shape and dtype of the terms.
    """
    if not array_api_compat.is_jax_array(like):
        return sum((term(*pair) for pair in nodes[1:]), term(*nodes[0]))
    import jax

    pairs = jax.numpy.asarray(nodes, like.dtype)
    return jax.lax.fori_loop(
        0,
        len(nodes),
        lambda i, total: total + term(pairs[i, 0], pairs[i, 1]),
        jax.numpy.zeros_like(like),
        unroll=UNROLLED,
    )


def repeated(unfinished: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
    """The state after as many steps as it takes; under JAX in a compiled loop.

    Args:
        unfinished: from a state to whether another step is needed.
        step: from a state to the next one, of the same shapes and dtypes.
        state: tuple of arrays to begin with.
    """
    if any(map(array_api_compat.is_jax_array, state)):
        import jax

        return jax.lax.while_loop(unfinished, step, state)
    while unfinished(state):
        state = step(state)
    return state
