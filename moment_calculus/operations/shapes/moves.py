"""Steps that rearrange elements: moments move, and covariances with them if their axis stays.

A move of a :class:`Deferred` moves its base, so that the function stays recognisable (the
scale of a likelihood, for example).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np

from moment_calculus.errors import CovarianceDroppedWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import Array, known_numbers, namespace
from moment_calculus.numerics.derivatives import transposed_each
from moment_calculus.values import Deferred, Gaussian, Spread, Ties
from moment_calculus.values.ancestry import as_vector
from moment_calculus.values.deferred import Composite
from moment_calculus.values.lags import Along, Pairs, lag_covariance
from moment_calculus.values.protocols import KnowsLags, Rewritable, Switched
from moment_calculus.values.spread import Support, none_or_all
from moment_calculus.values.step import Entries, OfOneSource, covariance_by_older, entries_of

__all__ = ["converted", "move_axis", "permute", "swap_last"]


@dataclass(frozen=True, eq=False)
class Moved(OfOneSource, KnowsLags, Rewritable, Switched):
    """Base step of operations that rearrange, and may sum, the elements of a value."""

    combines_elements = False  # whether it computes from several elements, as a sum does
    adds_elements = False  # whether certain elements are added, as padding

    def move(self, array: Array) -> Array:
        """Rearrange the elements of an array of the source's shape; by default, keep them."""
        return array

    @cached_property
    def repeats(self) -> bool:  # type: ignore[override]
        """Whether an element of the source appears twice, or that is not known."""
        numbers = known_numbers(self.move, self.source.mean)
        return numbers is None or np.unique(numbers).size < numbers.size

    @property
    def may_repeat(self) -> bool:
        """Whether an element of the source may appear twice, which is worth to be known."""
        return False

    def function_first(
        self, value: Gaussian, apply: Callable[[Gaussian], Gaussian]
    ) -> Gaussian | None:
        """Return the moved function of the source, if elements are repeated: they stay equal."""
        if self.combines_elements or self.adds_elements:
            return None
        step = self.source.step
        inner = step.function_first(self.source, apply) if isinstance(step, Rewritable) else None
        if inner is None and self.may_repeat and self.repeats:
            inner = apply(self.source)
        return None if inner is None else self.apply_to(inner, value)

    def covariance(self) -> Array:
        """Return the covariance of the result over its feature axis, where it is known."""
        raise NotImplementedError

    def factors(self, value: Gaussian) -> tuple[int, ...]:
        """Return no index: the value is linear in its only input."""
        return ()

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Return the cotangent of the source: the transpose of :meth:`move`."""
        if type(self).move is Moved.move:
            return cotangent
        like = namespace(cotangent).zeros_like(self.source.mean)
        return transposed_each(self.move, like, cotangent)

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        """Return the axis itself, if the elements stay where they are."""
        return axis if type(self).move is Moved.move else None

    def branches(self, value: Gaussian, input_branches: Any) -> Any:
        """Rearrange both branches of the source, and their mask."""
        if self.combines_elements or input_branches[0] is None:
            return None
        again = partial(self.apply_to, like=value)
        return input_branches[0].map(again, again(input_branches[0].mask))

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Any:
        return None if self.combines_elements else self.apply_to(inputs[0], value)

    def apply_to(self, operand: Any, like: Gaussian) -> Any:
        """Apply the move to another value or array; ``like`` is the moved source."""
        if isinstance(operand, Deferred):
            return operand.moved(lambda part: self.apply_to(part, like))
        if not isinstance(operand, Gaussian):
            return self.move(operand)
        dense, joint = like.has_covariance, not like.spread.plain
        ties = max(like.ties, operand.ties)
        step = replace(self, source=operand)
        return moved(step, like.axis, dense=dense, joint=joint, ties=ties)

    def move_inputs_first(self, value: Gaussian) -> Gaussian | None:
        """Return the value with the move before the step of the source; None if unknown."""
        step = self.source.step
        if self.combines_elements or not isinstance(step, Rewritable):
            return None
        return step.pull_move_through(self, value)

    def pull_move_through(self, move: Any, like: Gaussian) -> Gaussian | None:
        """Return the value with both moves before the step of the source; None if unknown."""
        inner = self.move_inputs_first(move.source)
        return None if inner is None else move.apply_to(inner, like)

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the vector of the value with the move before the step of the source."""
        inner = None if self.adds_elements else self.move_inputs_first(value)
        return None if inner is None else as_vector(inner)

    def pairs(self, value: Gaussian, pairs: Pairs | Along) -> Array | None:
        """Move those of the source along an axis whose elements stay together."""
        if not isinstance(pairs, Along) or self.combines_elements or self.adds_elements:
            return NotImplemented
        old = self.same_rows(value, 0, pairs.axis)
        covariances = None if old is None else Along(old).covariances(self.source)
        return NotImplemented if covariances is None else self.move_each(covariances)

    def move_each(self, arrays: Array) -> Array:
        """Rearrange arrays [n, *shape of the source], each by itself, if that is known."""
        return arrays if type(self).move is Moved.move else NotImplemented

    def rearrange_rows(self, array: Array) -> Array | None:
        """Rearrange an array of other features of the same batch; None if it does not apply."""
        return None

    @cached_property
    def site_entries(self) -> Entries | None:
        """The entries of a latent site that the result is made of; None if there are none."""
        if self.combines_elements or self.adds_elements:
            return None
        entries = entries_of(self.source)
        return None if entries is None else entries.moved(self.move)

    def entries(self, value: Gaussian) -> Entries | None:
        """Return the rearranged entries of the source."""
        return self.site_entries

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Ask the inputs of an older value first, if this value is made of entries of a site."""
        return covariance_by_older(value, other, query)


def moved(
    step: Moved,
    axis: int | None,
    *,
    dense: bool = False,  # whether the covariance is propagated
    joint: bool = False,  # whether the covariance is known, even if it is not propagated
    ties: Ties = Ties.ALL,
    support: Support | None = None,
) -> Gaussian:
    """Make the value of a move; by default all of its components may be dependent."""
    value = step.source
    _ = step.site_entries  # cached now: asked later, it would recurse through long chains
    return Gaussian(
        step.move(value.mean),
        Spread(step.move(value.variance), step.covariance if dense or joint else None, dense),
        step,
        axis=axis,
        support=support,
        ties=ties,
        propagation=value.propagation,
    )


@dataclass(frozen=True, eq=False)
class Rearranged(Moved):
    """Step of a move of which nothing but the function of an array is known."""

    function_of_array: Callable[[Array], Array]
    may_repeat = True

    def move(self, array: Array) -> Array:
        """Call the function."""
        return self.function_of_array(array)


@dataclass(frozen=True, eq=False)
class Permuted(Moved):
    """Step of a permutation of the axes."""

    order: tuple[int, ...]  # the old axis at each new place

    @property
    def batch(self) -> list[int]:
        """The order of the axes of the batch."""
        axis, rank = self.source.axis, len(self.order)
        features = None if axis is None else rank + axis
        return [o - (features is not None and o > features) for o in self.order if o != features]

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether the axes of the batch keep their order."""
        return self.batch == sorted(self.batch)

    def move(self, array: Array) -> Array:
        """Permute the axes of an array."""
        return namespace(array).permute_dims(array, self.order)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Permute the axes back."""
        back = [self.order.index(axis) + 1 for axis in range(len(self.order))]
        return namespace(cotangent).permute_dims(cotangent, (0, *back))

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int:
        """Return the old place of an axis."""
        return self.order[axis] - len(self.order)

    def covariance(self) -> Array:
        """Permute the axes of the batch of the joint covariance."""
        covariance, rank = self.source.joint_covariance(), len(self.batch)
        return namespace(covariance).permute_dims(covariance, (*self.batch, rank, rank + 1))

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Permute the covariance of components an offset apart."""
        old = [0] * len(self.order)
        for there, axis in enumerate(self.order):
            old[axis] = offset[there]
        covariance = lag_covariance(self.source, old)
        return None if covariance is None else self.move(covariance)

    def move_each(self, arrays: Array) -> Array:
        """Permute the axes of each array."""
        order = (0, *(axis + 1 for axis in self.order))
        return namespace(arrays).permute_dims(arrays, order)


