"""Rules that give the axis of the rows of data in the results of a primitive.

Draws that are independent from row to row stay so as long as no operation mixes rows: each rule
follows the axis of the rows through one kind of primitive, or raises. A primitive without a rule
may mix rows, and raises too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moment_calculus.numerics import private_apis
from moment_calculus.operations import catalogue as ops
from numpyro_moments._host import ClosedJaxpr, Jaxpr
from numpyro_moments.rules import elementwise
from numpyro_moments.rules.shapes.moves import MOVES
from numpyro_moments.rules.table import RULES

Axes = Sequence[int | None]  # of the rows in each operand; None for those without rows
# Primitives without moments that compute element by element, beside those of the rules.
_ELEMENTWISE = (
    "copy_p igamma igammac imag name polygamma real reduce_precision regularized_incomplete_beta "
    "stop_gradient zeta"
).split()
_ELEMENTWISE += [name for name, rule in RULES.items() if rule.__module__ == elementwise.__name__]
_REDUCTIONS = frozenset(
    "argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum".split()
)
# Primitives that mix elements along one axis alone, and the parameter that names it.
_ALONG = {
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), "axis"),
    **dict.fromkeys(("concatenate", "sort"), "dimension"),
}
# Primitives that call a program, and the parameter that holds it.
_CALLS = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


class RowsMixedError(Exception):
    """Raised if an operation may let rows depend on each other."""


def called(equation: Any) -> ClosedJaxpr | None:
    """Return the program that an equation calls once, unchanged; else None."""
    name = _CALLS.get(equation.primitive.name)
    program = None if name is None else equation.params[name]
    return ClosedJaxpr(program, ()) if isinstance(program, Jaxpr) else program


def axes_after(equation: Any, axes: Axes) -> list[int | None]:
    """Return the axis of the rows in each result; raise RowsMixedError if rows mix."""
    if all(axis is None for axis in axes):
        return [None] * len(equation.outvars)
    if (program := called(equation)) is not None:
        return _axes_through_program(program.jaxpr, axes)
    rule = _RULES.get(equation.primitive.name)
    if rule is None:
        raise RowsMixedError(equation.primitive.name)
    return [rule(equation, axes)] * len(equation.outvars)


def _axes_through_program(program: Jaxpr, axes: Axes) -> list[int | None]:
    """Return the axis of the rows in each output, equation by equation."""
    axis_of: dict[Any, int | None] = dict(zip(program.invars, axes, strict=True))

    def read(variable: Any) -> int | None:
        return None if private_apis.is_constant(variable) else axis_of.get(variable)

    for equation in program.eqns:
        result_axes = axes_after(equation, [read(variable) for variable in equation.invars])
        axis_of.update(zip(equation.outvars, result_axes, strict=True))
    return [read(variable) for variable in program.outvars]


def _common_axis(axes: Axes) -> int:
    """Return the axis of the rows if it is the same in all operands that have rows; else raise."""
    found = {axis for axis in axes if axis is not None}
    if len(found) > 1:
        raise RowsMixedError("operands with rows along different axes")
    return found.pop()


def _moved(equation: Any, axes: Axes) -> int:
    """Rearrange an array whose strides tell where the rows are, and look where they went."""
    axis, shape = _common_axis(axes), equation.invars[0].aval.shape
    moved = MOVES[equation.primitive.name](ops.array_of_rows(shape, axis), **equation.params)
    result_axis = ops.axis_of_rows(moved.shape, moved.strides, shape[axis])
    return _axis_unless(result_axis is None, (result_axis or 0) % max(moved.ndim, 1))


def _reduction(equation: Any, axes: Axes) -> int:
    axis, gone = _common_axis(axes), equation.params["axes"]
    return _axis_unless(axis in gone, axis - sum(other < axis for other in gone))


def _along(equation: Any, axes: Axes) -> int:
    axis = _common_axis(axes)
    return _axis_unless(equation.params[_ALONG[equation.primitive.name]] == axis, axis)


def _slice(equation: Any, axes: Axes) -> int:
    axis = _common_axis(axes)
    return _axis_unless(_size(equation, axis) != equation.outvars[0].aval.shape[axis], axis)


def _pad(equation: Any, axes: Axes) -> int:
    axis = _common_axis(axes)
    return _axis_unless(any(equation.params["padding_config"][axis]) or axes[1] is not None, axis)


def _dot(equation: Any, axes: Axes) -> int:
    """Return the axis of the rows, which is of the batch or free; contracted rows would mix."""
    contracted, batches = equation.params["dimension_numbers"]
    result_axes = set()
    sizes = [len(variable.aval.shape) for variable in equation.invars]
    for side, axis in enumerate(axes):
        if axis is None:
            continue
        if axis in batches[side]:
            result_axes.add(tuple(batches[side]).index(axis))
            continue
        bound = (*batches[side], *contracted[side])
        free = [dimension for dimension in range(sizes[side]) if dimension not in bound]
        other = sizes[0] - len(batches[0]) - len(contracted[0]) if side else 0
        result_axes.add(
            _axis_unless(axis not in free, len(batches[side]) + other) + _index_or_zero(free, axis)
        )
    return _axis_unless(len(result_axes) > 1, result_axes.pop())


def _index_or_zero(dimensions: list[int], axis: int) -> int:
    return dimensions.index(axis) if axis in dimensions else 0


def _convolution(equation: Any, axes: Axes) -> int:
    numbers, groups = equation.params["dimension_numbers"], equation.params["batch_group_count"]
    mixes = axes[0] != numbers.lhs_spec[0] or axes[1] is not None or groups != 1
    return _axis_unless(mixes, numbers.out_spec[0])


def _window(equation: Any, axes: Axes) -> int:
    axis, of = _common_axis(axes), equation.params
    moves = of["window_dimensions"][axis], of["window_strides"][axis]
    return _axis_unless(moves != (1, 1) or any(of["padding"][axis]), axis)


def _gather(equation: Any, axes: Axes) -> int:
    """Return the axis of the rows if each row has indices of its own."""
    numbers, (taken, indices) = equation.params["dimension_numbers"], axes
    if indices is not None or taken not in numbers.operand_batching_dims:
        raise RowsMixedError("gather")
    dimension = numbers.operand_batching_dims.index(taken)
    batch = numbers.start_indices_batching_dims[dimension]
    rank = len(equation.outvars[0].aval.shape)
    return [axis for axis in range(rank) if axis not in numbers.offset_dims][batch]


def _size(equation: Any, axis: int) -> int:
    return equation.invars[0].aval.shape[axis]


def _axis_unless(mixes: bool, axis: int) -> int:
    """Return an axis; raise RowsMixedError if rows mix."""
    if mixes:
        raise RowsMixedError("rows")
    return axis


_RULES: dict[str, Callable[[Any, Axes], int]] = {
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(_ELEMENTWISE, lambda equation, axes: _common_axis(axes)),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_ALONG, _along),
    "slice": _slice,
    "pad": _pad,
    "dot_general": _dot,
    "conv_general_dilated": _convolution,
    "reduce_window_max": _window,
    "reduce_window_sum": _window,
    "reduce_window_min": _window,
    "gather": _gather,
}
