"""Evaluate a jaxpr whose Normal sites are drawn, with noise for each row of data if possible.

If nothing else uses W, a map x W + b of rows is Normal in every row: with noise of its
own in each row a sum over rows has the same expectation and less variance (Kingma,
Salimans and Welling 2015; Li and Gal 2017, section 2). If rows are mixed afterwards (see
:mod:`.rows`) or a site is used again, the evaluation starts anew with one draw of that
site.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from guides.families.drawn_sites import MaskedSite, SharedDrawNeeded, Site, with_shared_draws
from moment_calculus.numerics.matrices import squared
from moment_calculus.numerics.private_apis import read, without_dead_code
from moment_calculus.operations.dropout.masked_weight import unsupported_inputs_error
from numpyro_moments._host import ClosedJaxpr, apply_equation
from numpyro_moments.particles.rows import Mixed, axes_after, called
from numpyro_moments.particles.undrawn import (
    Rows,
    Undrawn,
    UndrawnRows,
    masked_site_p,
    normal_site_p,
)

_CUSTOM = frozenset(("custom_jvp_call", "custom_vjp_call"))  # calls with custom derivatives


def evaluated(
    consumed: Callable[[Evaluation], Any], is_mean: bool = False, by_rows: bool = True
) -> Any:
    """Return what ``consumed`` makes of an evaluation; repeat it if sites need one draw."""
    return with_shared_draws(lambda shared: consumed(Evaluation(shared, is_mean, by_rows)))


class Evaluation:
    """One evaluation of a program with drawn sites."""

    def __init__(
        self, shared_draws: Collection[str] = (), is_mean: bool = False, by_rows: bool = True
    ) -> None:
        # Names of the sites that are drawn once for all rows; whether means replace
        # draws.
        self.shared_draws, self.is_mean = frozenset(shared_draws), is_mean
        self.by_rows = by_rows and not is_mean  # whether rows may have noise of their own

    def run(self, program: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
        """Evaluate a program: each output is an array, :class:`Rows` or not drawn yet."""
        jaxpr = without_dead_code(program.jaxpr)
        values = dict(zip(jaxpr.constvars, program.consts, strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))
        for equation in jaxpr.eqns:
            results = self._apply(equation, [read(v, values) for v in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(output, values) for output in jaxpr.outvars]

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
            own_noise = self.by_rows and name not in self.shared_draws
            normal = partial(_normal, key)
            return Site(name, loc, scale, normal, is_mean=self.is_mean, may_use_row_noise=own_noise)
        masks = jax.tree.unflatten(equation.params["structure"], rest)
        may_share, noise = name not in self.shared_draws, partial(masks.noise, key)
        return MaskedSite(name, masks, noise, is_mean=self.is_mean, may_share=may_share)

    def _by_rows(self, equation: Any, operands: Sequence[Any]) -> Any:
        """Return the map of the rows of a matrix by an undrawn weight; else None."""
        masked = [_is_masked(operand) for operand in operands]
        if any(masked) and not self.is_mean:
            return _masked(equation, operands, masked.index(True))
        side = next((k for k, part in enumerate(operands) if _may_use_row_noise(part)), None)
        if side is None or not _is_plain_map(equation, operands[side], 1 - side):
            return None
        weight, inputs = operands[side], drawn(operands[1 - side])
        array, before, axis = _rows_of(equation, inputs, 1 - side)
        weight.site.use_row_noise()
        mean = _mapped(equation, side, array, weight.loc)
        variance = _mapped(equation, side, squared(array), squared(weight.scale))
        return UndrawnRows(mean, variance, axis, [weight.site], before)

    def _biased(self, equation: Any, operands: Sequence[Any]) -> UndrawnRows | None:
        """Return the sum of undrawn rows and a bias that is repeated for each row, else None."""
        rows, bias = sorted(operands, key=lambda part: isinstance(part, Undrawn))
        if not (isinstance(rows, UndrawnRows) and _may_use_row_noise(bias)):
            return None
        shape = rows.mean.shape
        if equation.outvars[0].aval.shape != shape or bias.loc.ndim != len(shape):
            return None
        along = set() if rows.axis is None else {rows.axis}
        return rows.plus(bias) if bias.repeated_to(shape) == along else None

    def _moved(self, equation: Any, operands: Sequence[Any]) -> Undrawn | None:
        return operands[0].moved(equation) if isinstance(operands[0], Undrawn) else None


def _normal(key: jax.Array, like: jax.Array) -> jax.Array:
    return jax.random.normal(key, like.shape, like.dtype)


def _may_use_row_noise(operand: Any) -> bool:
    return isinstance(operand, Undrawn) and operand.site.may_use_row_noise


def _rows_of(equation: Any, inputs: Any, side: int) -> tuple[Any, frozenset[str], int | None]:
    """Return an array of inputs, the sites whose noise it has, and the rows' axis in the result."""
    is_rows = isinstance(inputs, Rows)
    array, before = (inputs.array, inputs.sites) if is_rows else (inputs, frozenset[str]())
    axes: list[int | None] = [None, None]
    if len(array.shape) == 2 and _free(equation, side, array) > 1:
        (axes[side],) = {0, 1} - set(equation.params["dimension_numbers"][0][side])
        if is_rows and inputs.axis != axes[side]:
            raise SharedDrawNeeded(inputs.sites)
    return array, before, axes_after(equation, axes)[0]


