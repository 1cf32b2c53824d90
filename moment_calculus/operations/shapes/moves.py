"""Elements put elsewhere: moments move, covariances follow while their axis survives.

On a :class:`Deferred` a move moves its base, so that the function stays recognisable (the scale of
a likelihood, say).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.refusals.errors import CovarianceDroppedWarning
from moment_calculus.refusals.notices import warn_user
from moment_calculus.values import Deferred, Gaussian, Spread, Step, Ties
from moment_calculus.values.entries import Entries, by_older, entries_of
from moment_calculus.values.lags import lag_covariance
from moment_calculus.values.spread import none_or_all
from moment_calculus.values.support import Support
from moment_calculus.values.vectors import as_vector


@dataclass(frozen=True, eq=False)
class Moved(Step):
    """The elements of a value, put elsewhere: a subclass says where.

    Args:
        source: the value.

    Attributes:
        computes: whether it computes something from the elements, as a sum does.
    """

    source: Gaussian
    computes = False

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        """Unless it computes something."""
        return not self.computes

    @cached_property
    def linked(self) -> bool:  # type: ignore[override]
        """As the source."""
        return self.source.step.linked

    @property
    def inputs(self) -> tuple[Gaussian, ...]:  # type: ignore[override]
        """The value alone."""
        return (self.source,)

    def move(self, array: Array) -> Array:
        """Put the elements of an array of the source's shape elsewhere.

        Args:
            array: mean, variance, or numbers of the elements.
        """
        raise NotImplementedError

    def covariance(self) -> Array:
        """Covariance of the result over its feature axis, where it is known."""
        raise NotImplementedError

    def branches(self, value: Gaussian, parts: Any) -> Any:
        """Moved with their mask."""
        if not parts or parts[0] is None:
            return None
        again = partial(self.again, like=value)
        return parts[0].mapped(again, again(parts[0].mask))

    def again(self, operand: Any, like: Gaussian) -> Any:
        """Move another value or array as the source.

        Args:
            operand: value or array of the source's shape.
            like: what became of the source.
        """
        if isinstance(operand, Deferred):
            return operand.moved(lambda part: self.again(part, like))
        if not isinstance(operand, Gaussian):
            return self.move(operand)
        dense, joint = like.has_covariance, like.spread.joint is not None
        ties = max(like.ties, operand.ties)
        step = replace(self, source=operand)
        return moved(step, like.axis, dense=dense, joint=dense or joint, ties=ties)

    def inward(self, value: Gaussian) -> Gaussian | None:
        """By the step of the source, unless the move computes sums, which a function bends."""
        return self.source.step.under(self, value) if self.elementwise else None

    def under(self, move: Any, like: Gaussian) -> Gaussian | None:
        """The same moves, both before the step of the source."""
        inner = self.inward(move.source)
        return None if inner is None else move.again(inner, like)

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """With the move before the step of the source."""
        inner = None if self.computes else self.inward(value)
        return None if inner is None else as_vector(inner)

    def rows(self, array: Array) -> Array | None:
        """Other features of the same elements of the batch, moved with them; None if they are not.

        Args:
            array: the batch of the source, with features on the trailing axis.
        """
        return None

    @cached_property
    def kept(self) -> Entries | None:
        """Which entries of a latent site the result is made of."""
        entries = None if self.computes else entries_of(self.source)
        return None if entries is None else entries.moved(self.move)

    def entries(self, value: Gaussian) -> Entries | None:
        """Those of the source, moved."""
        return self.kept

    def meet(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """What is made of entries of a site is asked by the inputs of the other value first."""
        return by_older(value, other, query)


def moved(
    step: Moved,
    axis: int | None,
    *,
    dense: bool = False,
    joint: bool = False,
    ties: Ties = Ties.ALL,
    support: Support | None = None,
) -> Gaussian:
    """The value that a move makes; all components may be tied unless told otherwise.

    Args:
        step: the move.
        axis: feature axis of the result.
        dense: whether its covariance is propagated.
        joint: whether its joint covariance is known.
        ties: as of :class:`Gaussian`.
        support: likewise.
    """
    value, covariance = step.source, step.covariance
    _ = step.kept, step.linked  # found here, one move at a time
    return Gaussian(
        step.move(value.mean),
        Spread(
            step.move(value.variance), covariance if dense else None, covariance if joint else None
        ),
        step,
        axis=axis,
        support=support,
        ties=ties,
        propagation=value.propagation,
    )


@dataclass(frozen=True, eq=False)
class Permuted(Moved):
    """Axes in another order.

    Args:
        order: the old axis at each new place.
    """

    order: tuple[int, ...]

    @property
    def batch(self) -> list[int]:
        """The order of the axes of the batch."""
        axis, rank = self.source.axis, len(self.order)
        place = None if axis is None else rank + axis
        return [o - (place is not None and o > place) for o in self.order if o != place]

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether the batch stays as it is."""
        return self.batch == sorted(self.batch)

    def move(self, array: Array) -> Array:
        """Permuted."""
        return namespace(array).permute_dims(array, self.order)

    def covariance(self) -> Array:
        """The batch permuted."""
        covariance, rank = self.source.joint_covariance(), len(self.batch)
        return namespace(covariance).permute_dims(covariance, (*self.batch, rank, rank + 1))

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """That of the source, permuted."""
        old = [0] * len(self.order)
        for place, axis in enumerate(self.order):
            old[axis] = offset[place]
        known = lag_covariance(self.source, old)
        return None if known is None else self.move(known)


