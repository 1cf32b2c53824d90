"""Run computations in branches, loops or pieces, to save time, memory or compile time.

A framework is imported only when one of its arrays is passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import array_api_compat
import numpy as np

from moment_calculus.numerics.arrays import constants, namespace
from moment_calculus.numerics.derivatives import executes_eagerly, is_eager
from moment_calculus.numerics.private_apis import is_traced

Array = Any


def map_chunks(function: Callable[..., tuple], arrays: list[Array], size: int) -> tuple:
    """Apply an elementwise function, to a tuple, to ``size`` elements at a time."""
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


def together(terms: Sequence[Array] | Array) -> Array:
    """Return terms along a new leading axis, as they are if they are one array already."""
    return terms if hasattr(terms, "ndim") else namespace(terms[0]).stack([*terms], axis=0)


def plus_product(summand: Array, first: Array, second: Array) -> Array:
    """Return a + b c, in one pass where the framework has it."""
    if not array_api_compat.is_torch_array(summand):
        return summand + first * second
    import torch

    return torch.addcmul(summand, first, second)


def is_jax_on_cpu(array: Array) -> bool:
    """Return whether XLA computes an array on a CPU."""
    if not array_api_compat.is_jax_array(array):
        return False
    import jax

    return jax.default_backend() == "cpu"


def threads(array: Array) -> int:
    """Return how many threads share an operation on an array; 1 if that is not known."""
    if not array_api_compat.is_torch_array(array):
        return 1
    import torch

    return torch.get_num_threads()


LARGE = 4096  # JAX arrays of so many elements are worth more compiling for speed
UNROLLED = 4  # terms per round of a compiled loop, so that the rounds cost little


def sum_over_nodes(
    term: Callable[..., Array], nodes: Sequence[tuple[float, float]], like: Array
) -> Array:
    """Return Σ term(node, weight) over pairs of numbers; without derivatives."""
    if not array_api_compat.is_jax_array(like):
        return sum((term(*pair) for pair in nodes[1:]), term(*nodes[0]))
    import jax

    # A loop takes less time to compile.
    pairs = jax.numpy.asarray(nodes, like.dtype)
    return jax.lax.fori_loop(
        0,
        len(nodes),
        lambda i, total: total + term(pairs[i, 0], pairs[i, 1]),
        jax.numpy.zeros_like(like),
        unroll=UNROLLED,
    )


def sum_over_rows(term: Callable[..., tuple], rows: np.ndarray, like: Array) -> tuple[Array, ...]:
    """Return Σ term(*row), a tuple, over rows [terms, columns]; without derivatives."""
    if array_api_compat.is_jax_array(like) and like.size >= LARGE:
        # XLA vectorises a loop over the elements of the array.
        return _sum_in_a_loop(term, rows, like)
    columns = constants(rows.T.reshape((*rows.T.shape, *(1,) * len(like.shape))), like)
    return tuple(namespace(like).sum(part, axis=0) for part in term(*columns))


def _sum_in_a_loop(term: Callable[..., tuple], rows: np.ndarray, like: Array) -> tuple:
    import jax

    numbers = constants(rows, like)

    def body(i: Any, totals: tuple) -> tuple:
        parts = term(*(numbers[i, j] for j in range(rows.shape[1])))
        return tuple(total + part for total, part in zip(totals, parts, strict=True))

    start = jax.tree.map(jax.numpy.zeros_like, jax.eval_shape(lambda: term(*numbers[0])))
    return jax.lax.fori_loop(0, len(rows), body, start, unroll=min(UNROLLED, len(rows)))


def fold(step: Callable[[Array, Any], Array], columns: tuple[Array, ...], start: Array) -> Array:
    """Return the last of step(… step(start, first), …), for the rows of ``columns``."""
    if array_api_compat.is_jax_array(start):
        import jax

        # A loop takes a tenth of the time to compile.
        return jax.lax.scan(lambda total, item: (step(total, item), None), start, columns)[0]
    return functools.reduce(step, zip(*columns, strict=True), start)


def scan(step: Callable[[Any, Any], tuple], numbers: np.ndarray, state: Any) -> Sequence[Array]:
    """Return the outputs of steps from a state and a row to a state and an output."""
    if array_api_compat.is_jax_array(state[0]):
        import jax

        return jax.lax.scan(step, state, constants(numbers, state[0]))[1]
    outputs = []
    for row in numbers.tolist():
        state, one = step(state, row)
        outputs.append(one)
    return outputs


def in_cpu_chunks(function: Callable[..., tuple], size: int) -> Callable[..., tuple]:
    """Cut an elementwise function into pieces that stay in a CPU's cache, for JAX arrays."""

    # XLA would store each intermediate result whole: on a million elements five times as
    # slow.
    def whole(*arrays: Array) -> tuple:
        return function(*arrays)

    def cut(*arrays: Array) -> tuple:
        return map_chunks(function, list(arrays), size)

    @functools.wraps(function)
    def wrapped(*arrays: Array) -> tuple:
        if not array_api_compat.is_jax_array(arrays[0]) or arrays[0].size <= 2 * size:
            return function(*arrays)
        import jax

        return jax.lax.platform_dependent(*arrays, cpu=cut, default=whole)

    return wrapped


