"""Rules of sums, means and other reductions over axes."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.linear import reductions
from moment_calculus.operations.normalised.softmax import Softmax, TotalProbability
from moment_calculus.operations.shapes.indexing import take
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named
from pyro_moments.rules.torch_shapes import axes_of, checked_axis, on_meta


@moment_rule(*named("sum"), takes=(Softmax,))
def sum(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Serve ``sum``: over features, and over independent elements of a batch."""
    axes = axes_of(input, dim)
    if isinstance(input, Softmax):
        if keepdim and axes == (len(input.shape) - 1,):
            return TotalProbability(input.source)
        input = input.gaussian()
    return reductions.reduce_sum(input, axes, keepdims=keepdim)


@moment_rule(*named("mean"))
def mean(input: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """Serve ``mean``: over features, and over independent elements of a batch."""
    return reductions.reduce_mean(input, axes_of(input, dim), keepdims=keepdim)


@moment_rule(*named("cumsum"))
def cumsum(input: Value, dim: int) -> Value:
    """Serve ``cumsum``: over features, and over independent elements of a batch."""
    return reductions.cumulative_sum(input, checked_axis(dim, len(input.shape)))


moment_rule(*named("cumsum_"), in_place=True)(cumsum)


@moment_rule(*named("prod"))
def prod(input: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Serve ``prod`` of independent components, or of two."""
    if dim is None:
        input, dim = reshape(input, (on_meta(input).numel(),)), 0
    shape = tuple(on_meta(input).prod(dim, keepdim).shape)
    return reshape(reductions.product(input, checked_axis(dim, len(input.shape))), shape)


@moment_rule(*named("diff"))
def diff(input: Value, n: int = 1, dim: int = -1) -> Value:
    """Serve ``diff`` along the features."""
    on_meta(input).diff(n, dim)
    for _ in range(n):
        input = reductions.difference(input, checked_axis(dim, len(input.shape)))
    return input


@moment_rule(*named("trace"))
def trace(input: Value) -> Value:
    """Serve ``trace`` of a matrix of independent components."""
    on_meta(input).trace()
    places = torch.arange(min(input.shape))
    flat = reshape(input, (on_meta(input).numel(),))
    return reductions.reduce_sum(take(flat, places * (input.shape[1] + 1), 0))


@moment_rule(*named("var", "std", "var_mean", "std_mean", "norm", "normalize"))
def deviation(input: Value, *_: Any, **__: Any) -> Value:
    """Raise UnsupportedMoments for ``var``, ``std`` and norms, and name alternatives."""
    raise UnsupportedMoments(
        "a standard deviation or norm of random components depends on what it is divided into",
        sites=input.sites,
        remedy="normalise by F.layer_norm, F.group_norm or F.rms_norm, which have moments as a "
        "whole" + OR_DRAW,
    )
