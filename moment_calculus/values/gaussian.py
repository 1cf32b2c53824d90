"""A Gaussian value: moments, and the step that made it.

The live values form a graph by their steps, in which the cross-covariance of any two of them is
computed on demand, see :func:`moment_calculus.values.covariances.cross_covariance`.

Layout: ``mean`` has the program's own shape. One axis may be the *feature axis*; the covariance
over it is stored with that axis moved to the end and doubled, ``batch + [d, d]``, where ``batch``
is the shape without the feature axis. A value without a feature axis (``axis=None``) is a batch
of scalars, ``d = 1``. Components without a stored covariance are propagated as independent.
"""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import (
    Array,
    device,
    diagonal,
    diagonal_matrix,
    positive_part,
)
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.refusals.memory import check_memory
from moment_calculus.values.entries import Entries, by_older
from moment_calculus.values.layout import features_last, from_features_last
from moment_calculus.values.spread import Spread, Ties
from moment_calculus.values.step import Step
from moment_calculus.values.support import Support, union

_serials = itertools.count()


@dataclass(frozen=True, eq=False)
class Root(Step):
    """Made from no other value: a latent site, or the user's own input.

    Args:
        weight: as of :class:`Step`.
        made_of: of which entries it is made, where not of its own.
    """

    weight: bool = False
    made_of: Entries | None = None

    def entries(self, value: Gaussian) -> Entries | None:
        """Its own, if they are independent."""
        if self.made_of is not None:
            return self.made_of
        return Entries.of(value) if value.independent else None

    def meet(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """The inputs of the other value tell."""
        return by_older(value, other, query)


class Memo:
    """What was computed of one value: other values while they live, and arrays."""

    __slots__ = ("arrays", "values")

    def __init__(self) -> None:
        self.values: weakref.WeakValueDictionary[Any, Gaussian] = weakref.WeakValueDictionary()
        self.arrays: dict[Any, Any] = {}


class Gaussian:
    """Moments of an array-valued random variable, propagated as a Gaussian.

    Args:
        mean: array of the variable's shape.
        spread: its variance and covariances.
        step: how it was made; by default a root of the graph.
        axis: the feature axis, negative; None for a batch of scalars.
        support: the latent sites, and which of their elements, that the value depends on; by
            default those of the step's inputs.
        ties: what within the value is tied to what. By default all; of a root that has no
            covariance none, and of one that has the features of each element of the batch.
        propagation: how randomness flows in this program.
    """

    __slots__ = (
        "__weakref__",
        "_memo",
        "axis",
        "mean",
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
        axis: int | None = -1,
        support: Support | None = None,
        ties: Ties | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        self.mean, self.spread, self.axis = mean, spread, axis
        self.step = Root() if step is None else step
        self.support = union(self.step.inputs) if support is None else support
        self.ties = self._default_ties() if ties is None else ties
        self.propagation = propagation or Propagation()
        self._memo: Memo | None = None
        self.serial = next(_serials)

    def _default_ties(self) -> Ties:
        if self.step.inputs:
            return Ties.ALL
        return Ties.NONE if self.spread.plain else Ties.FEATURES

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        return tuple(self.mean.shape)

    @property
    def at_mean(self) -> Array:
        """The variable evaluated at its mean."""
        return self.mean

    @property
    def sites(self) -> frozenset[str]:
        """Names of the latent sites the value depends on."""
        return frozenset(self.support)

    @property
    def independent(self) -> bool:
        """Whether all components, those of the whole batch too, are independent."""
        return self.ties == Ties.NONE

    @property
    def apart(self) -> bool:
        """Whether the elements of the batch are independent, whatever their features are."""
        return self.ties <= Ties.FEATURES

    @property
    def origin(self) -> Gaussian:
        """The value of which this one is a function component by component."""
        value = self
        while value.step.in_place:
            value = value.step.inputs[0]
        return value

    @property
    def memo(self) -> Memo:
        """What was computed of the value, for those who ask again."""
        if self._memo is None:
            self._memo = Memo()
        return self._memo

    @property
    def has_covariance(self) -> bool:
        """Whether the components are propagated with their covariance."""
        return self.spread.covariance is not None

    @property
    def enters_jointly(self) -> bool:
        """Whether its components enter sums and maps with their covariance."""
        return self.propagation.full or self.has_covariance

    @property
    def covariance(self) -> Array | None:
        """Covariance over the feature axis, ``batch + [d, d]``; None: independent components."""
        return self.spread.computed("covariance", lambda: check_memory(self))

    @property
    def variance(self) -> Array:
        """Variance of every component, of the variable's shape."""
        if self.spread.variance is None:
            # a difference of dependent values rounds
            diagonals = positive_part(diagonal(self.covariance))
            self.spread.variance = from_features_last(diagonals, self.axis)
        return self.spread.variance

    def joint_covariance(self) -> Array:
        """Covariance over the feature axis, computed even where it is not propagated."""
        if self.has_covariance:
            return self.covariance
        if not self.independent:
            joint = self.spread.computed("joint", lambda: check_memory(self))
            if joint is not None:
                return joint
        check_memory(self)
        return diagonal_matrix(features_last(self.variance, self.axis))

    def covariance_between(self, rows: slice, columns: slice) -> Array:
        """Covariance of some features with others, which alone is computed where that can be.

        Args:
            rows: of the trailing axis, which is the feature axis.
            columns: other ones.

        Returns:
            ``batch + [r, c]``, or what broadcasts to it.
        """
        if self.independent:
            xp, like = namespace(self.mean), self.mean
            return xp.zeros((1, 1), dtype=like.dtype, device=device(like))
        if self.spread.is_pending:
            check_memory(self, rows, columns)
            known = self.step.between_features(self, rows, columns)
            if known is not None:
                return known
        return self.joint_covariance()[..., rows, :][..., columns]

    def gaussian(self) -> Gaussian:
        """Return the value itself: it is already moment-matched."""
        return self