def checkpointed_rows(function: Callable[..., Array], size: int) -> Callable[..., Array]:
    """Apply a function of JAX arrays [batch, ...] by rows, recomputed for its gradient.

    No more rows are computed together than have ``size`` elements of the largest array.
    """
    import jax

    checkpointed = jax.checkpoint(function, prevent_cse=False)

    def cut(*arrays: Array) -> Array:
        rows, largest = len(arrays[0]), max(array.size for array in arrays)
        chunk_size = max(1, size * rows // largest)
        count = max(part for part in range(1, min(rows, chunk_size) + 1) if rows % part == 0)
        grouped = [array.reshape(-1, count, *array.shape[1:]) for array in arrays]
        result = jax.lax.map(lambda parts: checkpointed(*parts), grouped)
        return result.reshape(rows, *result.shape[2:])

    # All rows at once on a GPU, and where they may be spread over several devices.
    return cut if jax.default_backend() == "cpu" and jax.device_count() == 1 else checkpointed


def divided(terms: Sequence[Array], numbers: Sequence[float]) -> Sequence[Array]:
    """Return terms, such as :func:`scan` gives, over one number each; in JAX as one array."""
    if not array_api_compat.is_jax_array(terms):
        return [term / number for term, number in zip(terms, numbers, strict=True)]
    column = np.reshape(numbers, (-1, *(1,) * (terms.ndim - 1)))
    return terms / constants(column, terms)


def preceded(first: Array, terms: Sequence[Array]) -> Sequence[Array]:
    """Return a term and others; in JAX as one array, which takes less time to compile."""
    if not array_api_compat.is_jax_array(terms):
        return [first, *terms]
    return namespace(first).concat([first[None], terms])


def elements(array: Array, index: Array) -> Array:
    """Return elements of the trailing axis, for an index of numbers that are within its size."""
    if not array_api_compat.is_jax_array(array):
        return namespace(array).take(array, index, axis=-1)
    # unchecked: XLA makes the checks anew in each program that uses the elements
    return array.at[..., index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def while_loop(condition: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
    """Apply ``step`` while ``condition`` holds, in traced programs of JAX in a compiled loop."""
    # A compiled loop would be compiled anew by each call, which takes longer than it runs.
    while not is_traced(holds := condition(state)):
        if not holds:
            return state
        state = step(state)
    import jax

    return jax.lax.while_loop(condition, step, state)


def in_row_chunks(function: Callable[..., Array], arrays: Sequence[Array], size: int) -> Array:
    """Apply a function of arrays [rows, ...] to at most ``size`` rows at a time."""
    rows = arrays[0].shape[0]
    if rows <= size or (array_api_compat.is_torch_array(arrays[0]) and not executes_eagerly()):
        return function(*arrays)
    if array_api_compat.is_jax_array(arrays[0]):
        return _jax_rows(function, arrays, size)
    pieces = [[array[i : i + size, ...] for array in arrays] for i in range(0, rows, size)]
    if not array_api_compat.is_torch_array(arrays[0]):
        return np.concatenate([function(*piece) for piece in pieces])
    import torch
    from torch.utils.checkpoint import checkpoint

    return torch.cat([checkpoint(function, *piece, use_reentrant=False) for piece in pieces])


def _jax_rows(function: Callable[..., Array], arrays: Sequence[Array], size: int) -> Array:
    """Do the same for JAX; copies of the last row fill the last piece."""
    import jax

    rows = arrays[0].shape[0]
    rounds = -(-rows // size)
    chunk_size = -(-rows // rounds)
    missing = rounds * chunk_size - rows
    pieces = [
        jax.numpy.pad(array, [(0, missing), *[(0, 0)] * (array.ndim - 1)], mode="edge").reshape(
            rounds, chunk_size, *array.shape[1:]
        )
        for array in arrays
    ]
    if not any(map(is_traced, arrays)):  # a loop would be compiled anew by each call
        parts = zip(*pieces, strict=True)
        return jax.numpy.concatenate([function(*part) for part in parts])[:rows]
    checkpointed = jax.checkpoint(function, prevent_cse=False)
    result = jax.lax.map(lambda piece: checkpointed(*piece), pieces)
    return result.reshape(-1, *result.shape[2:])[:rows]


# ---------------------------------------------------------------------------------------------
# NumPy in place of JAX, which compiles each operation on each shape of arrays


class NotOnHost(Exception):
    """What is asked for is known to the framework alone."""


_ON_HOST: ContextVar[bool] = ContextVar("host", default=False)


def is_on_host() -> bool:
    """Return whether NumPy computes in place of JAX, inside of :func:`by_numpy`."""
    return _ON_HOST.get()


@contextmanager
def _on_host() -> Iterator[None]:
    token = _ON_HOST.set(True)
    try:
        yield
    finally:
        _ON_HOST.reset(token)


def to_host(array: Array) -> Array:
    """Return the numbers of a JAX array as NumPy's inside of :func:`by_numpy`; others as is."""
    if not (is_on_host() and array_api_compat.is_jax_array(array)):
        return array
    if is_traced(array):
        raise NotOnHost
    return np.asarray(array)


def by_numpy(function: Callable[..., Array], *arrays: Array) -> Array:
    """Return function(*arrays), by NumPy if the arrays are JAX's and known."""
    # What leaves JAX at once, such as quantiles of counts, takes seconds to compile there.
    if is_on_host() or not array_api_compat.is_jax_array(arrays[0]) or any(map(is_traced, arrays)):
        return function(*arrays)
    try:
        with _on_host(), np.errstate(all="ignore"):
            found = function(*map(np.asarray, arrays))
    except NotOnHost:
        return function(*arrays)
    return constants(found, arrays[0])


# ---------------------------------------------------------------------------------------------
# Choices between two ways to compute the same values


def known_all_false(condition: Array) -> bool:
    """Return whether a condition is known to hold nowhere; False if traced or on a GPU."""
    return is_eager(condition) and not condition.any()


def if_cheap(
    holds: Array, cheap: Callable[..., tuple], general: Callable[..., tuple], *arrays: Array
) -> tuple:
    """Return cheap(*arrays) if a condition, one truth value, is known to hold, else general."""
    if not array_api_compat.is_jax_array(holds):
        return cheap(*arrays) if is_eager(holds) and holds else general(*arrays)
    # Small arrays are not worth the time to compile both rules.
    if arrays[0].size < LARGE:
        return general(*arrays)
    import jax

    return jax.lax.cond(holds, cheap, general, *arrays)


def where_cheap(
    condition: Array, cheap: Callable[..., tuple], general: Callable[..., tuple], *arrays: Array
) -> tuple:
    """Return cheap(*arrays) where the condition holds, elsewhere general(*arrays)."""
    known = not array_api_compat.is_jax_array(condition) and is_eager(condition)
    holds = condition.all()
    if not known or holds:  # traced: the same to rounding where the condition holds
        return if_cheap(holds, cheap, general, *arrays)
    rest = ~condition
    parts = general(*(array[rest] for array in arrays))
    return tuple(
        _masked_scatter(*results, rest) for results in zip(cheap(*arrays), parts, strict=True)
    )


def cond(
    condition: Array, cheap: Callable[..., Array], general: Callable[..., Array], *arrays: Array
) -> Array:
    """Return cheap(*arrays) if a JAX truth value holds at run time, else general(*arrays)."""
    import jax

    return jax.lax.cond(condition, cheap, general, *arrays)


def _masked_scatter(array: Array, values: Array, mask: Array) -> Array:
    """Replace the elements of a NumPy or torch array at ``mask``; differentiable."""
    if array_api_compat.is_torch_array(array):
        return array.masked_scatter(mask, values)
    array[mask] = values
    return array


def to_jax(numbers: np.ndarray) -> Array:
    """Return an array of JAX of the same precision, whatever precision JAX has now."""
    import jax

    with jax.enable_x64(True):
        return jax.numpy.asarray(numbers)
