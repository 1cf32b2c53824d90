"""Live values side by side, with their cross-covariances, or padded with certain entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.numerics.arrays import Array, device, namespace
from moment_calculus.operations.shapes.indexing import STACKED, index_axes, take
from moment_calculus.operations.shapes.moves import Moved, move_axis, moved
from moment_calculus.operations.shapes.reshaping import broadcast, reshape
from moment_calculus.values import Gaussian, Spread, Ties, Value, share_sites
from moment_calculus.values.ancestry import Branches
from moment_calculus.values.covariances import (
    Query,
    elementwise_covariance,
)
from moment_calculus.values.lags import lag_covariance
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.protocols import Rewritable, Switched
from moment_calculus.values.spread import batch_shape, none_or_all, strongest_ties

__all__ = ["Config", "concatenate", "pad", "padded", "stack", "with_rows"]


class _Parts(Rewritable, Switched):
    """Base step of values side by side along an axis."""

    parts: tuple[Gaussian, ...]
    axis: int

    @cached_property
    def _places(self) -> tuple[int, ...]:
        return tuple(i for i, part in enumerate(self.parts) if part.support)

    @cached_property
    def inputs(self) -> tuple[Gaussian, ...]:  # type: ignore[override]
        return tuple(self.parts[i] for i in self._places)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Return the cotangents of the elements of one part."""
        sizes = [part.shape[self.axis] for part in self.parts]
        start = sum(sizes[: self._places[input_index]])
        stop, behind = start + sizes[self._places[input_index]], (slice(None),) * (-1 - self.axis)
        return cotangent[(..., slice(start, stop), *behind)]

    def factors(self, value: Gaussian) -> tuple[int, ...]:
        return ()

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        return axis if axis != self.axis else None

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian:
        known = dict(zip(self._places, inputs, strict=True))
        return concatenate([known.get(i, part) for i, part in enumerate(self.parts)], self.axis)

    def branches(self, value: Gaussian, input_branches: Any) -> Branches | None:
        """Concatenate the branches and the masks; a part without a mask is its own branch."""
        known: dict[int, Any] = dict(zip(self._places, input_branches, strict=True))
        masked = [input_branch for input_branch in input_branches if input_branch is not None]
        if not masked:
            return None
        ones = [namespace(part.mean).ones_like(part.mean) for part in self.parts]
        beside = lambda choice, others: _concatenate_any(  # noqa: E731
            [choice(known[i]) if known.get(i) else other for i, other in enumerate(others)],
            self.axis,
        )
        mask = beside(lambda branches: branches.mask, ones)
        return Branches(mask, masked[0].join, lambda choice: beside(choice, self.parts))

    def function_first(
        self, value: Gaussian, apply: Callable[[Gaussian], Gaussian]
    ) -> Gaussian | None:
        """Return functions of dependent parts side by side, so that each is met as a function."""
        if not share_sites(*self.parts):
            return None
        return concatenate([apply(part) for part in self.parts], self.axis)

    def elementwise_covariance_with(
        self, value: Gaussian, other: Gaussian, query: Any
    ) -> Array | float | None:
        known, start = [], 0
        for part in self.parts:
            end = start + part.shape[self.axis]
            piece = take(other, slice(start, end), len(other.shape) + self.axis)
            known.append(elementwise_covariance(part, piece))
            start = end
        if any(covariance is None for covariance in known):
            return None
        if all(isinstance(covariance, float) for covariance in known):
            return 0.0
        xp, pairs = namespace(other.mean), zip(self.parts, known, strict=True)
        wide = [xp.broadcast_to(c + 0 * part.variance, part.shape) for part, c in pairs]
        return _concat(wide, self.axis)


@dataclass(frozen=True, eq=False)
class _Joined(_Parts):
    """Step of values side by side along their feature axis."""

    parts: tuple[Gaussian, ...]  # certain ones have a variance of zero
    axis: int  # negative

    def through(self, input_index: int, cross: Array) -> Array:
        """Pad the covariance of one part with zero rows for the features of the others."""
        sizes, i = [_size(part) for part in self.parts], self._places[input_index]
        return _pad_rows(cross, sum(sizes[:i]), sum(sizes[i + 1 :]))


