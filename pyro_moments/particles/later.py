"""Functions that leave values undrawn: what moves elements, and maps of rows of data.

Local reparameterisation: a map x W + b of rows of data by weights that nothing else uses is Normal
in every row, and what is summed over rows has the same expectation when each row has noise of its
own, with less variance. :mod:`.rows` follows whether rows are mixed afterwards.

Source: Kingma, Salimans and Welling 2015; Li and Gal 2017, section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus.numerics.matrices import squared
from pyro_moments.particles.site import MaskedSite, Together
from pyro_moments.particles.undrawn import LATER, Rows, Undrawn, UndrawnRows, drawn, in_rows
from pyro_moments.rules.table import named

Tensor = torch.Tensor


def _later(*functions: Callable) -> Callable[[Callable], Callable]:
    def register(rule: Callable) -> Callable:
        LATER.update(dict.fromkeys(functions, rule))
        return rule

    return register


def _move(function: Callable) -> Callable[..., Undrawn | None]:
    """What a function does that moves elements, and repeats none."""

    def rule(input: Any, *args: Any, **kwargs: Any) -> Undrawn | None:
        if not isinstance(input, Undrawn):
            return None
        return Undrawn(input.site, (*input.moves, lambda part: function(part, *args, **kwargs)))

    return rule


for _function in {
    *named("t", "adjoint", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis"),
    *named("reshape", "view", "flatten", "squeeze", "unsqueeze", "contiguous", "clone"),
    *(Tensor.T.__get__, Tensor.mT.__get__),  # type: ignore[attr-defined]
}:
    _later(_function)(_move(_function))


@_later(*named("expand", "broadcast_to"))
def _as_it_is(input: Any, *sizes: Any) -> Any:
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return input if shape == tuple(input.shape) else None


@_later(F.linear)
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, Undrawn) or not weight.site.can_be_apart or weight.dim() > 2:
        return None
    input, before = _matrix(drawn(input))
    if input is None:
        return None
    many, apply = input.dim() > 1, F.linear if weight.dim() == 2 else _vector_product
    weight.site.take_apart()
    if isinstance(weight.site, MaskedSite):
        found = apply(input * weight.site.masks.noise(input.shape), weight.loc)
        rows = in_rows(found, many, before, [weight.site])
        return rows if bias is None else rows + bias
    mean, variance = apply(input, weight.loc), apply(squared(input), squared(weight.scale))
    rows = UndrawnRows(mean, variance, (weight.site,), many, before)
    return rows if bias is None else rows + bias


def _vector_product(input: Tensor, vector: Tensor) -> Tensor:
    return input @ vector


def _matrix(input: Any) -> tuple[Tensor | None, frozenset[str]]:
    """A matrix of rows, or one row, and whose noise is in it; None of anything else."""
    if not isinstance(input, Tensor) or input.dim() not in (1, 2):
        return None, frozenset()
    if not isinstance(input, Rows):
        return input, frozenset()
    if input.axis != -2:
        raise Together(input.sites)
    return input.tensor, input.sites


@_later(*named("matmul", "__matmul__", "mm", "mv"))
def _product(input: Any, other: Any) -> Any:
    if not isinstance(other, Undrawn) or other.dim() > 2:
        return None
    return _linear(input, other.mT if other.dim() == 2 else other)


@_later(*named("addmm"))
def _with_addend(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    plain = beta == 1 and alpha == 1 and isinstance(mat2, Undrawn)
    fits = plain and tuple(input.shape) == tuple(mat2.shape[1:])
    return _linear(mat1, mat2.mT, input) if fits else None


@_later(*named("add", "__add__", "__radd__"))
def _sum(input: Any, other: Any, *, alpha: float = 1) -> UndrawnRows | None:
    rows, bias = (other, input) if isinstance(input, Undrawn) else (input, other)
    if not (isinstance(rows, UndrawnRows) and isinstance(bias, Undrawn) and alpha == 1):
        return None
    if rows.drawn_ is not None or not bias.site.can_be_apart:
        return None
    if tuple(bias.shape) != tuple(rows.shape[rows.many :]):
        return None
    bias.site.take_apart()
    sites = (*rows.sites, bias.site)
    variance = rows.variance_ + squared(bias.scale)
    return UndrawnRows(rows.mean_ + bias.loc, variance, sites, rows.many, rows.before)
