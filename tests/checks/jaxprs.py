"""What a program of JAX computes, by NumPy: nothing is compiled for a program that runs once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from scipy import special

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(first: Any, second: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The hash of JAX's default keys: two words of a key, two of a count."""
    keys = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x, y = x + keys[0], y + keys[1]
    for i in range(5):
        for turn in ROTATIONS[i % 2]:
            x = x + y
            y = (y << np.uint32(turn) | y >> np.uint32(32 - turn)) ^ x
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x, y


def _hashed(keys: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Of every key with the numbers of every place of the shape."""
    words = np.asarray(jax.random.key_data(keys))
    words = words.reshape(*words.shape[:-1], *[1] * len(shape), 2)
    count = np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
    return _threefry(words[..., 0], words[..., 1], np.uint32(0), count)


def _bits(keys: Any, *, bit_width: int, shape: Sequence[int]) -> Any:
    high, low = _hashed(keys, shape)
    if bit_width == 64:
        return high.astype(np.uint64) << np.uint64(32) | low
    return (high ^ low).astype(f"uint{bit_width}")


def _split(keys: Any, *, shape: Sequence[int]) -> Any:
    return jax.random.wrap_key_data(np.stack(_hashed(keys, shape), -1))


RANDOM: dict[str, Callable] = {"random_bits": _bits, "random_split": _split}

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
    "threefry2x32": _threefry,
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


def evaluate(closed: Any, inputs: Sequence) -> list:
    """The results of a jaxpr; what NumPy has not, such as random bits, is JAX's own."""
    jaxpr = closed.jaxpr
    known = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def value(atom: Any) -> Any:
        found = atom.val if isinstance(atom, jax.extend.core.Literal) else known[atom]
        return _as_aval(found, atom.aval)

    for equation in jaxpr.eqns:
        results = _results(equation, [value(atom) for atom in equation.invars])
        for variable, result in zip(equation.outvars, results, strict=True):
            known[variable] = _as_aval(result, variable.aval)
    return [value(atom) for atom in jaxpr.outvars]


INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def _results(equation: Any, given: list) -> Sequence:
    """Of one primitive: JAX's own for loops, which are long, and for what NumPy has not."""
    primitive, params = equation.primitive, equation.params
    if primitive.name == "cond":
        return evaluate(params["branches"][int(given[0])], given[1:])
    inner = next((params[name] for name in INNER if name in params), None)
    if inner is not None and primitive.name != "scan":
        return evaluate(inner, given)
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
