"""Operations on one live value: sites, activations, and affine maps component by component."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.functions.table import Activation, Integrated
from moment_calculus.numerics.arrays import Array, outer
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.moves import broadcast
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import (
    AffineDeferred,
    ComposedDeferred,
    Deferred,
    Gaussian,
    Jacobian,
    Value,
    features_last,
    gain_map,
    identity_map,
)
from moment_calculus.values.layout import broadcast_shape


def leaf(
    name: str, mean: Array, variance: Array, propagation: Propagation, *, event_dim: int = 1
) -> Gaussian:
    """Gaussian latent site with independent components.

    Args:
        name: the site's name.
        mean: posterior mean.
        variance: posterior variance, of the same shape.
        propagation: how randomness flows.
        event_dim: number of trailing axes that make up one draw; without any, every component is
            an element of a batch.
    """
    return Gaussian(
        mean,
        variance,
        axis=-1 if event_dim and len(mean.shape) else None,
        sites=frozenset([name]),
        propagation=propagation,
        weight=event_dim > 1,
    )


def is_value(operand: Any) -> bool:
    """Whether the operand is a live random value."""
    return isinstance(operand, Gaussian | Deferred)


def shape_of(operand: Any) -> tuple[int, ...]:
    """Shape of a value, an array or a number."""
    return tuple(getattr(operand, "shape", ()))


def apply(activation: Activation, value: Value) -> Deferred:
    """Elementwise activation of a value; a chain is composed, not matched step by step.

    Args:
        activation: the function with its moments.
        value: its argument.

    Raises:
        UnsupportedMoments: if the argument is certain, and the function's parameters random.
    """
    if not is_value(value):
        raise UnsupportedMoments(
            f"{activation.name} of a certain value with random parameters",
            remedy="make the parameters of activations certain",
        )
    if isinstance(value, Gaussian):
        return Deferred(value, activation)
    return ComposedDeferred(activation, value, Integrated)


def scale_shift(value: Value, scale: Array | float = 1.0, shift: Array | float = 0.0) -> Value:
    """scale · x + shift for certain ``scale`` and ``shift``: exact.

    Args:
        value: x.
        scale: broadcastable with x.
        shift: broadcastable with x.
    """
    shape = broadcast_shape(value.shape, shape_of(scale), shape_of(shift))
    if isinstance(value, Deferred):
        wide = broadcast(value, shape)
        return AffineDeferred(wide, scale, shift, _affine)
    return _affine(broadcast(value, shape), scale, shift)


def _affine(value: Gaussian, scale: Array | float, shift: Array | float) -> Gaussian:
    if isinstance(scale, int | float) and scale == 1:
        return _shifted(value, shift)
    scaled = _scaled(value, scale)
    return scaled if isinstance(shift, int | float) and shift == 0 else _shifted(scaled, shift)


def _shifted(value: Gaussian, shift: Array | float) -> Gaussian:
    return Gaussian(
        value.mean + shift,
        value.variance,
        (lambda: value.covariance) if value.has_covariance else None,
        joint=value.joint_covariance,
        axis=value.axis,
        sites=value.sites,
        parents=((value, identity_map),),
        propagation=value.propagation,
        independent=value.independent,
        apart=value.apart,
        origin=value.origin,
        affine=(value, 1.0, shift),
        each=value.each,
    )


def _each_scaled(value: Gaussian, gain: Array | float) -> Callable | None:
    if value.each is None:
        return None

    def each(other: Gaussian) -> Array | float | None:
        known = value.each(other)  # type: ignore[misc]
        return known if known is None or isinstance(known, float) else gain * known

    return each


def _scaled(value: Gaussian, scale: Array | float) -> Gaussian:
    mean = value.mean * scale
    if isinstance(scale, int | float):
        gain, last = scale, None
        jacobian: Jacobian = lambda cross: cross * scale  # noqa: E731
    else:
        gain = namespace(mean).broadcast_to(scale, value.shape)
        last = features_last(gain, value.axis)
        jacobian = gain_map(gain, value.axis)

    def spread(covariance: Array) -> Array:
        return covariance * (scale**2 if last is None else outer(last, last))

    return Gaussian(
        mean,
        value.variance if last is None and scale == -1 else value.variance * (gain * gain),
        (lambda: spread(value.covariance)) if value.has_covariance else None,
        joint=lambda: spread(value.joint_covariance()),
        axis=value.axis,
        sites=value.sites,
        parents=((value, jacobian),),
        propagation=value.propagation,
        independent=value.independent,
        apart=value.apart,
        origin=value.origin,
        affine=(value, scale, 0.0),
        each=_each_scaled(value, gain),
    )
