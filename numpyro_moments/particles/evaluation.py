"""Evaluates a jaxpr whose Normal sites are drawn: rows of data by noise of their own if they can.

Local reparameterisation: a map x W + b of rows of data by weights that nothing else uses is Normal
in every row, and what is summed over rows has the same expectation when each row has noise of its
own, with less variance. That rows are not mixed afterwards is followed by :mod:`.rows`; where they
are, or where a site is used again, the evaluation starts anew with one draw of that site.

Source: Kingma, Salimans and Welling 2015; Li and Gal 2017, section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core, source_info_util
from jax.interpreters.partial_eval import dce_jaxpr

from moment_calculus.numerics.matrices import squared
from moment_calculus.operations.dropout.masked import no_rows
from numpyro_moments.particles.rows import Mixed, axes_after, called
from numpyro_moments.particles.undrawn import (
    MaskedSite,
    Rows,
    Site,
    Together,
    Undrawn,
    UndrawnRows,
    masked_site_p,
    normal_site_p,
)

_CUSTOM = frozenset(("custom_jvp_call", "custom_vjp_call"))  # whose derivatives are their own


def evaluated(
    consumed: Callable[[Evaluation], Any], is_mean: bool = False, by_rows: bool = True
) -> Any:
    """Evaluate a program, once more for each set of sites that has to be drawn for all rows.

    Args:
        consumed: runs an evaluation, and makes something of its outputs.
        is_mean: whether the means of the sites stand for draws.
        by_rows: whether rows may have noise of their own at all.

    Returns:
        What it makes of them.
    """
    together: frozenset[str] = frozenset()
    while True:
        try:
            return consumed(Evaluation(together, is_mean, by_rows))
        except Together as found:
            together |= found.sites


class Evaluation:
    """One evaluation.

    Args:
        together: names of the sites that are drawn once for all rows.
        is_mean: whether the means of the sites stand for draws.
        by_rows: whether rows may have noise of their own at all.
    """

    def __init__(
        self, together: Collection[str] = (), is_mean: bool = False, by_rows: bool = True
    ) -> None:
        self.together, self.is_mean = frozenset(together), is_mean
        self.by_rows = by_rows and not is_mean

    def run(self, program: core.ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
        """Evaluate a program.

        Args:
            program: closed jaxpr.
            operands: arrays, or values that are not drawn.

        Returns:
            For each output an array, :class:`Rows` or a value that is not drawn.

        Raises:
            Together: if sites have to be drawn once for all rows.
        """
        jaxpr, _ = dce_jaxpr(program.jaxpr, [True] * len(program.out_avals), instantiate=True)
        values = dict(zip(jaxpr.constvars, program.consts, strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))

        def read(variable: Any) -> Any:
            return variable.val if isinstance(variable, core.Literal) else values[variable]

        for equation in jaxpr.eqns:
            results = self._apply(equation, [read(variable) for variable in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def _apply(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        if equation.primitive in (normal_site_p, masked_site_p):
            return [Undrawn(self._site(equation, *map(certain, operands)))]
        if not any(isinstance(operand, Undrawn | UndrawnRows) for operand in operands):
            return _settled(equation, operands)
        name = equation.primitive.name
        if name not in _CUSTOM and (program := called(equation)) is not None:
            return self.run(program, operands)
        later = _LATER.get(name)
        result = None if later is None else later(self, equation, operands)
        return _settled(equation, operands) if result is None else [result]

    def _site(self, equation: Any, key: Any, loc: Any, *rest: Any) -> Site:
        name = equation.params["site"]
        if equation.primitive is normal_site_p:
            (scale,) = rest
            return Site(name, key, loc, scale, self.is_mean)
        masks = jax.tree.unflatten(equation.params["structure"], rest)
        shared = name not in self.together
        return MaskedSite(name, key, loc, loc, self.is_mean, masks=masks, shared=shared)

    def _can_be_apart(self, operand: Any) -> bool:
        apart = isinstance(operand, Undrawn) and operand.site.name not in self.together
        return apart and self.by_rows and operand.site.can_be_apart

    def _by_rows(self, equation: Any, operands: Sequence[Any]) -> Any:
        """The map of the rows of a matrix by a weight that is not drawn."""
        masked = [_is_masked(operand) for operand in operands]
        if any(masked) and not self.is_mean:
            return _masked(equation, operands, masked.index(True))
        side = next((k for k, part in enumerate(operands) if self._can_be_apart(part)), None)
        if side is None or not _is_plain_map(equation, operands[side], 1 - side):
            return None
        weight, inputs = operands[side], drawn(operands[1 - side])
        array, before, axis = _rows_of(equation, inputs, 1 - side)
        weight.site.take_apart()
        mean = _mapped(equation, side, array, weight.loc)
        variance = _mapped(equation, side, squared(array), squared(weight.scale))
        return UndrawnRows(mean, variance, axis, [weight.site], before)

    def _biased(self, equation: Any, operands: Sequence[Any]) -> UndrawnRows | None:
        """The sum of rows that are not drawn and a bias that is repeated for each row."""
        rows, bias = sorted(operands, key=lambda part: isinstance(part, Undrawn))
        if not (isinstance(rows, UndrawnRows) and self._can_be_apart(bias)):
            return None
        shape = rows.mean.shape
        if equation.outvars[0].aval.shape != shape or bias.loc.ndim != len(shape):
            return None
        along = set() if rows.axis is None else {rows.axis}
        return rows.plus(bias) if bias.repeated_to(shape) == along else None

    def _moved(self, equation: Any, operands: Sequence[Any]) -> Undrawn | None:
        return operands[0].moved(equation) if isinstance(operands[0], Undrawn) else None


def _rows_of(equation: Any, inputs: Any, side: int) -> tuple[Any, frozenset[str], int | None]:
    """An array of inputs, whose noise is in it, and where its rows are in the result, if any are.

    Raises:
        Together: if it has rows of another axis.
    """
    is_rows = isinstance(inputs, Rows)
    array, before = (inputs.array, inputs.sites) if is_rows else (inputs, frozenset[str]())
    axes: list[int | None] = [None, None]
    if len(array.shape) == 2 and _free(equation, side, array) > 1:
        (axes[side],) = {0, 1} - set(equation.params["dimension_numbers"][0][side])
        if is_rows and inputs.axis != axes[side]:
            raise Together(inputs.sites)
    return array, before, axes_after(equation, axes)[0]


def _mapped(equation: Any, side: int, inputs: Any, matrix: Any) -> Any:
    """The product of inputs and a matrix, which stands at a side of it."""
    return _bind(equation, (inputs, matrix) if side else (matrix, inputs))[0]


def _is_masked(operand: Any) -> bool:
    return isinstance(operand, Undrawn) and isinstance(operand.site, MaskedSite)


def _masked(equation: Any, operands: Sequence[Any], side: int) -> Any:
    """The map of rows by a weight under the mask of each row."""
    weight, inputs = operands[side], drawn(operands[1 - side])
    site: Any = weight.site
    shape = equation.invars[1 - side].aval.shape
    if not _is_plain_map(equation, weight, 1 - side) or len(weight.loc.shape) > 2:
        raise no_rows(site.name, shape, weight.loc.shape)
    array, before, axis = _rows_of(equation, inputs, 1 - side)
    (place,), (contracted,) = (equation.params["dimension_numbers"][0][k] for k in (1 - side, side))
    rows = array[None] if len(shape) == 1 else array.swapaxes(0, 1 - place)  # [rows, in]
    noise = site.noise(len(rows))
    each = noise.reshape(len(noise), -1)
    if site.mask.per_weight:
        weights = jax.vmap(lambda mask: weight.with_moves(site.loc * mask))(noise)
        weights = jnp.moveaxis(jnp.repeat(weights, len(rows) // len(noise), 0), 1 + contracted, -1)
        found = jnp.einsum("n...i,ni->n...", weights, rows)
    elif _is_along(site.masks.design.axis, weight, contracted):
        found = jnp.tensordot(rows * each, weight.loc, ((1,), (contracted,)))
    else:  # tied to a map by the transpose
        found = jnp.tensordot(rows, weight.loc, ((1,), (contracted,))) * each
    found = found[0] if len(shape) == 1 else found.swapaxes(0, -1 if side == 0 else 0)
    shared = [site.name] if site.shared else []
    sites = before.union(shared)
    return Rows(found, axis, sites) if sites and axis is not None else found


def _is_along(axis: int, weight: Undrawn, contracted: int) -> bool:
    """Whether an axis of a site is one of its axes after its moves."""
    shape = weight.site.loc.shape
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    with jax.ensure_compile_time_eval():
        numbers = jnp.broadcast_to(jnp.arange(shape[axis]).reshape(sizes), shape)
        moved = jnp.moveaxis(weight.with_moves(numbers), contracted, -1)
        return bool((moved == jnp.arange(moved.shape[-1])).all())


def _is_plain_map(equation: Any, weight: Undrawn, side: int) -> bool:
    """Whether a matrix or vector is mapped by a weight, none of whose elements is repeated."""
    contracted, batches = equation.params["dimension_numbers"]
    plain = not batches[0] and len(contracted[0]) == 1 and not weight.repeated
    return plain and len(equation.invars[side].aval.shape) <= 2


def _free(equation: Any, side: int, array: Any) -> int:
    """How many rows a matrix has that is contracted over its other axis."""
    (contracted,) = equation.params["dimension_numbers"][0][side]
    return array.shape[1 - contracted]


def drawn(operand: Any) -> Any:
    """An operand as an array, or rows of one.

    Args:
        operand: array, or value that is not drawn.
    """
    return operand.draw() if isinstance(operand, Undrawn | UndrawnRows) else operand


def certain(operand: Any) -> Any:
    """An operand as an array, of which no row has noise of its own.

    Args:
        operand: of an equation, or output of a program.

    Raises:
        Together: if rows have.
    """
    operand = drawn(operand)
    if isinstance(operand, Rows):
        raise Together(operand.sites)
    return operand


def _settled(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a primitive on drawn values."""
    operands = [drawn(operand) for operand in operands]
    rows = [operand for operand in operands if isinstance(operand, Rows)]
    if not rows:
        return _bind(equation, operands)
    sites = frozenset[str]().union(*(part.sites for part in rows))
    try:
        axes = axes_after(equation, [getattr(operand, "axis", None) for operand in operands])
    except Mixed:
        raise Together(sites) from None
    results = _bind(equation, [getattr(operand, "array", operand) for operand in operands])
    return [
        result if axis is None else Rows(result, axis, sites)
        for result, axis in zip(results, axes, strict=True)
    ]


def _bind(equation: Any, operands: Sequence[Any]) -> list[Any]:
    primitive = equation.primitive
    trace = equation.source_info.traceback
    with source_info_util.user_context(trace), equation.ctx.manager:
        result = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
    return list(result) if primitive.multiple_results else [result]


# What is done with values that stay undrawn.
_LATER = {
    "dot_general": Evaluation._by_rows,
    **dict.fromkeys(("add", "add_any"), Evaluation._biased),
    **dict.fromkeys(
        ("broadcast_in_dim", "copy", "convert_element_type", "reshape", "squeeze", "transpose"),
        Evaluation._moved,
    ),
}
