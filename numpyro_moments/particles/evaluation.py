"""Evaluate a jaxpr whose Normal sites are drawn, with noise for each row of data if possible.

If W is used nowhere else, each row of x W + b is Normal; independent noise per row (the
local reparameterisation trick) keeps the expectation of a sum over rows and lowers its
variance (Kingma, Salimans and Welling 2015; Li and Gal 2017, section 2). If rows are mixed
afterwards (see :mod:`.rows`) or a site is used again, the evaluation starts anew with one
draw of that site.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.numerics import private_apis, squared
from moment_inference import MaskedSite, SharedDrawNeeded, Site, with_shared_draws
from numpyro_moments._host import ClosedJaxpr, apply_equation
from numpyro_moments.particles.rows import RowsMixedError, axes_after, called
from numpyro_moments.particles.undrawn import (
    Rows,
    Undrawn,
    UndrawnRows,
    masked_site_p,
    normal_site_p,
)
from numpyro_moments.rules.shapes.moves import MOVES

_CUSTOM = frozenset(("custom_jvp_call", "custom_vjp_call"))  # calls with custom derivatives


def evaluate(
    consume: Callable[[Evaluation], Any], use_mean: bool = False, use_row_noise: bool = True
) -> Any:
    """Return ``consume(evaluation)``; repeat it with shared draws where sites need them."""
    return with_shared_draws(lambda shared: consume(Evaluation(shared, use_mean, use_row_noise)))


class Evaluation:
    """One evaluation of a program with drawn sites."""

    def __init__(
        self, shared_draws: Collection[str] = (), use_mean: bool = False, use_row_noise: bool = True
    ) -> None:
        # Names of the sites that are drawn once for all rows; whether means replace
        # draws.
        self.shared_draws, self.use_mean = frozenset(shared_draws), use_mean
        self.use_row_noise = use_row_noise and not use_mean  # whether rows may have own noise

    def run(self, program: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
        """Evaluate a program; outputs are arrays, :class:`Rows` or values not yet drawn."""
        jaxpr = private_apis.without_dead_code(program.jaxpr)
        values = dict(zip(jaxpr.constvars, program.consts, strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))
        for equation in jaxpr.eqns:
            results = self._apply(equation, [private_apis.read(v, values) for v in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [private_apis.read(output, values) for output in jaxpr.outvars]

    def _apply(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        if equation.primitive in (normal_site_p, masked_site_p):
            return [Undrawn(self._site(equation, *map(require_array, operands)))]
        if not any(isinstance(operand, Undrawn | UndrawnRows) for operand in operands):
            return _apply_to_draws(equation, operands)
        name = equation.primitive.name
        if name not in _CUSTOM and (program := called(equation)) is not None:
            return self.run(program, operands)
        rule = _DEFERRED_RULES.get(name)
        result = None if rule is None else rule(self, equation, operands)
        return _apply_to_draws(equation, operands) if result is None else [result]

    def _site(self, equation: Any, key: Any, loc: Any, *rest: Any) -> Site:
        name = equation.params["site"]
        if equation.primitive is normal_site_p:
            (scale,) = rest
            row_noise = self.use_row_noise and name not in self.shared_draws
            normal = partial(_normal, key)
            return Site(
                name, loc, scale, normal, is_mean=self.use_mean, may_use_row_noise=row_noise
            )
        masks = jax.tree.unflatten(equation.params["structure"], rest)
        may_share, noise = name not in self.shared_draws, partial(masks.noise, key)
        return MaskedSite(name, masks, noise, is_mean=self.use_mean, may_share=may_share)

    def _multiply_rows(self, equation: Any, operands: Sequence[Any]) -> Any:
        """Return the product of rows and an undrawn weight, or None if rows cannot have noise."""
        masked = [_is_masked(operand) for operand in operands]
        if any(masked) and not self.use_mean:
            return _multiply_masked(equation, operands, masked.index(True))
        with_noise = (k for k, operand in enumerate(operands) if _may_use_row_noise(operand))
        weight_position = next(with_noise, None)
        if weight_position is None:
            return None
        weight = operands[weight_position]
        if not _is_plain_map(equation, weight, 1 - weight_position):
            return None
        inputs = draw_operand(operands[1 - weight_position])
        array, noise_sites, axis = _rows_of(equation, inputs, 1 - weight_position)
        weight.site.use_row_noise()
        mean = _product(equation, weight_position, array, weight.loc)
        variance = _product(equation, weight_position, squared(array), squared(weight.scale))
        return UndrawnRows(mean, variance, axis, [weight.site], noise_sites)

    def _add_bias(self, equation: Any, operands: Sequence[Any]) -> UndrawnRows | None:
        """Return the sum of undrawn rows and a bias that is repeated for each row, else None."""
        rows, bias = operands
        if isinstance(rows, Undrawn):
            rows, bias = bias, rows
        if not (isinstance(rows, UndrawnRows) and _may_use_row_noise(bias)):
            return None
        shape = rows.mean.shape
        if equation.outvars[0].aval.shape != shape or bias.loc.ndim != len(shape):
            return None
        row_axes = set() if rows.axis is None else {rows.axis}
        return rows.plus(bias) if bias.repeated_to(shape) == row_axes else None

    def _move_axes(self, equation: Any, operands: Sequence[Any]) -> Undrawn | None:
        return operands[0].moved(equation) if isinstance(operands[0], Undrawn) else None


def _normal(key: jax.Array, like: jax.Array) -> jax.Array:
    return jax.random.normal(key, like.shape, like.dtype)


def _may_use_row_noise(operand: Any) -> bool:
    return isinstance(operand, Undrawn) and operand.site.may_use_row_noise


def _rows_of(equation: Any, inputs: Any, position: int) -> tuple[Any, frozenset[str], int | None]:
    """Return the array of inputs, the sites in its noise, and its row axis in the result."""
    is_rows = isinstance(inputs, Rows)
    array, noise_sites = (inputs.array, inputs.sites) if is_rows else (inputs, frozenset[str]())
    axes: list[int | None] = [None, None]
    if len(array.shape) == 2 and _row_count(equation, position, array) > 1:
        (axes[position],) = {0, 1} - set(equation.params["dimension_numbers"][0][position])
        if is_rows and inputs.axis != axes[position]:
            raise SharedDrawNeeded(inputs.sites)
    return array, noise_sites, axes_after(equation, axes)[0]


def _product(equation: Any, weight_position: int, inputs: Any, weight: Any) -> Any:
    """Return the product of inputs and a weight, which is one of the two operands."""
    operands = (inputs, weight) if weight_position else (weight, inputs)
    return apply_equation(equation, operands)[0]


def _is_masked(operand: Any) -> bool:
    return isinstance(operand, Undrawn) and isinstance(operand.site, MaskedSite)


def _multiply_masked(equation: Any, operands: Sequence[Any], weight_position: int) -> Any:
    """Return the product of rows and a weight with a mask for each row."""
    position = 1 - weight_position  # of the inputs
    weight, inputs = operands[weight_position], draw_operand(operands[position])
    site: Any = weight.site
    shape = equation.invars[position].aval.shape
    if not _is_plain_map(equation, weight, position) or len(weight.loc.shape) > 2:
        raise site.mask.unsupported_inputs_error(shape, weight.loc.shape)
    array, noise_sites, axis = _rows_of(equation, inputs, position)
    contracted = [axes[0] for axes in equation.params["dimension_numbers"][0]]
    is_vector = len(shape) == 1
    rows = array[None] if is_vector else array.swapaxes(0, 1 - contracted[position])  # [rows, in]
    result = _apply_masks(weight, rows, contracted[weight_position])
    result = result[0] if is_vector else result.swapaxes(0, -1 if weight_position == 0 else 0)
    sites = noise_sites.union([site.name] if site.is_shared else [])
    return Rows(result, axis, sites) if sites and axis is not None else result


def _apply_masks(weight: Undrawn, rows: Any, contracted: int) -> Any:
    """Return rows [rows, in] times a weight with random masks, [rows, out]."""
    site: Any = weight.site
    noise = site.noise(len(rows))
    row_masks = noise.reshape(len(noise), -1)
    if site.mask.per_weight:
        weights = jax.vmap(lambda mask: weight.with_moves(site.loc * mask))(noise)
        weights = jnp.moveaxis(jnp.repeat(weights, len(rows) // len(noise), 0), 1 + contracted, -1)
        return jnp.einsum("n...i,ni->n...", weights, rows)
    if _is_along(site.masks.design.axis, weight, contracted):
        return jnp.tensordot(rows * row_masks, weight.loc, ((1,), (contracted,)))
    # a tied weight, used transposed: the mask is on the output axis
    return jnp.tensordot(rows, weight.loc, ((1,), (contracted,))) * row_masks


def _is_along(axis: int, weight: Undrawn, contracted: int) -> bool:
    """Return whether a site's axis is the contracted one after the weight's moves."""
    shape = weight.site.loc.shape
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    with jax.ensure_compile_time_eval():
        numbers = jnp.broadcast_to(jnp.arange(shape[axis]).reshape(sizes), shape)
        moved = jnp.moveaxis(weight.with_moves(numbers), contracted, -1)
        return bool((moved == jnp.arange(moved.shape[-1])).all())


def _is_plain_map(equation: Any, weight: Undrawn, position: int) -> bool:
    """Return whether a matrix or vector is multiplied by a weight that repeats no element."""
    contracted, batches = equation.params["dimension_numbers"]
    plain = not batches[0] and len(contracted[0]) == 1 and not weight.repeated
    return plain and len(equation.invars[position].aval.shape) <= 2


def _row_count(equation: Any, position: int, array: Any) -> int:
    """Return the number of rows of a matrix that is contracted over its other axis."""
    (contracted,) = equation.params["dimension_numbers"][0][position]
    return array.shape[1 - contracted]


def draw_operand(operand: Any) -> Any:
    """Draw an operand if needed; return an array or Rows."""
    return operand.draw() if isinstance(operand, Undrawn | UndrawnRows) else operand


def require_array(operand: Any) -> Any:
    """Return an operand as an array; raise if its rows have noise of their own."""
    operand = draw_operand(operand)
    if isinstance(operand, Rows):
        raise SharedDrawNeeded(operand.sites)
    return operand


def _apply_to_draws(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """Return results of a primitive on draws; raise if it may mix rows."""
    operands = [draw_operand(operand) for operand in operands]
    rows = [operand for operand in operands if isinstance(operand, Rows)]
    if not rows:
        return apply_equation(equation, operands)
    sites = frozenset[str]().union(*(part.sites for part in rows))
    try:
        axes = axes_after(equation, [getattr(operand, "axis", None) for operand in operands])
    except RowsMixedError:
        raise SharedDrawNeeded(sites) from None
    results = apply_equation(equation, [getattr(operand, "array", operand) for operand in operands])
    return [
        result if axis is None else Rows(result, axis, sites)
        for result, axis in zip(results, axes, strict=True)
    ]


# Rules that keep values undrawn, by primitive.
_DEFERRED_RULES = {
    "dot_general": Evaluation._multiply_rows,
    **dict.fromkeys(("add", "add_any"), Evaluation._add_bias),
    **dict.fromkeys(MOVES, Evaluation._move_axes),
}
