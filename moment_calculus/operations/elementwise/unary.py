"""Operations on one live value: latent sites, activations and elementwise affine maps."""

from __future__ import annotations

from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.table import Activation
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Deferred, Gaussian, Root, Spread, Value
from moment_calculus.values.affine import affine
from moment_calculus.values.layout import broadcast_shape
from moment_calculus.values.support import all_elements


def site_value(
    name: str, mean: Array, variance: Array, propagation: Propagation, *, event_dim: int = 1
) -> Gaussian:
    """Make the Gaussian value of a latent site with independent components."""
    return Gaussian(
        mean,
        Spread(variance),
        Root(weight=event_dim > 1),
        # Without event axes every component is an element of the batch.
        axis=-1 if event_dim and len(mean.shape) else None,
        support=all_elements([name]),
        propagation=propagation,
    )


def is_value(operand: Any) -> bool:
    """Whether an operand is a random value."""
    return isinstance(operand, Gaussian | Deferred)


def shape_of(operand: Any) -> tuple[int, ...]:
    """Return the shape of a value, an array or a number."""
    return tuple(getattr(operand, "shape", ()))


def apply(activation: Activation, value: Value) -> Deferred:
    """Apply an activation elementwise; functions of functions are composed, not matched."""
    if not is_value(value):
        raise UnsupportedMoments(
            f"{activation.name} of a certain value with random parameters",
            remedy="make the parameters of activations certain" + OR_DRAW,
        )
    if isinstance(value, Gaussian):
        return Deferred(value, activation)
    return value.then(activation)


def scale_shift(value: Value, scale: Array | float = 1.0, shift: Array | float = 0.0) -> Value:
    """Return scale · x + shift for certain, broadcastable arrays or numbers, exactly."""
    shape = broadcast_shape(value.shape, shape_of(scale), shape_of(shift))
    if isinstance(value, Deferred):
        wide = broadcast(value, shape)
        return wide if _is_identity(scale, shift) else wide.scaled(scale, shift)
    return affine(broadcast(value, shape), scale, shift)


def _is_identity(scale: Any, shift: Any) -> bool:
    numbers = isinstance(scale, int | float) and isinstance(shift, int | float)
    return numbers and scale == 1 and shift == 0
