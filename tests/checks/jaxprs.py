"""What a program of JAX computes, by NumPy: nothing is compiled for a program that runs once.

Keys of random numbers are packed into numbers of 64 bits while it runs.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.extend
import numpy as np

from tests.checks import array_primitives
from tests.checks.scalar_primitives import ELEMENTWISE, RANDOM, as_keys, is_key, packed


def _elementwise(function: Callable) -> Callable:
    return lambda *given, **_: function(*given)


def _reduction(function: Callable) -> Callable:
    return lambda x, *, axes, **_: function(x, axis=axes)


FUNCTIONS: dict[str, Callable] = {
    **array_primitives.ARRAY_PRIMITIVES,
    **RANDOM,
    **{name: _elementwise(function) for name, function in ELEMENTWISE.items()},
    "bitcast_convert_type": lambda x, *, new_dtype: np.asarray(x, order="C").view(new_dtype),
    "broadcast_in_dim": array_primitives.broadcast,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "convert_element_type": lambda x, *, new_dtype, **_: np.asarray(x).astype(new_dtype),
    "cumsum": lambda x, *, axis, reverse: (
        np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)
    ),
    "dot_general": array_primitives.product,
    "dynamic_slice": lambda x, *starts, slice_sizes: x[
        array_primitives.part_at(x, starts, slice_sizes)
    ],
    "dynamic_update_slice": array_primitives.updated,
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, dimensions),
    "integer_pow": lambda x, *, y: np.power(x, y) if y >= 0 else 1 / np.power(x, -y),
    "iota": array_primitives.iota,
    "reduce_and": _reduction(np.all),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_or": _reduction(np.any),
    "reduce_prod": _reduction(np.prod),
    "reduce_sum": _reduction(np.sum),
    "reshape": lambda x, *, new_sizes, dimensions, **_: np.reshape(
        x if dimensions is None else np.transpose(x, dimensions), new_sizes
    ),
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "shift_left": np.left_shift,
    "shift_right_arithmetic": lambda x, by: x >> by,
    "shift_right_logical": lambda x, by: x >> by,
    "slice": array_primitives.cut,
    "squeeze": lambda x, *, dimensions: np.squeeze(x, dimensions),
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
}


def _dtype(aval: Any) -> np.dtype:
    return np.dtype(np.uint64) if is_key(aval) else aval.dtype


def _as_array(value: Any, dtype: np.dtype) -> np.ndarray:
    if type(value) is np.ndarray and value.dtype == dtype:
        return value
    if isinstance(value, jax.Array) and is_key(value):
        return packed(jax.random.key_data(value))
    return np.asarray(value, dtype=dtype)


def _by_jax(equation: Any) -> Callable:
    """JAX's own operation, on keys as it has them."""
    keys = [is_key(atom.aval) for atom in equation.invars]
    bind = equation.primitive.bind
    if not any(keys):
        return bind
    return lambda *given, **params: bind(
        *(as_keys(value) if key else value for value, key in zip(given, keys, strict=True)),
        **params,
    )


class TooLong(Exception):
    """More operations than were allowed."""


_LEFT: ContextVar[list[int] | None] = ContextVar("operations left", default=None)


@contextmanager
def at_most(operations: int) -> Iterator[list[int]]:
    """Evaluate loops by NumPy too, and raise :class:`TooLong` after so many operations.

    It yields how many are left, in a list.
    """
    left = [operations]
    token = _LEFT.set(left)
    try:
        yield left
    finally:
        _LEFT.reset(token)


class _Step(NamedTuple):
    """An equation: what to call, places of its inputs and outputs among all values."""

    function: Callable
    inputs: list[int]
    outputs: list[int]
    dtypes: list
    is_several: bool  # results


class _Steps:
    """A jaxpr, read once, since its loops and trainings are evaluated many times."""

    def __init__(self, jaxpr: Any) -> None:
        self.places: dict[Any, int] = {}
        self.start: list = []
        self.known = [self._place(variable) for variable in (*jaxpr.constvars, *jaxpr.invars)]
        self.known_dtypes = [_dtype(each.aval) for each in (*jaxpr.constvars, *jaxpr.invars)]
        self.steps = list(map(self._step, jaxpr.eqns))
        self.outputs = [self._place(atom) for atom in jaxpr.outvars]

    def _place(self, atom: Any) -> int:
        if isinstance(atom, jax.extend.core.Literal):
            self.start.append(_as_array(atom.val, atom.aval.dtype))
            return len(self.start) - 1
        if atom not in self.places:
            self.places[atom] = len(self.start)
            self.start.append(None)
        return self.places[atom]

    def _step(self, equation: Any) -> _Step:
        inputs = [self._place(atom) for atom in equation.invars]
        outputs = [self._place(variable) for variable in equation.outvars]
        dtypes = [_dtype(variable.aval) for variable in equation.outvars]
        function, is_several = _function(equation)
        return _Step(function, inputs, outputs, dtypes, is_several)


_READ: dict[int, tuple[Any, _Steps]] = {}


def _read(jaxpr: Any) -> _Steps:
    if id(jaxpr) not in _READ:
        if len(_READ) > 2000:
            _READ.clear()
        _READ[id(jaxpr)] = jaxpr, _Steps(jaxpr)
    return _READ[id(jaxpr)][1]


