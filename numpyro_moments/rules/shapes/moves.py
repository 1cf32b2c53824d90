"""Rules of shapes, dtypes, concatenation and padding, which keep components."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Composite, Deferred, PendingWeight, Value
from numpyro_moments.rules.table import moment_rule, refused, register_made


@moment_rule("convert_element_type", takes=(Composite,))
def convert(x: Any, *, new_dtype: Any, **_: Any) -> Any:
    """Serve ``astype`` of floating-point numbers, and of conditions to floating-point numbers."""
    if isinstance(x, ops.Condition | ops.Bits) and new_dtype == jnp.bool_:
        return x
    if not jnp.issubdtype(new_dtype, jnp.floating):
        raise UnsupportedMoments(
            f"a conversion of a random value to {jnp.dtype(new_dtype).name}",
            sites=x.sites,
            remedy="keep a floating-point dtype, e.g. (h > 0).astype(h.dtype); in place of a "
            "branch of jax.lax.cond that a random value decides, compute both and choose by "
            "jnp.where" + errors.OR_DRAW,
        )
    value = x.number if isinstance(x, ops.Condition | ops.Bits) else x
    if _dtype(value) == new_dtype:
        return value
    if isinstance(value, Composite) and not isinstance(value, PendingWeight):
        value = value.gaussian()
    return ops.converted(value, lambda array: jnp.asarray(array).astype(new_dtype))


def _dtype(value: Any) -> Any:
    if isinstance(value, Composite):
        return value.source.mean.dtype
    return value.dtype if isinstance(value, Deferred) else value.mean.dtype


@moment_rule("copy", "copy_p", "real", takes=(Composite,))
def itself(x: Any, **_: Any) -> Any:
    """Serve ``jnp.copy`` and ``jnp.real``: the value itself."""
    return x


@moment_rule("optimization_barrier", takes=(Composite,))
def barrier(*values: Any) -> list[Any]:
    """Serve ``jax.lax.optimization_barrier``: the values themselves."""
    return list(values)


refused(
    "reduce_precision",
    "the rounding of a random value to fewer digits",
    "convert it by astype, which changes the precision of its moments",
)


@moment_rule("stop_gradient")
def stop_gradient(x: Any) -> Any:
    """Raise for ``jax.lax.stop_gradient``, which would hide on which sites a value depends."""
    raise UnsupportedMoments(
        "a random value without its gradient, which would train the guide on part of the model",
        sites=x.sites,
        remedy="stop the gradient of the certain parameters, or of the guide's, instead",
    )


def of_bits(rule: Callable[..., Value]) -> Callable[..., Any]:
    """Return a rule that moves random booleans, too, as the numbers behind them."""

    @functools.wraps(rule)
    def moved(x: Any, **parameters: Any) -> Any:
        if isinstance(x, ops.Bits):
            return x.moved(lambda value: rule(value, **parameters))
        return rule(x, **parameters)

    return moved


def _broadcast(x: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    sizes = dict(zip(map(int, broadcast_dimensions), x.shape, strict=True))
    return np.broadcast_to(np.reshape(x, [sizes.get(axis, 1) for axis in range(len(shape))]), shape)


# Primitives that move components, as functions of NumPy: what they do to shapes, to rows of drawn
# particles, and to the components that a function is recognised by, follows from these.
MOVES: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast,
    "convert_element_type": lambda x, **_: x,
    "copy": lambda x: x,
    "expand_dims": lambda x, dimensions: np.expand_dims(x, tuple(dimensions)),
    "reshape": lambda x, new_sizes, **_: np.reshape(x, new_sizes),
    "rev": lambda x, dimensions: np.flip(x, tuple(dimensions)),
    "squeeze": lambda x, dimensions: np.squeeze(x, tuple(map(int, dimensions))),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
}
RESHAPES = {
    "reshape": "``jnp.reshape`` and ``jnp.ravel``",
    "expand_dims": "``jax.lax.expand_dims``",
    "squeeze": "``jnp.squeeze``",
}


def _reshaping(in_numpy: Callable) -> Callable:
    def rule(x: Value, **parameters: Any) -> Value:
        return ops.reshape(x, in_numpy(np.broadcast_to(0, x.shape), **parameters).shape)

    return of_bits(rule)


for _name, _spelling in RESHAPES.items():
    register_made(_name, _reshaping(MOVES[_name]), f"Serve {_spelling}.", takes=(ops.Bits,))


@moment_rule("transpose", takes=(PendingWeight, ops.Bits))
def transpose(x: Value, *, permutation: Any) -> Value:
    """Serve ``jnp.transpose``, ``jnp.moveaxis`` and ``jnp.swapaxes``."""
    return ops.permute(x, tuple(permutation))


@moment_rule("broadcast_in_dim", takes=(ops.Bits,))
@of_bits
def broadcast_in_dim(x: Value, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Value:
    """Serve ``jnp.broadcast_to`` and ``jnp.expand_dims``."""
    sizes = dict(zip(map(int, broadcast_dimensions), x.shape, strict=True))
    aligned = tuple(sizes.get(axis, 1) for axis in range(len(shape)))
    return ops.broadcast(ops.reshape(x, aligned), tuple(shape))


@moment_rule("concatenate", numbers=False)
def concatenate(*operands: Any, dimension: int) -> Value:
    """Serve ``jnp.concatenate`` and ``jnp.roll``."""
    if len(operands) == 1:
        return operands[0]
    axis = dimension - len(operands[0].shape)
    if axis == -1 and all(operand.shape[-1] == 1 for operand in operands):  # of ``jnp.stack``
        return ops.stack([_squeezed(operand) for operand in operands], axis)
    return ops.concatenate(operands, axis)


def _squeezed(operand: Any) -> Any:
    return ops.reshape(operand, operand.shape[:-1])


@moment_rule("stack", numbers=False)
def stack(*operands: Any, axis: int) -> Value:
    """Serve ``jnp.stack``, a primitive of its own since JAX 0.11."""
    return ops.stack(operands, axis - len(operands[0].shape) - 1)


@moment_rule("unstack")
def unstack(x: Value, *, axis: int) -> list[Value]:
    """Serve ``jnp.unstack``, a primitive of its own since JAX 0.11."""
    return list(ops.unstack(x, axis))


@moment_rule("split")
def split(x: Value, *, sizes: Any, axis: int) -> list[Value]:
    """Serve ``jnp.split``."""
    return list(ops.split(x, sizes, axis))


@moment_rule("pad")
def pad(x: Any, fill: Any, *, padding_config: Any) -> Value:
    """Serve ``jnp.pad`` with a constant, and ``jax.lax.pad``."""
    return ops.pad(x, pad_array, padding_config, fill)


def pad_array(array: Any, config: ops.Config, fill: Any) -> Any:
    """Pad an array with entries before, after and between, by axis in ``config``."""
    return lax.pad(array, jnp.asarray(fill, array.dtype), config)
