"""Affine images of a Gaussian, component by component."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moment_calculus.numerics.arrays import Array, outer
from moment_calculus.numerics.special import namespace
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.lags import along_features, lag_covariance, shifted
from moment_calculus.values.layout import batch_shape, broadcasts, features_last, rows_scaled
from moment_calculus.values.spread import Spread
from moment_calculus.values.step import Step
from moment_calculus.values.vectors import of_parts


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
    elementwise = True

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

    def __post_init__(self) -> None:
        self.linked  # noqa: B018  # found here, one step at a time

    @cached_property
    def linked(self) -> bool:  # type: ignore[override]
        """As the source."""
        return self.source.step.linked

    @cached_property
    def gain(self) -> Array | float:
        """The scale, an array in the shape of x."""
        if isinstance(self.scale, int | float):
            return self.scale
        return namespace(self.source.mean).broadcast_to(self.scale, self.source.shape)

    def follows(self, place: int) -> bool:
        """Always."""
        return True

    def through(self, place: int, cross: Array) -> Array | None:
        """Scaled; unknown beside a batch that does not lie as that of x does."""
        if isinstance(self.scale, int | float):
            return cross if self.identity else cross * self.scale
        batch = batch_shape(self.source.shape, self.source.axis)
        if not broadcasts(batch, tuple(cross.shape[:-2])):
            return None
        return rows_scaled(cross, self.gain, self.source.axis)

    def covariance(self) -> Array:
        """Covariance over the feature axis, from the first of the line on: it may be long."""
        line = [self.source]
        while line[-1].step.affine is not None and line[-1].spread.is_pending:
            line.append(line[-1].step.affine[0])
        covariance: Array = None
        for value in reversed(line):
            covariance = value.joint_covariance()
        if isinstance(self.scale, int | float):
            return covariance * self.scale**2
        last = features_last(self.gain, self.source.axis)
        return covariance * outer(last, last)

    def each(self, value: Gaussian, other: Gaussian, query: Any) -> Array | float | None:
        """What the source knows, scaled; two functions meet as what they are."""
        if self.source.step.curved:
            return None
        known = self.source.step.each(self.source, other, query)
        return known if known is None or self.identity else self.gain * known

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """That of the source, scaled."""
        if along_features(value, offset):
            return NotImplemented
        known = lag_covariance(self.source, offset) if self.source.shape == value.shape else None
        if known is None or isinstance(self.scale, int | float):
            return None if known is None else known * (self.scale * self.scale)
        left, right = shifted(self.gain, offset)
        return known * (left * right)

    def under(self, move: Any, like: Gaussian) -> Gaussian:
        """The source moved, and the arrays."""
        xp, shape = namespace(self.source.mean), self.source.shape
        parts = (self.scale, self.shift)
        numbers = [isinstance(part, int | float) for part in parts]
        scale, shift = (
            part if number else move.move(xp.broadcast_to(part, shape))
            for part, number in zip(parts, numbers, strict=True)
        )
        return affine(move.again(self.source, like), scale, shift)

    def branches(self, value: Gaussian, parts: Any) -> Any:
        """Scaled and shifted."""
        change = lambda branch: affine_of_any(branch, self.scale, self.shift)  # noqa: E731
        return None if parts[0] is None else parts[0].mapped(change)

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Of the source as a vector."""
        return of_parts(lambda part: affine(part, self.scale, self.shift), self.source)


def affine(value: Gaussian, scale: Array | float, shift: Array | float) -> Gaussian:
    """scale · x + shift, exact.

    Args:
        value: x.
        scale: number, or array that broadcasts to the shape of x.
        shift: likewise.
    """
    if isinstance(scale, int | float) and scale == 1:
        return _shifted(value, shift)
    scaled = _scaled(value, scale)
    return scaled if isinstance(shift, int | float) and shift == 0 else _shifted(scaled, shift)


def affine_of_any(operand: Any, scale: Array | float, shift: Array | float) -> Any:
    """scale · x + shift of a Gaussian, a function of one, or an array."""
    if isinstance(operand, Gaussian):
        return affine(operand, scale, shift)
    return operand.scaled(scale, shift) if hasattr(operand, "sites") else operand * scale + shift


def _shifted(value: Gaussian, shift: Array | float) -> Gaussian:
    step = Affine(value, 1.0, shift)
    return Gaussian(
        value.mean + shift,
        value.spread,
        step,
        axis=value.axis,
        ties=value.ties,
        propagation=value.propagation,
    )


def _scaled(value: Gaussian, scale: Array | float) -> Gaussian:
    step = Affine(value, scale, 0.0)
    mirrored = isinstance(scale, int | float) and scale == -1
    return Gaussian(
        value.mean * scale,
        Spread(
            value.variance if mirrored else value.variance * (step.gain * step.gain),
            step.covariance if value.has_covariance else None,
            step.covariance,
        ),
        step,
        axis=value.axis,
        ties=value.ties,
        propagation=value.propagation,
    )
