"""A Gaussian value: its moments, and the step that computed it.

The steps link the live values to a graph, from which the cross-covariance of any two is
computed on demand. ``mean`` has the program's shape, of which one axis may be the
*feature axis*; covariances have it moved to the end and doubled, ``batch + [d, d]``. A
value with ``axis=None`` is a batch of scalars, d = 1. Components without a stored
covariance are propagated as independent.
"""

from __future__ import annotations

import itertools
import math
import weakref
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import (
    Array,
    device,
    diagonal,
    diagonal_matrix,
    namespace,
    positive_part,
    times_rows,
)
from moment_calculus.values.memory import count_covariance, count_mean
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import (
    Spread,
    Support,
    Ties,
    features_last,
    from_features_last,
    union,
)
from moment_calculus.values.step import Added, Entries, Opaque, Step, covariance_by_older

_serials = itertools.count()


@dataclass(frozen=True, eq=False)
class Root(Step):
    """The step of a value that no other value made: a latent site, or the user's own input."""

    weight: bool = False  # see :func:`is_weight`
    entries_override: Entries | None = None  # entries of another site that are its components

    def entries(self, value: Gaussian) -> Entries | None:
        """Return the given entries, or all of its own if they are independent."""
        if self.entries_override is not None:
            return self.entries_override
        return Entries.of(value) if value.independent else None

    def own(self, value: Gaussian) -> Added:
        """Return the covariance of the value."""
        if value.independent or value.spread.plain:
            return Added(value.variance)
        covariance, axis = value.joint_covariance(), value.axis
        return Added(
            value.variance,
            lambda c: from_features_last(times_rows(covariance, features_last(c, axis)), axis),
        )

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return the covariance by the inputs of the other value."""
        return covariance_by_older(value, other, query)


class Memo:
    """A cache of what was computed from one value: other values while they live, and arrays."""

    __slots__ = ("arrays", "values")

    def __init__(self) -> None:
        self.values: weakref.WeakValueDictionary[Any, Gaussian] = weakref.WeakValueDictionary()
        self.arrays: dict[Any, Any] = {}


class Gaussian:
    """Moments of an array-valued random variable, propagated as a Gaussian."""

    __slots__ = (
        "__weakref__",
        "axis",
        "mean",
        "memo",
        "propagation",
        "serial",
        "spread",
        "step",
        "support",
        "ties",
    )

    def __init__(
        self,
        mean: Array,
        spread: Spread,
        step: Step | None = None,
        *,
        axis: int | None = -1,  # the feature axis, negative; None for a batch of scalars
        support: Support | None = None,  # by default that of the inputs of the step
        ties: Ties | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        self.mean, self.spread, self.axis = mean, spread, axis
        self.step = Root() if step is None else step
        if self.step.inputs:
            count_mean(mean)
        self.support = union(self.step.inputs) if support is None else support
        if ties is None:
            roots = Ties.NONE if spread.plain else Ties.FEATURES
            ties = Ties.ALL if self.step.inputs else roots
        self.ties = ties
        self.propagation = propagation or Propagation()
        self.memo = Memo()
        self.serial = next(_serials)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the variable."""
        return tuple(self.mean.shape)

    @property
    def at_mean(self) -> Array:
        """Return the variable evaluated at its mean."""
        return self.mean

    @property
    def sites(self) -> frozenset[str]:
        """Return the names of the latent sites on which the value depends."""
        return frozenset(self.support)

    @property
    def independent(self) -> bool:
        """Return whether all components are independent, across the batch too."""
        return self.ties == Ties.NONE

    @property
    def batch_independent(self) -> bool:
        """Return whether the elements of the batch are independent; features need not be."""
        return self.ties <= Ties.FEATURES

    @property
    def origin(self) -> Gaussian:
        """Return the value of which this one is a function component by component."""
        value = self
        while value.step.componentwise:
            value = value.step.inputs[0]
        return value

    @property
    def has_covariance(self) -> bool:
        """Return whether the covariance of the components is propagated."""
        return self.spread.propagated

    @property
    def uses_covariance(self) -> bool:
        """Return whether sums and maps use the covariance of its components."""
        return self.propagation.has_full_covariance or self.has_covariance

    @property
    def covariance(self) -> Array | None:
        """Return the covariance ``batch + [d, d]``, or None if it is not propagated."""
        if not self.has_covariance:
            return None
        return self.spread.computed_covariance(lambda: check_memory(self))

    @property
    def variance(self) -> Array:
        """Return the variance of every component, of the shape of the variable."""
        variance = self.spread.variance
        if callable(variance):
            variance = variance() if self.spread.is_pending else None
        if variance is None:
            # rounding may make the variance of a difference of dependent values negative
            diagonals = positive_part(diagonal(self.covariance))
            variance = from_features_last(diagonals, self.axis)
        self.spread.variance = variance
        return variance

    def joint_covariance(self) -> Array:
        """Return the covariance ``batch + [d, d]``, even where it is not propagated."""
        if self.has_covariance or not self.independent:
            joint = self.spread.computed_covariance(lambda: check_memory(self))
            if joint is not None:
                return joint
        check_memory(self)
        return diagonal_matrix(features_last(self.variance, self.axis))

    def covariance_between(self, rows: slice, columns: slice) -> Array:
        """Return Cov of two slices of the features, ``batch + [r, c]`` or what broadcasts to it."""
        if self.independent:
            xp, like = namespace(self.mean), self.mean
            return xp.zeros((1, 1), dtype=like.dtype, device=device(like))
        if self.spread.is_pending:
            check_memory(self, rows, columns)
            block = self.step.between_features(self, rows, columns)
            if block is not None:
                return block
        return self.joint_covariance()[..., rows, columns]

    def gaussian(self) -> Gaussian:
        """Return the value itself: its moments are known."""
        return self


def is_weight(value: Any) -> bool:
    """Return whether a value is a latent matrix as a whole, not a batch of latent vectors.

    Its product with columns that are not random then has the rows as features.
    """
    step = value.step
    return isinstance(step, Root | Opaque) and step.weight


ALL = slice(None)


def check_memory(value: Any, rows: slice = ALL, columns: slice = ALL) -> None:
    """Raise UnsupportedMoments if these rows and columns of a covariance exceed the limit."""
    if value.axis is None:
        return
    shape, mean = value.shape, value.mean
    size = max(1, shape[value.axis])
    entries = math.prod([len(range(*part.indices(size))) for part in (rows, columns)])
    needed = math.prod(shape) // size * entries * mean.dtype.itemsize
    count_covariance(needed)
    limit = value.propagation.memory_limit
    if needed > limit:
        raise UnsupportedMoments(
            f"the covariance of a value of shape {shape} takes {needed} bytes; the limit is "
            f"{limit:.0f}",
            sites=value.sites,
            remedy=(
                "use covariance='diagonal', " if value.propagation.has_full_covariance else "use "
            )
            + "smaller batches, or raise the limit: DeterministicELBO(memory_limit=...)",
        )
