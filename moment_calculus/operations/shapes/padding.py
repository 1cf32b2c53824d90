"""Padding of live values with certain entries, around and between their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.numerics.arrays import Array, device
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.moves import Moved, moved
from moment_calculus.values import Gaussian, Value
from moment_calculus.values.lags import lag_covariance
from moment_calculus.values.spread import none_or_all

Config = Sequence[tuple[int, int, int]]
PadKernel = Callable[[Array, Config, Any], Array]


@dataclass(frozen=True, eq=False)
class Padded(Moved):
    """Step of a padding with certain entries around and between those of a value."""

    kernel: PadKernel
    config: Config
    fill: Any = 0.0
    combines_elements = True
    elementwise = True

    def move(self, array: Array) -> Array:
        """Pad an array with zeros."""
        return self.kernel(array, self.config, 0.0)

    def apply_to(self, operand: Any, like: Gaussian) -> Any:
        """Pad another value or array with the same entries."""
        if isinstance(operand, Gaussian):
            return pad(operand, self.kernel, self.config, self.fill)
        return self.kernel(operand, self.config, self.fill)

    @property
    def _layout(self) -> tuple[Config, tuple[int, int, int]]:
        """The padding of the batch axes, and that of the feature axis."""
        axis, config = self.source.axis, tuple(self.config)
        place = len(config) + (axis or 0)
        return (*config[:place], *config[place + 1 :]), config[axis or 0]

    def covariance(self) -> Array:
        """Pad the joint covariance with zeros."""
        batch, features = self._layout
        return self.kernel(self.source.joint_covariance(), (*batch, features, features), 0.0)

    def follows(self, place: int) -> bool:
        """Whether only the feature axis is padded."""
        known = self.source.axis is not None
        return known and not any(any(entry) for entry in self._layout[0])

    def through(self, place: int, cross: Array) -> Array:
        """Pad the covariance with another value with rows of zeros."""
        still = ((0, 0, 0),)
        config = (*still * (cross.ndim - 2), self._layout[1], *still)
        return self.kernel(cross, config, 0.0)

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Return the covariance of components an offset apart; zero for certain entries."""
        gaps = [between + 1 for _, _, between in self.config]
        steps = [divmod(o, gap) for o, gap in zip(offset, gaps, strict=True)]
        reach = zip(steps, self.source.shape, strict=True)
        if any(rest or abs(step) >= size for (step, rest), size in reach):
            full = self.kernel(self.source.variance, self.config, 0.0)
            shape = tuple(n - abs(o) for n, o in zip(full.shape, offset, strict=True))
            return namespace(full).zeros(shape, dtype=full.dtype, device=device(full))
        covariance = lag_covariance(self.source, tuple(step for step, _ in steps))
        return None if covariance is None else self.kernel(covariance, self.config, 0.0)


def pad(value: Value, kernel: PadKernel, config: Config, fill: Any = 0.0) -> Gaussian:
    """Pad a value with certain entries around and between its own; raise if ``fill`` is random.

    ``config`` holds for each axis how many entries come before, after and between;
    negative numbers before and after remove entries. ``kernel(array, config, fill)`` pads
    an array of any rank.
    """
    if hasattr(fill, "sites"):
        raise UnsupportedMoments(
            "padding with a random value",
            sites=fill.sites | value.sites,
            remedy="pad with a certain number, and add the random value by concatenation" + OR_DRAW,
        )
    value = value.gaussian()
    config = tuple((int(low), int(high), int(between)) for low, high, between in config)
    step, known = Padded(value, kernel, config, fill), value.axis is not None
    ties = none_or_all(value.independent)
    result = moved(step, value.axis, dense=value.has_covariance, joint=known, ties=ties)
    result.mean = kernel(value.mean, config, fill)
    return result
