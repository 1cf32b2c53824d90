"""Rules of the largest and smallest entries of whole axes; what orders entries is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from moment_calculus import errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.shapes.moves import axes_of, on_meta
from pyro_moments.rules.table import MeanCheck, RandomPlaces, moment_rule, named, refused
from pyro_moments.rules.validation import least_truth


def _over_axes(input: Value, dim: Any, keepdim: bool, of_axis: Callable) -> Value:
    shape = tuple(on_meta(input).amax(() if dim is None else dim, keepdim).shape)
    for axis in reversed(axes_of(input, dim)):
        input = of_axis(input, axis)
    return ops.reshape(input, shape)


def _along_axes(name: str, of_axis: Callable) -> None:
    def rule(input: Value, dim: Any = (), keepdim: bool = False) -> Value:
        return _over_axes(input, dim, keepdim, of_axis)

    rule.__doc__ = f"Serve ``{name}``, over one axis after the other."
    moment_rule(*named(name))(rule)


_along_axes("amax", ops.axis_maximum)
_along_axes("amin", ops.axis_minimum)


def _with_places(name: str, of_axis: Callable, of_two: Callable) -> Callable:
    def rule(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        if isinstance(input, MeanCheck):
            return least_truth(input, dim)
        if hasattr(dim, "shape") or other is not None:
            return of_two(input, dim if other is None else other)
        value = _over_axes(input, dim, keepdim, of_axis)
        if dim is None:
            return value
        return getattr(torch.return_types, name)((value, RandomPlaces.of(value)))

    rule.__doc__ = (
        f"Serve ``{name}`` of all entries, of two operands and along an axis; indices that are "
        "used are refused."
    )
    return rule


moment_rule(*named("max"))(_with_places("max", ops.axis_maximum, ops.maximum))
moment_rule(*named("min"), takes=(MeanCheck,))(_with_places("min", ops.axis_minimum, ops.minimum))

refused(
    "sort argsort msort topk kthvalue median nanmedian mode quantile nanquantile cummax cummin "
    "aminmax",
    "the joint moments of random components in order are not known",
    "use amax and amin, or torch.maximum and torch.minimum where a few entries are compared"
    + errors.OR_DRAW,
    summary="what puts entries in order, and name what serves instead",
)
refused(
    "argmax argmin",
    "the place of the largest or smallest of random entries is random",
    "decide on the predictive moments instead, outside of the model" + errors.OR_DRAW,
    summary="the place of the largest entry, which is random",
)
refused(
    "cumprod logcumsumexp",
    "the joint moments of cumulative products, or of their logarithms, are not known",
    "take products of two values at a time, or torch.logsumexp of each part" + errors.OR_DRAW,
    summary="cumulative products and cumulative logsumexp, and name what serves instead",
)
