"""Rules of softmax, log-softmax and logsumexp, whose logits stay visible; attention raises."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.normalised.softmax import (
    FunctionOfLogits,
    LogSoftmax,
    LogSumExp,
    Softmax,
)
from moment_calculus.operations.shapes.moves import move_axis
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named
from pyro_moments.rules.torch_shapes import axes_of, on_meta


@moment_rule(*named("logsumexp"), torch.special.logsumexp)
def logsumexp(input: Value, dim: Any, keepdim: bool = False) -> Any:
    """Serve ``logsumexp`` over one axis."""
    result = _along(LogSumExp, input, dim)
    return result if keepdim else reshape(result.gaussian(), on_meta(input).sum(dim).shape)


@moment_rule(*named("log_softmax"), torch.special.log_softmax)
def log_softmax(input: Value, dim: Any = None, *_: Any, dtype: Any = None, **__: Any) -> Any:
    """Serve ``log_softmax`` and ``nn.LogSoftmax`` over one axis."""
    _check_dtype(input, dtype)
    return _along(LogSoftmax, input, dim)


@moment_rule(*named("softmax"), torch.special.softmax, takes=(LogSoftmax,))
def softmax(input: Any, dim: Any = None, *_: Any, dtype: Any = None, **__: Any) -> Any:
    """Serve ``softmax`` and ``nn.Softmax`` over one axis."""
    if isinstance(input, LogSoftmax):  # distributions of classes first normalise their logits
        last = dim is not None and axes_of(input, dim) == (len(input.shape) - 1,)
        input = input.source if last else input.gaussian()
    _check_dtype(input, dtype)
    return _along(Softmax, input, dim)


def _along(kind: type[FunctionOfLogits], input: Value, dim: Any) -> Any:
    axes = () if dim is None else axes_of(input, dim)
    if len(axes) != 1:
        raise UnsupportedMoments(
            f"{kind.name} over dim={dim} of a value of shape {input.shape}",
            sites=input.sites,
            remedy="name one axis, e.g. dim=-1" + OR_DRAW,
        )
    last = len(input.shape) - 1
    if axes[0] == last:
        return kind(input.gaussian())
    moved = kind(move_axis(input.gaussian(), axes[0], last))
    return move_axis(moved.gaussian(), last, axes[0])


def _check_dtype(input: Value, dtype: Any) -> None:
    if dtype is not None and dtype != input.gaussian().mean.dtype:
        raise UnsupportedMoments(
            f"a softmax that converts its random input to {dtype}",
            sites=input.sites,
            remedy="convert the input first, e.g. with .to(dtype)",
        )


@moment_rule(F.scaled_dot_product_attention)
def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Value:
    """Raise UnsupportedMoments: the scores of attention are products of dependent values."""
    raise UnsupportedMoments(
        "attention over random values: the joint moments of the scores, which share the weights "
        "of queries and keys, are not known",
        sites=frozenset().union(*(getattr(p, "sites", ()) for p in (query, key, value))),
        remedy="draw the sites of the queries, keys and values by naming them in sample_sites=",
    )
