"""Rules of shape operations that keep the components."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from moment_calculus.operations import shapes
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.operations.dropout.noise import Bits
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule


def of_bits(rule: Callable[..., Value]) -> Callable[..., Any]:
    """Return a rule that moves random booleans, too, as it moves the numbers behind them."""

    @functools.wraps(rule)
    def moved(x: Any, **parameters: Any) -> Any:
        if isinstance(x, Bits):
            return x.moved(lambda value: rule(value, **parameters))
        return rule(x, **parameters)

    return moved


@moment_rule("reshape", takes=(Bits,))
@of_bits
def reshape(x: Value, *, new_sizes: Any, dimensions: Any = None, **_: Any) -> Value:
    """Serve ``jnp.reshape`` and ``jnp.ravel``."""
    return shapes.reshape(x, tuple(new_sizes))


@moment_rule("transpose", takes=(MaskedWeight, Bits))
def transpose(x: Value, *, permutation: Any) -> Value:
    """Serve ``jnp.transpose``, ``jnp.moveaxis`` and ``jnp.swapaxes``."""
    return shapes.permute(x, tuple(permutation))


@moment_rule("broadcast_in_dim", takes=(Bits,))
@of_bits
def broadcast_in_dim(x: Value, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Value:
    """Serve ``jnp.broadcast_to`` and ``jnp.expand_dims``."""
    sizes = dict(zip(map(int, broadcast_dimensions), x.shape, strict=True))
    aligned = tuple(sizes.get(axis, 1) for axis in range(len(shape)))
    return shapes.broadcast(shapes.reshape(x, aligned), tuple(shape))


@moment_rule("expand_dims", takes=(Bits,))
@of_bits
def expand_dims(x: Value, *, dimensions: Any) -> Value:
    """Serve ``jax.lax.expand_dims``."""
    sizes = iter(x.shape)
    places = range(len(x.shape) + len(dimensions))
    return shapes.reshape(x, tuple(1 if p in dimensions else next(sizes) for p in places))


@moment_rule("squeeze", takes=(Bits,))
@of_bits
def squeeze(x: Value, *, dimensions: Any) -> Value:
    """Serve ``jnp.squeeze``."""
    kept = tuple(size for axis, size in enumerate(x.shape) if axis not in dimensions)
    return shapes.reshape(x, kept)
