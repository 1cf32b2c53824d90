"""Run small operations by NumPy: JAX compiles each, for every shape, where it runs alone.

Starting a guide runs the model once and makes distributions, some two hundred operations on a
few numbers each, of which JAX takes 20 ms to compile one: 3 to 10 s that a program does not need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from moment_calculus.numerics import private_apis
from numpyro_moments import _host

LARGEST = 1 << 14  # elements of an array that NumPy computes; more are worth a compilation
KINDS = "biuf"  # of dtypes: no random keys, no bfloat16
Operation = Callable[..., Any]  # of arrays and the parameters of a primitive


def _plain(function: Callable) -> Operation:
    """Return an operation without parameters that matter to NumPy."""
    return lambda *arrays, **_: function(*arrays)


def _broadcast(
    array: np.ndarray, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: Any
) -> np.ndarray:
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, array.shape, strict=True):
        sizes[axis] = size
    return np.broadcast_to(array.reshape(sizes), shape)


def _reshape(
    array: np.ndarray, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None, **_: Any
) -> np.ndarray:
    return (array if dimensions is None else array.transpose(dimensions)).reshape(new_sizes)


def _slice(
    array: np.ndarray,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None,
) -> np.ndarray:
    steps = strides or [1] * array.ndim
    return array[tuple(map(slice, start_indices, limit_indices, steps))]


def _split(array: np.ndarray, *, sizes: Sequence[int], axis: int) -> list[np.ndarray]:
    return np.split(array, np.cumsum(sizes)[:-1], axis)


def _product(left: np.ndarray, right: np.ndarray, *, dimension_numbers: Any, **_: Any) -> Any:
    (ours, theirs), (batch, other_batch) = dimension_numbers
    first, second = [*range(left.ndim)], [*range(left.ndim, left.ndim + right.ndim)]
    for one, other in (*zip(ours, theirs, strict=True), *zip(batch, other_batch, strict=True)):
        second[other] = first[one]
    rest = [axis for axis in first if axis not in {*map(first.__getitem__, (*ours, *batch))}]
    rest += [axis for axis in second if axis >= left.ndim]
    return np.einsum(left, first, right, second, [*batch, *rest])


def _select(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    return np.choose(which.astype(int), cases)


def _shifted_right(array: np.ndarray, places: np.ndarray) -> np.ndarray:
    unsigned = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    shifted = unsigned >> places.astype(unsigned.dtype)
    return np.where(places < 8 * array.dtype.itemsize, shifted, 0).astype(array.dtype)


ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


def _threefry(*words: np.ndarray) -> list[np.ndarray]:
    """Return random bits of two words of a key and two of a counter, in 20 rounds.

    Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
    """
    first, second, left, right = (np.asarray(word, np.uint32) for word in words)
    keys = first, second, first ^ second ^ PARITY
    left, right = left + first, right + second
    for count in range(5):
        for places in ROTATIONS[count % 2]:
            left = left + right
            right = left ^ (right << np.uint32(places) | right >> np.uint32(32 - places))
        left = left + keys[(count + 1) % 3]
        right = right + keys[(count + 2) % 3] + np.uint32(count + 1)
    return [left, right]


def _counters(*, shape: Sequence[int]) -> list[np.ndarray]:
    numbers = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return [numbers >> np.uint64(32), numbers]


def _scan(function: Callable) -> Operation:
    def along(array: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
        turned = np.flip(array, axis) if reverse else array
        result = function(turned, axis=axis, dtype=array.dtype)
        return np.flip(result, axis) if reverse else result

    return along


def _over(function: Callable) -> Operation:
    return lambda array, *, axes, **_: function(array, axis=tuple(axes))


OPERATIONS: dict[str, Operation] = {
    **{
        name: _plain(function)
        for name, function in {
            "abs": np.abs,
            "add": np.add,
            "and": np.bitwise_and,
            "atanh": np.arctanh,
            "clamp": lambda low, array, high: np.clip(array, low, high),
            "copy": np.asarray,
            "ceil": np.ceil,
            "cosh": np.cosh,
            "div": np.divide,
            "eq": np.equal,
            "erf": special.erf,
            "exp": np.exp,
            "expm1": np.expm1,
            "floor": np.floor,
            "ge": np.greater_equal,
            "gt": np.greater,
            "is_finite": np.isfinite,
            "le": np.less_equal,
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
            "or": np.bitwise_or,
            "pow": np.power,
            "rem": np.fmod,
            "select_n": _select,
            "shift_right_logical": _shifted_right,
            "sign": np.sign,
            "sinh": np.sinh,
            "sqrt": np.sqrt,
            "square": np.square,
            "stop_gradient": np.asarray,
            "sub": np.subtract,
            "tanh": np.tanh,
            "threefry2x32": _threefry,
        }.items()
    },
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda *arrays, dimension: np.concatenate(arrays, dimension),
    "convert_element_type": lambda array, *, new_dtype, **_: array.astype(new_dtype),
    "cumprod": _scan(np.cumprod),
    "cumsum": _scan(np.cumsum),
    "dot_general": _product,
    "integer_pow": lambda array, *, y: array**y,
    "iota_2x32_shape": _counters,
    "iota": lambda *, dtype, shape, dimension, **_: _broadcast(
        np.arange(shape[dimension], dtype=dtype), shape=shape, broadcast_dimensions=[dimension]
    ),
    "reduce_and": _over(np.logical_and.reduce),
    "reduce_max": _over(np.max),
    "reduce_min": _over(np.min),
    "reduce_or": _over(np.logical_or.reduce),
    "reduce_prod": _over(np.prod),
    "reduce_sum": _over(np.sum),
    "reshape": _reshape,
    "rev": lambda array, *, dimensions: np.flip(array, dimensions),
    "slice": _slice,
    "split": _split,
    "squeeze": lambda array, *, dimensions: np.squeeze(array, tuple(dimensions)),
    "transpose": lambda array, *, permutation: np.transpose(array, permutation),
}
OF_FLOATS = frozenset({"div", "integer_pow", "pow", "rem"})  # here: others round differently
OF_KEYS = frozenset({"random_seed", "random_split", "random_fold_in"})  # of operations on words


def _is_small(shaped: Any) -> bool:
    """Return whether an array of a shape and dtype is one that NumPy computes."""
    is_plain = isinstance(shaped.dtype, np.dtype) and shaped.dtype.kind in KINDS
    return is_plain and math.prod(shaped.shape) <= LARGEST


def _is_known(name: str, shaped: Sequence[Any], params: Mapping[str, Any]) -> bool:
    """Return whether NumPy computes a primitive for operands and results like these."""
    if name not in OPERATIONS or not all(map(_is_small, shaped)):
        return False
    if name in OF_FLOATS and any(part.dtype.kind != "f" for part in shaped):
        return False
    return params.get("sharding") is None and params.get("out_sharding") is None


def _program_of(name: str, params: Mapping[str, Any]) -> Any:
    """Return the closed program that a call of this name runs, or None."""
    return params["jaxpr"] if name == "jit" else None


def _is_whole(program: Any) -> bool:
    """Return whether NumPy computes every equation of an open program."""
    for equation in program.eqns:
        name, inner = equation.primitive.name, _program_of(equation.primitive.name, equation.params)
        if inner is not None:
            if not _is_whole(inner.jaxpr):
                return False
            continue
        shaped = [part.aval for part in (*equation.invars, *equation.outvars)]
        if not _is_known(name, shaped, equation.params):
            return False
    return True


def _computed(name: str, arrays: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    """Return the results of a primitive or of a call."""
    if (program := _program_of(name, params)) is not None:
        return _run(program.jaxpr, program.consts, arrays)
    result = OPERATIONS[name](*arrays, **params)
    return result if isinstance(result, list) else [result]


def _run(program: Any, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """Evaluate an open program."""
    known = dict(zip(program.constvars, map(np.asarray, consts), strict=True))
    known |= dict(zip(program.invars, operands, strict=True))
    read = lambda part: np.asarray(private_apis.read(part, known))  # noqa: E731
    for equation in program.eqns:
        arrays = [read(part).astype(part.aval.dtype, copy=False) for part in equation.invars]
        results = _computed(equation.primitive.name, arrays, equation.params)
        known |= dict(zip(equation.outvars, results, strict=True))
    return [read(part) for part in program.outvars]


class _Eager(_host.EvalTrace):
    """Evaluates operations as they come, small ones by NumPy."""

    def process_primitive(self, primitive: Any, operands: Any, params: Any, /) -> Any:
        """Return the results of an operation."""
        if primitive.name in OF_KEYS:
            with _host.evaluating_by(self):
                return primitive.impl(*operands, **params)
        results = self._by_numpy(primitive, operands, params)
        if results is None:
            with _host.evaluating():
                return super().process_primitive(primitive, operands, params)
        return results if primitive.multiple_results else results[0]

    def _by_numpy(self, primitive: Any, operands: Any, params: Any) -> list[Any] | None:
        name, program = primitive.name, _program_of(primitive.name, params)
        if (name not in OPERATIONS and program is None) or not all(map(_is_here, operands)):
            return None
        shaped = [jax.typeof(operand) for operand in operands]
        if program is None:
            made, _ = primitive.abstract_eval(*shaped, **params)
            made = [*made] if primitive.multiple_results else [made]
            if not _is_known(name, [*shaped, *made], params):
                return None
        else:
            made = [*program.out_avals]
            if not (all(map(_is_small, [*shaped, *made])) and _is_whole(program.jaxpr)):
                return None
        arrays = [np.asarray(each, part.dtype) for each, part in zip(operands, shaped, strict=True)]
        with np.errstate(all="ignore"):
            results = _computed(name, arrays, params)
        with _host.evaluating():
            return [_in_jax(*pair) for pair in zip(results, made, strict=True)]

    def process_custom_jvp_call(
        self, primitive: Any, function: Any, jvp: Any, operands: Any, /, **_: Any
    ) -> Any:
        """Return the values of a function with derivatives of its own."""
        with _host.evaluating_by(self):
            return function.call_wrapped(*operands)

    def process_custom_vjp_call(
        self, primitive: Any, function: Any, forward: Any, back: Any, operands: Any, /, **_: Any
    ) -> Any:
        """Return the values of a function with derivatives of its own."""
        with _host.evaluating_by(self):
            return function.call_wrapped(*operands)


def _is_here(operand: Any) -> bool:
    """Return whether NumPy sees an operand's numbers without moving them between devices."""
    if not isinstance(operand, jax.Array):
        return isinstance(operand, np.ndarray | np.generic | int | float)
    is_whole = operand.is_fully_addressable and len(operand.devices()) == 1
    return is_whole and (not operand.committed or jax.device_count() == 1)


def _in_jax(result: Any, shaped: Any) -> jax.Array:
    """Return an array of JAX with the shape, dtype and weakness that its primitive gives it."""
    array = jnp.asarray(np.array(result, shaped.dtype).reshape(shaped.shape))
    return _host.weak(array) if shaped.weak_type else array


@contextmanager
def small_operations_by_numpy() -> Iterator[None]:
    """Run small operations inside by NumPy, where JAX would compile each of them."""
    stops_at_nan = getattr(jax.config, "jax_debug_nans")  # noqa: B009
    if not _host.is_evaluating() or jax.default_backend() != "cpu" or stops_at_nan:
        yield
        return
    with _host.evaluating_by(_Eager()):
        yield