def permute(value: Any, order: Sequence[int]) -> Any:
    """Reorder the axes of a value or array; the feature axis moves along.

    Args:
        value: value or array of rank n.
        order: the old axis at each new place, a permutation of 0 … n − 1.
    """
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
    axis = None if value.axis is None else order.index(rank + value.axis) - rank
    return with_batch(Permuted(value, order), axis)


def with_batch(step: Moved, axis: int | None) -> Gaussian:
    """The value that a move of the batch makes, whose features stay as they are.

    Args:
        step: the move.
        axis: feature axis of the result.
    """
    value = step.source
    dense = value.has_covariance and axis is not None
    return moved(step, axis, dense=dense, joint=value.axis is not None, ties=value.ties)


def swap_last(value: Any) -> Any:
    """Transpose the two trailing axes of a value or array; the feature axis moves along."""
    rank = len(value.shape)
    return permute(value, (*range(rank - 2), rank - 1, rank - 2))


def move_axis(value: Any, source: int, target: int) -> Any:
    """Move one axis of a value or array to another place; the other axes keep their order.

    Args:
        value: value or array.
        source: non-negative axis.
        target: its non-negative place in the result.
    """
    order = [axis for axis in range(len(value.shape)) if axis != source]
    order.insert(target, source)
    return permute(value, order)


@dataclass(frozen=True, eq=False)
class TrailingFeatures(Moved):
    """The trailing axis as feature axis, of components that are taken as independent."""

    def move(self, array: Array) -> Array:
        """As it is."""
        return array


def with_trailing_features(value: Gaussian) -> Gaussian:
    """The value with its trailing axis as feature axis; covariances are dropped.

    Args:
        value: a value of at least one axis.
    """
    return moved(TrailingFeatures(value), -1, ties=none_or_all(value.independent))


def may_lose_dependence(value: Gaussian) -> bool:
    """Whether a change of the feature axis loses a covariance that full mode knows or carries."""
    return value.propagation.full and not value.independent


def warn_dropped(value: Gaussian, what: str) -> None:
    """Tell the user once per line that only the diagonal of a covariance is kept."""
    warn_user(
        f"{what} mixes the feature axis of a covariance that depends on latent site(s) "
        f"{', '.join(sorted(value.sites))}: only the variances are kept, and what follows takes "
        "the components as independent; keep the outputs of a layer on an axis of their own (a "
        "mean over positions instead of a reshape), or draw a site by naming it in sample_sites=",
        CovarianceDroppedWarning,
    )
