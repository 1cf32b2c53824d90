"""How a computation is carried out where its steps would take too much memory.

A framework is imported only when one of its arrays arrives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat
import numpy as np

from moment_calculus.numerics.derivatives.elementwise import is_transformed, is_untraced
from moment_calculus.numerics.special import constants, namespace

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


def plus_product(summand: Array, first: Array, second: Array) -> Array:
    """a + b c, in one pass where the framework has it.

    Args:
        summand: a.
        first: b.
        second: c.
    """
    if not array_api_compat.is_torch_array(summand):
        return summand + first * second
    import torch

    return torch.addcmul(summand, first, second)


def threads(array: Array) -> int:
    """How many threads share an operation on an array, as far as that is known.

    Args:
        array: of any framework.
    """
    if not array_api_compat.is_torch_array(array):
        return 1
    import torch

    return torch.get_num_threads()


LARGE = 4096  # elements of a JAX array, from which on it pays to compile more for speed
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


def sums(term: Callable[..., tuple], rows: np.ndarray, like: Array) -> tuple[Array, ...]:
    """Σ term(*row) over rows of numbers, of terms that are not to be differentiated themselves.

    At once; of large JAX arrays in a loop, as XLA vectorises it over the elements then.

    Args:
        term: of as many numbers as a row has, or of arrays of them on a new leading axis, to a
            tuple of arrays.
        rows: numbers, [terms, columns].
        like: an array of the shape and dtype of the terms.
    """
    if array_api_compat.is_jax_array(like) and like.size >= LARGE:
        return _summed_in_a_loop(term, rows, like)
    columns = constants(rows.T.reshape((*rows.T.shape, *(1,) * len(like.shape))), like)
    return tuple(namespace(like).sum(part, axis=0) for part in term(*columns))


def _summed_in_a_loop(term: Callable[..., tuple], rows: np.ndarray, like: Array) -> tuple:
    import jax

    numbers = constants(rows, like)

    def body(i: Any, totals: tuple) -> tuple:
        parts = term(*(numbers[i, j] for j in range(rows.shape[1])))
        return tuple(total + part for total, part in zip(totals, parts, strict=True))

    start = jax.tree.map(jax.numpy.zeros_like, jax.eval_shape(lambda: term(*numbers[0])))
    return jax.lax.fori_loop(0, len(rows), body, start, unroll=min(UNROLLED, len(rows)))


def accumulated(
    step: Callable[[Array, Any], Array], columns: tuple[Array, ...], start: Array
) -> Array:
    """The last of step(… step(start, first), …); under JAX in a loop, a tenth of the compiling.

    Args:
        step: from the result so far and an item, a row of each column, to the next result, of the
            shape of the start.
        columns: arrays [items, …].
        start: to begin with.
    """
    if array_api_compat.is_jax_array(start):
        import jax

        return jax.lax.scan(lambda total, item: (step(total, item), None), start, columns)[0]
    return functools.reduce(step, zip(*columns, strict=True), start)


def recursion(
    step: Callable[[Any, Any], tuple], numbers: np.ndarray, state: Any
) -> Sequence[Array]:
    """What every step of a recursion gives; under JAX in a loop, on a new leading axis.

    Args:
        step: from a state and a row of numbers to the next state and an array.
        numbers: rows of numbers, [steps, columns].
        state: tuple of arrays to begin with.
    """
    if array_api_compat.is_jax_array(state[0]):
        import jax

        return jax.lax.scan(step, state, constants(numbers, state[0]))[1]
    found = []
    for row in numbers.tolist():
        state, one = step(state, row)
        found.append(one)
    return found


def in_cache(function: Callable[..., tuple], size: int) -> Callable[..., tuple]:
    """An elementwise function whose intermediate results stay in a processor's cache.

    XLA keeps each of them whole otherwise, which takes five times as long on a million elements.
    Other frameworks, and other devices than CPUs, are not concerned.

    Args:
        function: of arrays of one shape, to a tuple of such arrays.
        size: elements that are computed together.
    """

    def whole(*arrays: Array) -> tuple:
        return function(*arrays)

    def cut(*arrays: Array) -> tuple:
        return sequentially(function, list(arrays), size)

    @functools.wraps(function)
    def wrapped(*arrays: Array) -> tuple:
        if not array_api_compat.is_jax_array(arrays[0]) or arrays[0].size <= 2 * size:
            return function(*arrays)
        import jax

        return jax.lax.platform_dependent(*arrays, cpu=cut, default=whole)

    return wrapped


def by_rows(function: Callable[..., Array], size: int) -> Callable[..., Array]:
    """A function of JAX arrays, some rows of the batch at a time, to bound the memory.

    It is computed anew for its gradient. All rows at once where they may be spread over several
    devices, each of which has its own, or live on a GPU.

    Args:
        function: of arrays [batch, ...], row by row.
        size: elements of the result that are computed together.
    """
    import jax

    anew = jax.checkpoint(function, prevent_cse=False)

    def cut(*arrays: Array) -> Array:
        rows, result = len(arrays[0]), jax.eval_shape(function, *arrays)
        together = max(1, size * rows // result.size)
        count = max(part for part in range(1, min(rows, together) + 1) if rows % part == 0)
        grouped = [array.reshape(-1, count, *array.shape[1:]) for array in arrays]
        return jax.lax.map(lambda parts: anew(*parts), grouped).reshape(result.shape)

    return cut if jax.default_backend() == "cpu" and jax.device_count() == 1 else anew


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


def in_rows(function: Callable[..., Array], arrays: Sequence[Array], size: int) -> Array:
    """A function of arrays row by row, of at most so many rows at a time to bound the memory.

    Of more rows than that, intermediate results are computed anew for the gradient.

    Args:
        function: of arrays [rows, ...], to an array [rows, ...].
        arrays: its arguments.
        size: rows that are computed together.
    """
    rows = arrays[0].shape[0]
    if rows <= size or (array_api_compat.is_torch_array(arrays[0]) and not _is_eager()):
        return function(*arrays)
    if array_api_compat.is_jax_array(arrays[0]):
        return _jax_rows(function, arrays, size)
    pieces = [[array[i : i + size, ...] for array in arrays] for i in range(0, rows, size)]
    if not array_api_compat.is_torch_array(arrays[0]):
        return np.concatenate([function(*piece) for piece in pieces])
    import torch
    from torch.utils.checkpoint import checkpoint

    return torch.cat([checkpoint(function, *piece, use_reentrant=False) for piece in pieces])


def _is_eager() -> bool:
    """Whether torch carries operations out: not for a tracer, and not under torch.func."""
    return is_untraced() and not is_transformed()


def _jax_rows(function: Callable[..., Array], arrays: Sequence[Array], size: int) -> Array:
    """Rows that are missing in the last piece are copies of the last row."""
    import jax

    rows = arrays[0].shape[0]
    rounds = -(-rows // size)
    together = -(-rows // rounds)
    missing = rounds * together - rows
    pieces = [
        jax.numpy.pad(array, [(0, missing), *[(0, 0)] * (array.ndim - 1)], mode="edge").reshape(
            rounds, together, *array.shape[1:]
        )
        for array in arrays
    ]
    anew = jax.checkpoint(function, prevent_cse=False)
    found = jax.lax.map(lambda piece: anew(*piece), pieces)
    return found.reshape(-1, *found.shape[2:])[:rows]