def permute(value: Any, order: Sequence[int]) -> Any:
    """Permute the axes of a value or array; the feature axis moves along."""
    order = tuple(order)
    if isinstance(value, Deferred):
        return value.moved(lambda v: permute(v, order))
    if isinstance(value, Composite):
        return value.permuted(order)
    if not isinstance(value, Gaussian):
        return namespace(value).permute_dims(value, order)
    rank = len(order)
    if order == tuple(range(rank)):
        return value
    step = value.step
    if isinstance(step, Permuted) and [step.order[i] for i in order] == [*range(rank)]:
        return step.source
    axis = None if value.axis is None else order.index(rank + value.axis) - rank
    return with_batch(Permuted(value, order), axis)


def with_batch(step: Moved, axis: int | None) -> Gaussian:
    """Make the value of a move that keeps the features; ``axis`` is their new axis."""
    value = step.source
    dense = value.has_covariance and axis is not None
    return moved(step, axis, dense=dense, joint=value.axis is not None, ties=value.ties)


def swap_last(value: Any) -> Any:
    """Transpose the two trailing axes of a value or array; the feature axis moves along."""
    rank = len(value.shape)
    return permute(value, (*range(rank - 2), rank - 1, rank - 2))


def move_axis(value: Any, source: int, target: int) -> Any:
    """Move one non-negative axis of a value or array to another place."""
    order = [axis for axis in range(len(value.shape)) if axis != source]
    order.insert(target, source)
    return permute(value, order)


