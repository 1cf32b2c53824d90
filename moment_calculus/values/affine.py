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
from moment_calculus.values.vectors import from_vector_parts


@dataclass(frozen=True, eq=False)
class Affine(Step):
    """The step of scale · x + shift, component by component."""

    source: Gaussian
    scale: Any  # number, or array that broadcasts to the shape of x; so is the shift
    shift: Any
    componentwise = True
    elementwise = True

    @property
    def inputs(self) -> tuple[Gaussian, ...]:  # type: ignore[override]
        """Return x alone."""
        return (self.source,)

    @property
    def affine(self) -> tuple[Gaussian, Any, Any]:  # type: ignore[override]
        """Return x, the scale and the shift."""
        return self.source, self.scale, self.shift

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Return whether it only shifts."""
        return isinstance(self.scale, int | float) and self.scale == 1

    def __post_init__(self) -> None:
        self.linear_in_chains  # noqa: B018  # cached here: a long line of steps would recurse too deeply

    @cached_property
    def linear_in_chains(self) -> bool:  # type: ignore[override]
        """Return whether x is linear in latent chains."""
        return self.source.step.linear_in_chains

    @cached_property
    def gain(self) -> Array | float:
        """Return the scale: a number, or an array in the shape of x."""
        if isinstance(self.scale, int | float):
            return self.scale
        return namespace(self.source.mean).broadcast_to(self.scale, self.source.shape)

    def follows(self, place: int) -> bool:
        """Return True: every covariance passes."""
        return True

    def through(self, place: int, cross: Array) -> Array | None:
        """Return the covariance, scaled; None if the scale and its batch do not broadcast."""
        if isinstance(self.scale, int | float):
            return cross if self.identity else cross * self.scale
        batch = batch_shape(self.source.shape, self.source.axis)
        if not broadcasts(batch, tuple(cross.shape[:-2])):
            return None
        return rows_scaled(cross, self.gain, self.source.axis)

    def covariance(self) -> Array:
        """Return the covariance over the feature axis, ``batch + [d, d]``."""
        # computed from the first of the line on, which may be too long for a recursion
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

    def elementwise_covariance_with(
        self, value: Gaussian, other: Gaussian, query: Any
    ) -> Array | float | None:
        """Return what the step of x knows, scaled; None for a function, which is met as such."""
        if self.source.step.nonlinear:
            return None
        covariance = self.source.step.elementwise_covariance_with(self.source, other, query)
        return covariance if covariance is None or self.identity else self.gain * covariance

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Return the covariance of x at an offset, scaled."""
        if along_features(value, offset):
            return NotImplemented
        covariance = (
            lag_covariance(self.source, offset) if self.source.shape == value.shape else None
        )
        if covariance is None or isinstance(self.scale, int | float):
            return None if covariance is None else covariance * (self.scale * self.scale)
        left, right = shifted(self.gain, offset)
        return covariance * (left * right)

    def pull_move_through(self, move: Any, like: Gaussian) -> Gaussian:
        """Return the affine image of the moved x, with moved arrays."""
        xp, shape = namespace(self.source.mean), self.source.shape
        parts = (self.scale, self.shift)
        numbers = [isinstance(part, int | float) for part in parts]
        scale, shift = (
            part if number else move.move(xp.broadcast_to(part, shape))
            for part, number in zip(parts, numbers, strict=True)
        )
        return affine(move.apply_to(self.source, like), scale, shift)

    def branches(self, value: Gaussian, parts: Any) -> Any:
        """Return the branches of x, scaled and shifted."""
        change = lambda branch: affine_of_any(branch, self.scale, self.shift)  # noqa: E731
        return None if parts[0] is None else parts[0].map(change)

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the affine image of x as a vector."""
        return from_vector_parts(lambda part: affine(part, self.scale, self.shift), self.source)


def affine(value: Gaussian, scale: Array | float, shift: Array | float) -> Gaussian:
    """Return scale · x + shift, exact, for numbers or arrays that broadcast to the shape of x."""
    if isinstance(scale, int | float) and scale == 1:
        return _shifted(value, shift)
    scaled = _scaled(value, scale)
    return scaled if isinstance(shift, int | float) and shift == 0 else _shifted(scaled, shift)


def affine_of_any(operand: Any, scale: Array | float, shift: Array | float) -> Any:
    """Return scale · x + shift of a Gaussian, a function of one, or an array."""
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