def evaluate(closed: Any, inputs: Sequence, loops: bool = False) -> list:
    """The results of a jaxpr, with packed keys.

    What NumPy has not, and its loops if not asked for, are JAX's own.
    """
    if loops and _LEFT.get() is None:
        with at_most(sys.maxsize):
            return evaluate(closed, inputs)
    jaxpr = getattr(closed, "jaxpr", closed)  # those of jax.checkpoint are open, without constants
    program, left = _read(jaxpr), _LEFT.get()
    if left is not None:
        left[0] -= len(program.steps)
        if left[0] < 0:
            raise TooLong
    values = program.start.copy()
    given = zip(
        program.known, (*getattr(closed, "consts", ()), *inputs), program.known_dtypes, strict=True
    )
    for place, value, dtype in given:
        values[place] = _as_array(value, dtype)
    for function, places, outputs, dtypes, is_several in program.steps:
        found = function(*[values[place] for place in places])
        results = found if is_several else (found,)
        for place, result, dtype in zip(outputs, results, dtypes, strict=True):
            values[place] = _as_array(result, dtype)
    return [values[place] for place in program.outputs]


INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def _function(equation: Any) -> tuple[Callable, bool]:
    """Of one primitive: JAX's own for what NumPy has not, and for loops that are long."""
    primitive, params = equation.primitive, equation.params
    if primitive.name == "cond":
        branches = params["branches"]
        return lambda which, *given: evaluate(branches[int(which)], given), True
    if primitive.name in LOOPS:
        return partial(_looped, equation), True
    inner = next((params[name] for name in INNER if name in params), None)
    if inner is not None:
        return lambda *given: evaluate(inner, given), True
    name = primitive.name
    if name in ELEMENTWISE:
        return ELEMENTWISE[name], primitive.multiple_results
    function = FUNCTIONS[name] if name in FUNCTIONS else _by_jax(equation)
    return partial(function, **params), primitive.multiple_results


def _looped(equation: Any, *given: Any) -> list:
    """A loop by NumPy, if it is short or all are asked for; else by JAX, which compiles it."""
    name, params = equation.primitive.name, equation.params
    if _LEFT.get() is not None:
        return LOOPS[name](*given, **params)
    try:
        with at_most(LONGEST):
            return LOOPS[name](*given, **params)
    except TooLong:
        return _by_jax(equation)(*given, **params)


def _while(
    *given: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
) -> list:
    """A loop of any length, such as the steps of a training."""
    begin = cond_nconsts + body_nconsts
    of_test, of_body, state = given[:cond_nconsts], given[cond_nconsts:begin], given[begin:]
    while (goes_on := evaluate(cond_jaxpr, [*of_test, *state])[0]).any():
        new = evaluate(body_jaxpr, [*of_body, *state])
        # under jax.vmap each of several loops ends for itself
        state = [_chosen(goes_on, *pair) for pair in zip(new, state, strict=True)]
    return state


def _chosen(which: Any, one: Any, other: Any) -> Any:
    """Of two arrays the first where a condition holds, whose axes come first in them."""
    if which.all():
        return one
    which = which.reshape(which.shape + (1,) * (np.ndim(one) - which.ndim))
    return np.where(which, one, other)


def _scan(
    *given: Any, jaxpr: Any, length: int, reverse: bool, num_consts: int, num_carry: int, **_: Any
) -> list:
    """A loop over rows."""
    begin = num_consts + num_carry
    fixed, state, rows = given[:num_consts], given[num_consts:begin], given[begin:]
    left = _LEFT.get()
    if left is not None and length * len(jaxpr.jaxpr.eqns) > left[0]:
        raise TooLong
    found: list = [None] * length
    for step in reversed(range(length)) if reverse else range(length):
        results = evaluate(jaxpr, [*fixed, *state, *(each[step] for each in rows)])
        state, found[step] = results[:num_carry], results[num_carry:]
    if not found:
        avals = jaxpr.out_avals[num_carry:]
        return [*state, *(np.zeros((0, *aval.shape), _dtype(aval)) for aval in avals)]
    return [*state, *map(np.stack, zip(*found, strict=True))]


LONGEST = 10_000  # operations of a loop; more take longer than to compile them
LOOPS: dict[str, Callable] = {"scan": _scan, "while": _while}


def by_numpy(function: Callable) -> Callable:
    """What ``jax.jit(function)`` returns, traced as it is there; with arrays of NumPy."""
    program = jax.jit(function)

    def run(*inputs: Any) -> Any:
        traced = program.trace(*inputs)
        leaves = jax.tree.leaves(inputs)
        known = len(leaves) == len(traced.jaxpr.jaxpr.invars)  # nothing is closed over
        if not known or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return program(*inputs)  # as a part of another program
        with np.errstate(all="ignore"), jax.ensure_compile_time_eval():
            found = evaluate(traced.jaxpr, leaves)
            results = [
                as_keys(value) if is_key(atom.aval) else value
                for value, atom in zip(found, traced.jaxpr.jaxpr.outvars, strict=True)
            ]
        return jax.tree.unflatten(jax.tree.structure(traced.out_info), results)

    return run