def with_trailing_features(value: Gaussian) -> Gaussian:
    """Make the trailing axis the feature axis; covariances are dropped."""
    return moved(Moved(value), -1, ties=none_or_all(value.independent))


def may_lose_dependence(value: Gaussian) -> bool:
    """Whether a change of the feature axis may lose a covariance that full mode propagates."""
    return value.propagation.has_full_covariance and not value.independent


def vector_of_scalars(value: Gaussian, axis: int | None) -> Gaussian | None:
    """Return dependent scalars as a vector, e.g. elements of a plate that share one; else None."""
    is_asked = value.propagation.is_backward or may_lose_dependence(value)
    scalars = is_asked and not value.independent and (axis, value.axis) == (-1, None)
    return as_vector(value) if scalars else None


def is_same(value: Gaussian, other: Gaussian) -> bool:
    """Return whether two values are one, or made of one by the same moves, written twice."""
    if value is other:
        return True
    first, second = value.step, other.step
    if not isinstance(first, Moved) or type(first) is not type(second):
        return False
    parts = zip(_parts_of(first), _parts_of(second), strict=True)
    return all(are_same_parts(*pair) for pair in parts) and is_same(first.source, second.source)


def _parts_of(step: Moved) -> list[Any]:
    """Return what says how elements move: the fields of a step but for its source."""
    return [getattr(step, each.name) for each in fields(step) if each.name != "source"]


def are_same_parts(first: Any, second: Any) -> bool:
    """Whether two keys, or tuples of them, are known to be equal, arrays among them."""
    if first is second:
        return True
    if isinstance(first, tuple) and isinstance(second, tuple):
        same_length = len(first) == len(second)
        return same_length and all(map(are_same_parts, first, second))
    if not (is_array(first) and is_array(second)):
        return type(first) is type(second) and not is_array(first) and first == second
    if tuple(first.shape) != tuple(second.shape) or first.dtype != second.dtype:
        return False
    try:
        return bool(namespace(first).all(first == second))
    except (RuntimeError, TypeError):  # torch and JAX raise for traced keys without values
        return False


def is_array(key: Any) -> bool:
    """Whether a key is an array."""
    return hasattr(key, "shape") and hasattr(key, "dtype")


@dataclass(frozen=True, eq=False)
class _Dropped(Moved):
    """Step that keeps the variances of a value alone."""

    drops_covariance = True
    identity = True
    componentwise = True


def without_covariance(value: Gaussian, what: str) -> Gaussian:
    """Return a value without its covariance, and warn once per line."""
    warn_dropped(value, what)
    return moved(_Dropped(value), value.axis, ties=value.ties)


def warn_dropped(value: Gaussian, what: str) -> None:
    """Warn once per line that functions which follow have the variances of a value alone."""
    if value.propagation.is_backward:
        return
    warn_user(
        f"{what} mixes the feature axis of a covariance that depends on latent site(s) "
        f"{', '.join(sorted(value.sites))}: functions that follow have the variances alone; the "
        "covariance of a likelihood's parameters and of predictions is computed backwards instead, "
        "as by covariance='backward', which does not warn",
        CovarianceDroppedWarning,
    )


def refuse_dense(value: Gaussian, what: str) -> NoReturn:
    """Raise UnsupportedMoments for a covariance of all positions and features of a datum."""
    elements = math.prod(value.shape[1:])
    needed = value.shape[0] * elements**2 * value.mean.dtype.itemsize
    raise UnsupportedMoments(
        f"{what} of values of shape {value.shape}, which depend on latent site(s) "
        f"{', '.join(sorted(value.sites))}: with covariance='full' it needs the covariance of all "
        f"positions and features, {needed} bytes, which is not carried",
        sites=value.sites,
        remedy="use covariance='backward', which is as exact and needs no such matrix, or "
        "covariance='diagonal'",
    )


@dataclass(frozen=True, eq=False)
class Converted(Rearranged):
    """Step of a conversion to another precision or device."""

    def covariance(self) -> Array:
        """Convert the joint covariance of the source."""
        return self.move(self.source.joint_covariance())

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int:
        """Return the axis itself."""
        return axis

    @property
    def site_entries(self) -> Entries | None:
        """Return the entries of the source: their integer numbers are not converted."""
        return entries_of(self.source)

    def through(self, input_index: int, cross: Array) -> Array:
        """Convert the covariance with another value."""
        return self.move(cross)


def converted(value: Any, convert: Callable[[Array], Array]) -> Any:
    """Return a value or array in another precision or on another device."""
    if isinstance(value, Deferred):
        return value.moved(lambda v: converted(v, convert))
    if isinstance(value, Composite):
        return value.converted(convert)
    if not isinstance(value, Gaussian):
        return convert(value)
    step, dense = Converted(value, convert), value.has_covariance
    return moved(step, value.axis, dense=dense, joint=True, ties=value.ties)
