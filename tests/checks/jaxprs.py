"""What a program of JAX computes, by NumPy: nothing is compiled for a program that runs once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from scipy import special

from tests.checks.array_primitives import ARRAY_PRIMITIVES
from tests.checks.random_bits import RANDOM, threefry

ELEMENTWISE: dict[str, Callable] = {
    "abs": np.abs,
    "add": np.add,
    "add_any": np.add,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": np.copy,
    "cos": np.cos,
    "cosh": np.cosh,
    "digamma": special.psi,
    "div": lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y),
    "eq": np.equal,
    "erf": special.erf,
    "erf_inv": special.erfinv,
    "erfc": special.erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "lgamma": special.gammaln,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": special.expit,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select_n": lambda which, *cases: (
        np.where(which, *cases[::-1]) if len(cases) == 2 else np.choose(which, cases)
    ),
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "stop_gradient": np.asarray,
    "sub": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "threefry2x32": threefry,
}


def _elementwise(function: Callable) -> Callable:
    return lambda *given, **_: function(*given)


def _reduction(function: Callable) -> Callable:
    return lambda x, *, axes, **_: function(x, axis=axes)


def _broadcast(x: Any, *, shape: Sequence, broadcast_dimensions: Sequence, **_: Any) -> Any:
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, np.shape(x), strict=True):
        sizes[axis] = size
    return np.broadcast_to(np.reshape(x, sizes), shape)


def _product(x: Any, y: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    """Batches of matrix products: the axes [batch, kept, summed] and [batch, summed, kept]."""
    summed, batch = dimension_numbers
    kept = [
        [axis for axis in range(part.ndim) if axis not in (*summed[i], *batch[i])]
        for i, part in enumerate((x, y))
    ]
    sizes = [x.shape[axis] for axis in batch[0]]
    count = int(np.prod([x.shape[axis] for axis in summed[0]]))
    left = x.transpose(*batch[0], *kept[0], *summed[0]).reshape(
        [*sizes, -1 if x.size else 0, count]
    )
    right = y.transpose(*batch[1], *summed[1], *kept[1]).reshape(
        [*sizes, count, -1 if y.size else 0]
    )
    rest = [part.shape[axis] for part, axes in zip((x, y), kept, strict=True) for axis in axes]
    return np.matmul(left, right).reshape([*sizes, *rest])


def _cut(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or [1] * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _iota(*, dtype: Any, shape: Sequence[int], dimension: int, **_: Any) -> Any:
    row = np.arange(shape[dimension], dtype=dtype)
    return _broadcast(row, shape=shape, broadcast_dimensions=[dimension])


FUNCTIONS: dict[str, Callable] = {
    **ARRAY_PRIMITIVES,
    **{name: _elementwise(function) for name, function in ELEMENTWISE.items()},
    "bitcast_convert_type": lambda x, *, new_dtype: np.asarray(x, order="C").view(new_dtype),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "convert_element_type": lambda x, *, new_dtype, **_: np.asarray(x).astype(new_dtype),
    "cumsum": lambda x, *, axis, reverse: (
        np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)
    ),
    "dot_general": _product,
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, dimensions),
    "integer_pow": lambda x, *, y: np.power(x, y) if y >= 0 else 1 / np.power(x, -y),
    "iota": _iota,
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
    "slice": _cut,
    "squeeze": lambda x, *, dimensions: np.squeeze(x, dimensions),
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
}


def _as_aval(value: Any, aval: Any) -> Any:
    """Keys stay as JAX has them."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return value
    return np.asarray(value, dtype=aval.dtype)


def evaluate(closed: Any, inputs: Sequence, loops: bool = False) -> list:
    """The results of a jaxpr; what NumPy has not, and its loops if not asked for, are JAX's own."""
    jaxpr = getattr(closed, "jaxpr", closed)  # those of jax.checkpoint are open, without constants
    known = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def value(atom: Any) -> Any:
        found = atom.val if isinstance(atom, jax.extend.core.Literal) else known[atom]
        return _as_aval(found, atom.aval)

    for equation in jaxpr.eqns:
        results = _results(equation, [value(atom) for atom in equation.invars], loops)
        for variable, result in zip(equation.outvars, results, strict=True):
            known[variable] = _as_aval(result, variable.aval)
    return [value(atom) for atom in jaxpr.outvars]


INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def _while(
    given: list, *, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
) -> list:
    """A loop of any length, such as the steps of a training."""
    begin = cond_nconsts + body_nconsts
    of_test, of_body, state = given[:cond_nconsts], given[cond_nconsts:begin], given[begin:]
    while (goes_on := evaluate(cond_jaxpr, [*of_test, *state], loops=True)[0]).any():
        new = evaluate(body_jaxpr, [*of_body, *state], loops=True)
        # under jax.vmap each of several loops ends for itself
        state = [_chosen(goes_on, *pair) for pair in zip(new, state, strict=True)]
    return state


def _chosen(which: Any, one: Any, other: Any) -> Any:
    """Of two arrays the first where a condition holds, whose axes come first in them."""
    if which.all():
        return one
    which = which.reshape(which.shape + (1,) * (np.ndim(one) - which.ndim))
    return jnp.where(which, one, other) if _is_keys(one) else np.where(which, one, other)


def _is_keys(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jax.dtypes.extended)


def _scan(
    given: list,
    *,
    jaxpr: Any,
    length: int,
    reverse: bool,
    num_consts: int,
    num_carry: int,
    **_: Any,
) -> list:
    """A loop over rows."""
    begin = num_consts + num_carry
    fixed, state, rows = given[:num_consts], given[num_consts:begin], given[begin:]
    found: list = [None] * length
    for step in reversed(range(length)) if reverse else range(length):
        results = evaluate(jaxpr, [*fixed, *state, *(each[step] for each in rows)], loops=True)
        state, found[step] = results[:num_carry], results[num_carry:]
    return [*state, *map(np.stack, zip(*found, strict=True))]


LONGEST = 2000  # operations of a loop; more take longer than to compile them


def _size(closed: Any) -> int:
    """How many operations a program has, those of loops as often as they run."""
    total = 0
    for equation in getattr(closed, "jaxpr", closed).eqns:  # those of jax.checkpoint are open
        inner = next((equation.params[name] for name in INNER if name in equation.params), None)
        total += equation.params.get("length", 1) * (1 if inner is None else _size(inner))
    return total


def _is_short(equation: Any, given: list) -> bool:
    """Whether a loop over rows of arrays has few operations."""
    if equation.primitive.name != "scan" or any(map(_is_keys, given)):
        return False
    size = equation.params["length"] * _size(equation.params["jaxpr"])
    return 0 < size <= LONGEST and not any(_is_keys(each.aval) for each in equation.outvars)


LOOPS: dict[str, Callable] = {"scan": _scan, "while": _while}


def _results(equation: Any, given: list, loops: bool) -> Sequence:
    """Of one primitive: JAX's own for what NumPy has not, and for loops that are long."""
    primitive, params = equation.primitive, equation.params
    if primitive.name == "cond":
        return evaluate(params["branches"][int(given[0])], given[1:], loops)
    if primitive.name in LOOPS and (loops or _is_short(equation, given)):
        return LOOPS[primitive.name](given, **params)
    inner = next((params[name] for name in INNER if name in params), None)
    if inner is not None and primitive.name != "scan":
        return evaluate(inner, given, loops)
    with_keys = any(not isinstance(one, np.ndarray) for one in given)
    table = RANDOM if with_keys else FUNCTIONS
    if primitive.name in table:
        results = table[primitive.name](*given, **params)
    else:
        results = primitive.bind(*given, **params)
    return results if primitive.multiple_results else [results]


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
            results = evaluate(traced.jaxpr, leaves)
        return jax.tree.unflatten(jax.tree.structure(traced.out_info), results)

    return run