@dataclass(frozen=True, eq=False)
class _Stacked(_Parts):
    """Step of values side by side along an axis of the batch."""

    parts: tuple[Gaussian, ...]
    axis: int  # negative
    features: int | None  # the feature axis of the parts

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return the covariance with another stack of parts of the same shapes, part by part."""
        step = other.step
        if not isinstance(step, _Stacked) or not self._is_beside(step):
            return NotImplemented
        pairs = list(zip(self.parts, step.parts, strict=True))
        crosses = [query.cross(*pair) for pair in pairs]
        if any(cross is None for cross in crosses):
            return None
        wide = [_wide(cross, *pair) for cross, pair in zip(crosses, pairs, strict=True)]
        return _concat(wide, self._place_in_batch - 2)

    def _is_beside(self, step: _Stacked) -> bool:
        same = (self.axis, self.features) == (step.axis, step.features)
        return same and [p.shape for p in self.parts] == [p.shape for p in step.parts]

    @property
    def _place_in_batch(self) -> int:
        return self.axis + (self.features is not None and self.axis < self.features)

    def follows(self, input_index: int) -> bool:
        """Whether every part has one element along the axis, so that it keeps its covariance."""
        return all(part.shape[self.axis] == 1 for part in self.parts)

    def through(self, input_index: int, cross: Array) -> Array | None:
        """Keep the covariance at the element of one part; zero at the other elements."""
        if not self.follows(input_index):
            return None
        return _only(cross, self._places[input_index], len(self.parts), self._place_in_batch)


def concatenate(values: Sequence[Any], axis: int) -> Gaussian:
    """Concatenate values and arrays along a negative axis; at least one is random.

    Along the feature axis the cross-covariances of the parts enter; it raises
    UnsupportedMoments if they are unknown.
    """
    live = [value.gaussian() for value in values if hasattr(value, "gaussian")]
    features = live[0].axis if len({part.axis for part in live}) == 1 else -1
    if features is None and all(value.shape[axis] == 1 for value in values):
        features = axis  # scalars side by side become the features of a vector
    parts = [on_features(value, features, live[0].propagation) for value in values]
    along = axis == features
    joint = None
    if features is not None:
        joint = (lambda: _joined(parts)) if along else (lambda: _stacked(parts, axis, features))
    shared = bool(share_sites(*parts))
    dense = any(part.has_covariance for part in parts) or (along and shared)
    variance = _concat([part.variance for part in parts], axis)
    return Gaussian(
        _concat([part.mean for part in parts], axis),
        Spread(variance, joint, dense and live[0].propagation.has_full_covariance),
        _Joined(tuple(parts), axis) if along else _Stacked(tuple(parts), axis, features),
        axis=features,
        ties=Ties.ALL if shared else strongest_ties(parts),
        propagation=live[0].propagation,
    )


def _concatenate_any(parts: Sequence[Any], axis: int) -> Any:
    random = any(hasattr(part, "sites") for part in parts)
    return concatenate(parts, axis) if random else _concat(parts, axis)


def stack(values: Sequence[Any], axis: int) -> Gaussian:
    """Stack values and arrays along a new negative axis; scalars become features of a vector."""
    shape = tuple(values[0].shape)
    features = len(shape) + 1 + axis
    wide = (*shape[:features], 1, *shape[features:])
    result = concatenate([reshape(value, wide) for value in values], axis)
    if axis == -1:
        result.memo.arrays[STACKED] = tuple(values)
    return result


def with_rows(value: Any, rows: Any, origin: Array, axis: int) -> Any:
    """Return a value or array, at least one random, with others in place of some of its rows.

    ``axis`` is not negative. ``origin`` [rows of the result] counts those of ``value`` first,
    then the others; none occurs twice.
    """
    joined = concatenate([value, rows], axis - len(value.shape))
    return move_axis(index_axes(joined, {axis: origin}, distinct=True), 0, axis)


def _concat(arrays: Sequence[Array], axis: int) -> Array:
    return namespace(arrays[0]).concat(list(arrays), axis=axis)


def on_features(operand: Any, axis: int | None, propagation: Propagation) -> Gaussian:
    """Return a value on a feature axis (negative or None); an array has variance zero."""
    if hasattr(operand, "gaussian"):
        return broadcast(operand.gaussian(), operand.shape, axis)
    zeros = namespace(operand).zeros_like(operand)
    return Gaussian(operand, Spread(zeros), axis=axis, propagation=propagation)


def _stacked(parts: Sequence[Gaussian], axis: int, features: int) -> Array:
    """Return the covariance of parts concatenated along an axis of the batch."""
    rank = len(parts[0].shape)
    return _concat([part.joint_covariance() for part in parts], axis % rank - (axis > features))


def _joined(parts: Sequence[Gaussian]) -> Array:
    known = Query().cross
    return _concat([_concat([_block(p, q, known) for q in parts], -1) for p in parts], -2)


def _block(left: Gaussian, right: Gaussian, known: Callable) -> Array:
    if left is right:
        return left.joint_covariance()
    cross = known(left, right)
    if cross is None:
        full = "use covariance='diagonal'"
        diagonal = "rewrite the model so that they share no latent site"
        raise UnsupportedMoments(
            "concatenation of values whose joint moments are not known",
            sites=left.sites & right.sites,
            remedy=(full if left.propagation.has_full_covariance else diagonal) + OR_DRAW,
        )
    return _wide(cross, left, right)


def _wide(cross: Array, left: Gaussian, right: Gaussian) -> Array:
    batch = batch_shape(left.shape, left.axis)
    return namespace(cross).broadcast_to(cross, (*batch, _size(left), _size(right)))


def _size(part: Gaussian) -> int:
    return 1 if part.axis is None else part.shape[part.axis]


def _pad_rows(cross: Array, before: int, after: int) -> Array:
    xp = namespace(cross)
    above, below = (
        xp.zeros((*cross.shape[:-2], n, cross.shape[-1]), dtype=cross.dtype, device=device(cross))
        for n in (before, after)
    )
    return xp.concat([above, cross, below], axis=-2)


def _only(cross: Array, chosen: int, count: int, features: int) -> Array:
    """Keep one element along a negative axis of the batch, with zeros for the others."""
    xp = namespace(cross)
    numbers = xp.reshape(xp.arange(count, device=device(cross)), (count,) + (1,) * (1 - features))
    return xp.where(numbers == chosen, cross, xp.zeros_like(cross))


Config = Sequence[tuple[int, int, int]]
PadKernel = Callable[[Array, Config, Any], Array]


@dataclass(frozen=True, eq=False)
class _Padded(Moved):
    """Step of a padding with certain entries around and between those of a value."""

    kernel: PadKernel
    config: Config
    fill: Any = 0.0
    adds_elements = True

    def move(self, array: Array) -> Array:
        return self.kernel(array, self.config, 0.0)

    def apply_to(self, operand: Any, like: Gaussian) -> Any:
        if isinstance(operand, Gaussian):
            return pad(operand, self.kernel, self.config, self.fill)
        return self.kernel(operand, self.config, self.fill)

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        return axis if not any(self.config[axis]) else None

    @property
    def _layout(self) -> tuple[Config, tuple[int, int, int]]:
        """The padding of the batch axes, and that of the feature axis."""
        axis, config = self.source.axis, tuple(self.config)
        features = len(config) + (axis or 0)
        return (*config[:features], *config[features + 1 :]), config[axis or 0]

    def covariance(self) -> Array:
        batch, features = self._layout
        return self.kernel(self.source.joint_covariance(), (*batch, features, features), 0.0)

    def follows(self, input_index: int) -> bool:
        known = self.source.axis is not None
        return known and not any(any(entry) for entry in self._layout[0])

    def through(self, input_index: int, cross: Array) -> Array:
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
    step, known = _Padded(value, kernel, config, fill), value.axis is not None
    ties = none_or_all(value.independent)
    result = moved(step, value.axis, dense=value.has_covariance, joint=known, ties=ties)
    result.mean = kernel(value.mean, config, fill)
    return result


def padded(operand: Any, kernel: PadKernel, config: Config) -> Any:
    """Return a value or array with zeros around and between its entries, by its axes."""
    if not any(any(entry) for entry in config):
        return operand
    return (
        pad(operand, kernel, config) if hasattr(operand, "sites") else kernel(operand, config, 0.0)
    )
