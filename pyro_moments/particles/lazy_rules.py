"""Rules for torch functions that need no draw of a latent site yet.

They move elements, or map rows of data by x W + b. If nothing else uses W, the map is
Normal in every row: with noise of its own in each row a sum over rows has the same
expectation and less variance (Kingma, Salimans and Welling 2015; Li and Gal 2017, section
2). :mod:`.rows` then follows whether rows are mixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus.numerics import squared
from moment_inference import MaskedSite, SharedDrawNeeded
from pyro_moments.particles.noise import unrolled
from pyro_moments.particles.undrawn import (
    LAZY_RULES,
    Rows,
    Undrawn,
    UndrawnRows,
    draw_all,
    in_rows,
    sites_of_rows,
)
from pyro_moments.rules.recurrent import CELLS
from pyro_moments.rules.table import named

Tensor = torch.Tensor


def _move(function: Callable) -> Callable[..., Undrawn | None]:
    """Return the rule of a function that moves elements and repeats none."""

    def rule(input: Any, *args: Any, **kwargs: Any) -> Undrawn | None:
        if not isinstance(input, Undrawn):
            return None
        return Undrawn(
            input.site, (*input.rearrangements, lambda part: function(part, *args, **kwargs))
        )

    return rule


for _function in {
    *named("t", "adjoint", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis"),
    *named("reshape", "view", "flatten", "squeeze", "unsqueeze", "contiguous", "clone"),
    *named("to", "type_as", "float", "double"),
    *(Tensor.T.__get__, Tensor.mT.__get__),  # type: ignore[attr-defined]
}:
    LAZY_RULES[_function] = _move(_function)


def _drawn_layer(name: str) -> Callable:
    """Return the rule of a recurrent layer, which draws, and runs step by step under vmap."""
    layer = unrolled(name)

    def rule(*args: Any) -> Any:
        drawn = draw_all(args)
        return None if sites_of_rows(drawn) else layer(*drawn)

    return rule


for _name in CELLS:
    LAZY_RULES[getattr(torch, _name)] = _drawn_layer(_name)


@LAZY_RULES.register(*named("expand", "broadcast_to"))
def _as_it_is(input: Any, *sizes: Any) -> Any:
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return input if shape == tuple(input.shape) else None


@LAZY_RULES.register(F.linear)
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, Undrawn) or weight.dim() > 2:
        return None
    if isinstance(weight.site, MaskedSite) and not weight.site.is_mean:
        rows = _masked(draw_all(input), weight)
        return rows if bias is None else rows + bias
    if not weight.site.may_use_row_noise:
        return None
    input, input_sites = _matrix(draw_all(input))
    if input is None:
        return None
    weight.site.use_row_noise()
    mean, variance = F.linear(input, weight.loc), F.linear(squared(input), squared(weight.scale))
    rows = UndrawnRows(
        mean,
        variance_=variance,
        sites=(weight.site,),
        has_rows=input.dim() > 1,
        input_sites=input_sites,
    )
    return rows if bias is None else rows + bias


def _masked(input: Any, weight: Undrawn) -> Any:
    """Return the map of rows by a weight with a mask for each row."""
    site: Any = weight.site
    shape, (input, input_sites) = tuple(input.shape), _matrix(input)
    if input is None or shape[-1:] != tuple(weight.shape[-1:]):
        raise site.mask.unsupported_inputs_error(shape, tuple(weight.shape))
    rows, axis = input if len(shape) > 1 else input[None], site.masks.design.axis
    noise = site.noise(len(rows))
    if site.mask.per_weight:
        each = torch.vmap(lambda mask: weight.rearrange(site.loc * mask))(noise)
        result = torch.einsum("n...i,ni->n...", each.expand(len(rows), *weight.shape), rows)
    elif _is_last(axis, weight):
        result = F.linear(rows * noise.flatten(1), weight.loc)
    else:  # a weight that is tied: its transpose is the map
        result = F.linear(rows, weight.loc) * noise.flatten(1)
    result = result if len(shape) > 1 else result[0]
    shared = [site] if site.is_shared else []
    return in_rows(result, bool(input_sites or shared) and len(shape) > 1, input_sites, shared)


def _is_last(axis: int, weight: Undrawn) -> bool:
    """Tell if an axis of a site is the trailing one after the moves of the weight."""
    sizes = [1] * weight.site.loc.dim()
    sizes[axis] = weight.site.loc.shape[axis]
    index = torch.arange(sizes[axis], device="cpu").reshape(sizes).expand(weight.site.loc.shape)
    moved = weight.rearrange(index)
    return bool((moved == torch.arange(moved.shape[-1], device=moved.device)).all())


def _matrix(input: Any) -> tuple[Tensor | None, frozenset[str]]:
    """Return rows or a vector and the names of weights whose noise it has, or (None, {})."""
    if not isinstance(input, Tensor) or input.dim() not in (1, 2):
        return None, frozenset()
    if not isinstance(input, Rows):
        return input, frozenset()
    if input.axis != -2:
        raise SharedDrawNeeded(input.sites)
    return input.tensor, input.sites


@LAZY_RULES.register(*named("matmul", "__matmul__", "mm", "mv"))
def _product(input: Any, other: Any) -> Any:
    if isinstance(other, Undrawn) and other.dim() <= 2:
        return _linear(input, other.mT if other.dim() == 2 else other)
    if not isinstance(input, Undrawn) or max(input.dim(), other.dim()) > 2:
        return None
    result = _linear(other.mT if other.dim() == 2 else other, input)
    return result if result is None or result.dim() < 2 else result.mT


@LAZY_RULES.register(*named("__rmatmul__"))
def _reversed(input: Any, other: Any) -> Any:
    return _product(other, input)


@LAZY_RULES.register(torch.einsum)
def _einsum(equation: Any, *operands: Any) -> Any:
    """Return the map of rows by a masked weight; else None."""
    if len(operands) != 2 or not isinstance(equation, str) or not any(map(_is_masked, operands)):
        return None
    names, _, result = equation.replace(" ", "").partition("->")
    left, right = zip(names.split(","), operands, strict=True)
    (of_input, input), (of_weight, weight) = (right, left) if _is_masked(left[1]) else (left, right)
    summed = [name for name in of_weight if name in of_input]
    rows = [name for name in of_input if name not in summed]
    outputs = [name for name in of_weight if name not in summed]
    if "." in equation or len(summed) != 1 or sorted(result) != sorted(rows + outputs):
        return None
    input = input.permute([of_input.index(name) for name in rows + summed])
    weight = weight.permute([of_weight.index(name) for name in outputs + summed])
    return _linear(input, weight).permute([(rows + outputs).index(name) for name in result])


def _is_masked(operand: Any) -> bool:
    return isinstance(operand, Undrawn) and isinstance(operand.site, MaskedSite)


@LAZY_RULES.register(*named("addmm"))
def _with_addend(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    plain = beta == 1 and alpha == 1 and isinstance(mat2, Undrawn)
    fits = plain and tuple(input.shape) == tuple(mat2.shape[1:])
    return _linear(mat1, mat2.mT, input) if fits else None


@LAZY_RULES.register(*named("add", "__add__", "__radd__"))
def _sum(input: Any, other: Any, *, alpha: float = 1) -> UndrawnRows | None:
    rows, bias = (other, input) if isinstance(input, Undrawn) else (input, other)
    if not (isinstance(rows, UndrawnRows) and isinstance(bias, Undrawn) and alpha == 1):
        return None
    if rows._draw is not None or not bias.site.may_use_row_noise:
        return None
    if tuple(bias.shape) != tuple(rows.shape[rows.has_rows :]):
        return None
    bias.site.use_row_noise()
    return UndrawnRows(
        rows.tensor + bias.loc,
        variance_=rows.variance_ + squared(bias.scale),
        sites=(*rows.sites, bias.site),
        has_rows=rows.has_rows,
        input_sites=rows.input_sites,
    )
