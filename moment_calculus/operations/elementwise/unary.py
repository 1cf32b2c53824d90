"""Operations on one live value: sites, activations, and affine maps component by component."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moment_calculus.functions.table import Activation, Integrated
from moment_calculus.numerics.arrays import Array, outer
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import (
    AffineDeferred,
    ComposedDeferred,
    Deferred,
    Gaussian,
    Root,
    Spread,
    Step,
    Value,
    features_last,
)
from moment_calculus.values.lags import along_features, lag_covariance, shifted
from moment_calculus.values.layout import broadcast_shape, rows_scaled
from moment_calculus.values.support import whole
from moment_calculus.values.vectors import of_parts


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
        Spread(variance),
        Root(weight=event_dim > 1),
        axis=-1 if event_dim and len(mean.shape) else None,
        support=whole([name]),
        propagation=propagation,
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


@dataclass(frozen=True, eq=False)
class Affine(Step):
    """scale · x + shift, component by component.

    Args:
        source: x.
        scale: number, or array that broadcasts to the shape of x.
        shift: likewise.
    """

    source: Gaussian
    scale: Any
    shift: Any
    in_place = True

    @property
    def inputs(self) -> tuple[Gaussian, ...]:  # type: ignore[override]
        """The Gaussian alone."""
        return (self.source,)

    @property
    def affine(self) -> tuple[Gaussian, Any, Any]:  # type: ignore[override]
        """All of it."""
        return self.source, self.scale, self.shift

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether it only shifts."""
        return isinstance(self.scale, int | float) and self.scale == 1

    @cached_property
    def gain(self) -> Array | float:
        """The scale, an array in the shape of x."""
        if isinstance(self.scale, int | float):
            return self.scale
        return namespace(self.source.mean).broadcast_to(self.scale, self.source.shape)

    def follows(self, place: int) -> bool:
        """Always."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Scaled."""
        if isinstance(self.scale, int | float):
            return cross if self.identity else cross * self.scale
        return rows_scaled(cross, self.gain, self.source.axis)

    def spread(self, covariance: Array) -> Array:
        """The covariance of x, scaled on both sides.

        Args:
            covariance: ``batch + [d, d]``.
        """
        if isinstance(self.scale, int | float):
            return covariance * self.scale**2
        last = features_last(self.gain, self.source.axis)
        return covariance * outer(last, last)

    def each(self, value: Gaussian, other: Gaussian, query: Any) -> Array | float | None:
        """What the source knows, scaled; two functions meet as what they are."""
        if self.source.step.curved:
            return None
        known = self.source.step.each(self.source, other, query)
        if known is None or isinstance(known, float) or self.identity:
            return known
        return self.gain * known

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """That of the source, scaled."""
        if along_features(value, offset):
            return NotImplemented
        known = lag_covariance(self.source, offset) if self.source.shape == value.shape else None
        if known is None or isinstance(self.scale, int | float):
            return None if known is None else known * (self.scale * self.scale)
        left, right = shifted(self.gain, offset)
        return known * (left * right)

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Of the source as a vector."""
        return of_parts(lambda part: scale_shift(part, self.scale, self.shift), self.source)


def _shifted(value: Gaussian, shift: Array | float) -> Gaussian:
    covariance = (lambda: value.covariance) if value.has_covariance else None
    return Gaussian(
        value.mean + shift,
        Spread(value.variance, covariance, value.joint_covariance),
        Affine(value, 1.0, shift),
        axis=value.axis,
        ties=value.ties,
        propagation=value.propagation,
    )


def _scaled(value: Gaussian, scale: Array | float) -> Gaussian:
    step = Affine(value, scale, 0.0)
    mirrored = isinstance(scale, int | float) and scale == -1
    covariance = (lambda: step.spread(value.covariance)) if value.has_covariance else None
    return Gaussian(
        value.mean * scale,
        Spread(
            value.variance if mirrored else value.variance * (step.gain * step.gain),
            covariance,
            lambda: step.spread(value.joint_covariance()),
        ),
        step,
        axis=value.axis,
        ties=value.ties,
        propagation=value.propagation,
    )