def _mapped(equation: Any, side: int, inputs: Any, matrix: Any) -> Any:
    """Return the product of inputs and a matrix, which is the operand ``side`` of it."""
    return apply_equation(equation, (inputs, matrix) if side else (matrix, inputs))[0]


def _is_masked(operand: Any) -> bool:
    return isinstance(operand, Undrawn) and isinstance(operand.site, MaskedSite)


def _masked(equation: Any, operands: Sequence[Any], side: int) -> Any:
    """Return the map of rows by a weight with a mask for each row."""
    weight, inputs = operands[side], drawn(operands[1 - side])
    site: Any = weight.site
    shape = equation.invars[1 - side].aval.shape
    if not _is_plain_map(equation, weight, 1 - side) or len(weight.loc.shape) > 2:
        raise unsupported_inputs_error(site.name, shape, weight.loc.shape)
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
    else:  # a weight that is tied: its transpose is the map
        found = jnp.tensordot(rows, weight.loc, ((1,), (contracted,))) * each
    found = found[0] if len(shape) == 1 else found.swapaxes(0, -1 if side == 0 else 0)
    shared = [site.name] if site.is_shared else []
    sites = before.union(shared)
    return Rows(found, axis, sites) if sites and axis is not None else found


def _is_along(axis: int, weight: Undrawn, contracted: int) -> bool:
    """Tell if an axis of a site is the contracted axis after the moves of the weight."""
    shape = weight.site.loc.shape
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    with jax.ensure_compile_time_eval():
        numbers = jnp.broadcast_to(jnp.arange(shape[axis]).reshape(sizes), shape)
        moved = jnp.moveaxis(weight.with_moves(numbers), contracted, -1)
        return bool((moved == jnp.arange(moved.shape[-1])).all())


def _is_plain_map(equation: Any, weight: Undrawn, side: int) -> bool:
    """Tell if a matrix or vector is mapped by a weight without repeated elements."""
    contracted, batches = equation.params["dimension_numbers"]
    plain = not batches[0] and len(contracted[0]) == 1 and not weight.repeated
    return plain and len(equation.invars[side].aval.shape) <= 2


def _free(equation: Any, side: int, array: Any) -> int:
    """Return the number of rows of a matrix that is contracted over its other axis."""
    (contracted,) = equation.params["dimension_numbers"][0][side]
    return array.shape[1 - contracted]


def drawn(operand: Any) -> Any:
    """Return an operand as an array, or as Rows; it is drawn if it was not."""
    return operand.draw() if isinstance(operand, Undrawn | UndrawnRows) else operand


def certain(operand: Any) -> Any:
    """Return an operand as an array; raise if its rows have noise of their own."""
    operand = drawn(operand)
    if isinstance(operand, Rows):
        raise SharedDrawNeeded(operand.sites)
    return operand


def _settled(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """Return results of a primitive on draws; raise if it may mix rows."""
    operands = [drawn(operand) for operand in operands]
    rows = [operand for operand in operands if isinstance(operand, Rows)]
    if not rows:
        return apply_equation(equation, operands)
    sites = frozenset[str]().union(*(part.sites for part in rows))
    try:
        axes = axes_after(equation, [getattr(operand, "axis", None) for operand in operands])
    except Mixed:
        raise SharedDrawNeeded(sites) from None
    results = apply_equation(equation, [getattr(operand, "array", operand) for operand in operands])
    return [
        result if axis is None else Rows(result, axis, sites)
        for result, axis in zip(results, axes, strict=True)
    ]


# Rules that keep values undrawn, by primitive.
_LATER = {
    "dot_general": Evaluation._by_rows,
    **dict.fromkeys(("add", "add_any"), Evaluation._biased),
    **dict.fromkeys(
        ("broadcast_in_dim", "copy", "convert_element_type", "reshape", "squeeze", "transpose"),
        Evaluation._moved,
    ),
}
