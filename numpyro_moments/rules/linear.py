"""Rules of linear maps, sums and other reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from moment_calculus.operations import catalogue as ops
from moment_calculus.values import PendingWeight, Value
from numpyro_moments.rules.table import moment_rule, refused, register_made

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@moment_rule("dot_general", takes=(PendingWeight,), numbers=False)
def dot_general(
    x: Any, y: Any, *, dimension_numbers: Any, preferred_element_type: Any = None, **_: Any
) -> Value:
    """Serve ``jnp.dot``, ``@``, ``jnp.einsum`` and everything else that contracts two arrays."""
    x, y = (_in_precision(operand, preferred_element_type) for operand in (x, y))
    (contracted_x, contracted_y), (batch_x, batch_y) = dimension_numbers
    if _is_matmul(x, y, dimension_numbers):
        return ops.matmul(x, y)
    letters = iter(_LETTERS)
    left = [next(letters) for _ in x.shape]
    right = [next(letters) for _ in y.shape]
    for i, j in zip((*contracted_x, *batch_x), (*contracted_y, *batch_y), strict=True):
        right[j] = left[i]
    kept = [left[i] for i in batch_x]
    kept += [n for i, n in enumerate(left) if i not in (*contracted_x, *batch_x)]
    kept += [n for j, n in enumerate(right) if j not in (*contracted_y, *batch_y)]
    return ops.einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", x, y)


def _in_precision(operand: Any, dtype: Any) -> Any:
    own = (operand.at_mean if hasattr(operand, "at_mean") else operand).dtype
    if dtype is None or own == dtype:
        return operand
    return ops.converted(operand, lambda array: jnp.asarray(array, dtype))


def _is_matmul(x: Any, y: Any, dimension_numbers: Any) -> bool:
    """Return whether a contraction is ``x @ y``: its order shows the weight."""
    (contracted_x, contracted_y), (batch_x, batch_y) = dimension_numbers
    lead = tuple(range(len(batch_x)))
    plain = tuple(batch_x) == tuple(batch_y) == lead and len(y.shape) <= len(lead) + 2
    rows = len(x.shape) >= len(lead) + 1 and (not lead or len(x.shape) == len(y.shape))
    contracted = (len(x.shape) - 1,), (max(len(y.shape) - 2, 0),)
    return plain and rows and (tuple(contracted_x), tuple(contracted_y)) == contracted


@moment_rule("reduce_sum")
def reduce_sum(x: Value, *, axes: Any, **_: Any) -> Any:
    """Serve ``jnp.sum`` and ``jnp.mean`` over features, and over independent batch elements."""
    if tuple(axes) == (len(x.shape) - 1,) and ops.is_simplex(x):
        return jnp.ones_like(x.at_mean[..., 0])
    return ops.reduce_sum(x, axes)


def _axis_by_axis(of_axis: Callable[[Value, int], Value]) -> Callable:
    def rule(x: Value, *, axes: Any, **_: Any) -> Value:
        for axis in sorted(axes, reverse=True):
            x = of_axis(x, axis)
        return x

    return rule


# Reductions over one axis after the other, with what users write.
for _primitive, _of_axis, _spelling in (
    ("reduce_prod", ops.product, "``jnp.prod`` of independent components, or of two"),
    ("reduce_max", ops.axis_maximum, "``jnp.max`` over one axis after the other"),
    ("reduce_min", ops.axis_minimum, "``jnp.min`` over one axis after the other"),
):
    register_made(_primitive, _axis_by_axis(_of_axis), f"Serve {_spelling}.")


@moment_rule("cumsum")
def cumsum(x: Value, *, axis: int, reverse: bool = False) -> Value:
    """Serve ``jnp.cumsum`` over features, and over independent batch elements."""
    return ops.cumulative_sum(x, axis, reverse=reverse)


REFUSED = {
    "sort": "use jnp.maximum and jnp.minimum of pairs where a few components are compared",
    "top_k": "use jnp.maximum and jnp.minimum of pairs where a few components are compared",
    "argmax": "decide on the predictive moments instead, outside of the model",
    "argmin": "decide on the predictive moments instead, outside of the model",
    "cumprod": "take sums of logarithms as latent values, or products of two values at a time",
    "cummax": "use jnp.maximum of pairs",
    "cummin": "use jnp.minimum of pairs",
    "cumlogsumexp": "use jax.nn.logsumexp of each part",
}


for _primitive, _remedy in REFUSED.items():
    refused(
        _primitive,
        f"the joint moments of '{_primitive}' of random components are not known",
        _remedy,
    )


@moment_rule("cholesky")
def cholesky(x: Value, **_: Any) -> Value:
    """Serve covariances with an LKJ prior or a random amplitude; refuse others."""
    return ops.cholesky(x)
