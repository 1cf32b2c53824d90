"""Rules of sums, products and extremes over axes."""

from __future__ import annotations

from typing import Any

from moment_calculus.operations.elementwise.choices import largest, smallest
from moment_calculus.operations.linear import reductions
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule, refused


@moment_rule("reduce_sum")
def reduce_sum(x: Value, *, axes: Any, **_: Any) -> Value:
    """Serve ``jnp.sum`` and ``jnp.mean`` over features, and over independent batch elements."""
    return reductions.reduce_sum(x, axes)


@moment_rule("reduce_prod")
def reduce_prod(x: Value, *, axes: Any, **_: Any) -> Value:
    """Serve ``jnp.prod`` of independent components, or of two."""
    for axis in sorted(axes, reverse=True):
        x = reductions.product(x, axis)
    return x


@moment_rule("reduce_max")
def reduce_max(x: Value, *, axes: Any, **_: Any) -> Value:
    """Serve ``jnp.max`` over a few features, pair by pair."""
    for axis in sorted(axes, reverse=True):
        x = largest(x, axis)
    return x


@moment_rule("reduce_min")
def reduce_min(x: Value, *, axes: Any, **_: Any) -> Value:
    """Serve ``jnp.min`` over a few features, pair by pair."""
    for axis in sorted(axes, reverse=True):
        x = smallest(x, axis)
    return x


@moment_rule("cumsum")
def cumsum(x: Value, *, axis: int, reverse: bool = False) -> Value:
    """Serve ``jnp.cumsum`` over features, and over independent batch elements."""
    return reductions.cumulative_sum(x, axis, reverse=reverse)


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
