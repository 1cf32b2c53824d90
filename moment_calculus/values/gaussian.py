"""A Gaussian value: moments with provenance.

A :class:`Gaussian` remembers its parents together with the expected Jacobian of the step that
made it (E f′, by Stein's lemma). The live values so form a linear-Gaussian graph, in which the
cross-covariance of any two of them is computed on demand, see
:func:`moment_calculus.values.covariances.cross_covariance`.

Layout: ``mean`` has the program's own shape. One axis may be the *feature axis*; the covariance
over it is stored with that axis moved to the end and doubled, ``batch + [d, d]``, where ``batch``
is the shape without the feature axis. A value without a feature axis (``axis=None``) is a batch
of scalars, ``d = 1``. Components without a stored covariance are independent.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from moment_calculus.numerics.arrays import Array, diagonal, diagonal_matrix, positive_part
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.refusals.memory import check_memory
from moment_calculus.values.entries import Components
from moment_calculus.values.layout import Jacobian, features_last, from_features_last
from moment_calculus.values.support import Elements, inherited

_serials = itertools.count()


class Gaussian:
    """Moments of an array-valued random variable, propagated as a Gaussian.

    Args:
        mean: array of the variable's shape.
        variance: array of the same shape; may be omitted when ``covariance`` is an array.
        covariance: ``batch + [d, d]`` over the feature axis, or a callable that computes it when
            it is first needed, or None for independent components.
        joint: callable that computes the covariance over the feature axis of a value whose
            components are propagated as independent (diagonal mode), for the cross-covariance
            of its slices.
        axis: the feature axis, negative; None for a batch of scalars.
        sites: names of the latent sites the value depends on.
        parents: pairs of a value and the map from Cov(parent, ·) to Cov(self, ·) in the layout
            ``batch + [d, e]``; the map is None where the covariance is not known.
        propagation: how randomness flows in this program.
        independent: whether all components, those of the whole batch too, are independent; by
            default known of a latent site alone.
        apart: whether the elements of the batch are independent of each other, whatever their
            features are; by default known of a latent site and of independent components.
        origin: the value of which this one is a function component by component; by default
            itself.
        factors: the two values of which this one is the product.
        function: the value and the activation of which this one is the moment-matched image,
            as a pair; by default none.
        mixes: whether the features of the parents entered as independent (diagonal mode).
        weight: whether it is a latent matrix as a whole, not a batch of latent vectors; a product
            with certain columns then has its rows as features.
        affine: a value, a scale and a shift, certain arrays or numbers, of which it is the image
            component by component.
        lags: computes the covariance of every component with the one that is an offset away, see
            :func:`moment_calculus.values.lags.lag_covariance`.
        elements: of which elements of its sites it is a function, where it is not one of all; by
            default those of its parents.
        components: which components of a latent site its components are, if that is what they
            are; by default known of a latent site alone.
        each: computes the covariance of each component with the same component of another value
            of its shape and feature axis; None instead of it, or of its result, where that takes
            their cross-covariance.
        picked: a value, and the keys by which elements of its batch were chosen from it; by default
            none.
        trailing: computes the same value with its trailing axis as feature axis, where that is
            more than a function component by component.
    """

    __slots__ = (
        "__weakref__",
        "_components",
        "_covariance",
        "_joint",
        "_origin",
        "_variance",
        "affine",
        "apart",
        "axis",
        "each",
        "elements",
        "factors",
        "function",
        "independent",
        "lags",
        "matched",
        "mean",
        "mixes",
        "parents",
        "picked",
        "propagation",
        "serial",
        "sites",
        "trailing",
        "vector",
        "weight",
    )

    def __init__(
        self,
        mean: Array,
        variance: Array | None = None,
        covariance: Array | Callable[[], Array] | None = None,
        *,
        joint: Callable[[], Array] | None = None,
        axis: int | None = -1,
        sites: frozenset[str] = frozenset(),
        parents: tuple[tuple[Gaussian, Jacobian | None], ...] = (),
        propagation: Propagation | None = None,
        independent: bool | None = None,
        apart: bool | None = None,
        origin: Gaussian | None = None,
        factors: tuple[Gaussian, Gaussian] | None = None,
        function: Any = None,
        mixes: bool = False,
        weight: bool = False,
        affine: tuple[Gaussian, Any, Any] | None = None,
        lags: Callable[[tuple[int, ...]], Array | None] | None = None,
        elements: Elements | None = None,
        components: Components | None = None,
        each: Callable[[Gaussian], Array | float | None] | None = None,
        picked: tuple[Gaussian, tuple] | None = None,
        trailing: Callable[[], Gaussian | None] | None = None,
    ) -> None:
        self.mean, self._variance, self._covariance, self._joint = mean, variance, covariance, joint
        self.axis, self.sites, self.parents = axis, sites, parents
        self.propagation = propagation or Propagation()
        self._origin, self.factors, self.mixes, self.weight = origin, factors, mixes, weight
        self.function, self.affine, self.lags = function, affine, lags
        self.picked, self.trailing = picked, trailing
        site = not parents and covariance is None and joint is None
        self.independent = site if independent is None else independent
        self.apart = self.independent or not parents if apart is None else apart
        self.elements = inherited(sites, parents) if elements is None else elements
        self._components, self.each = components, each
        self.matched: weakref.WeakValueDictionary | None = None
        self.vector: Gaussian | None = None
        self.serial = next(_serials)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        return tuple(self.mean.shape)

    @property
    def at_mean(self) -> Array:
        """The variable evaluated at its mean."""
        return self.mean

    @property
    def origin(self) -> Gaussian:
        """The value of which this one is a function component by component."""
        return self if self._origin is None else self._origin

    @property
    def components(self) -> Components | None:
        """Which components of a latent site its components are; None if they are none."""
        if self._components is None and self.independent and not self.parents:
            return Components.of(self)
        return self._components

    @property
    def has_covariance(self) -> bool:
        """Whether the components are propagated with their covariance."""
        return self._covariance is not None

    @property
    def covariance(self) -> Array | None:
        """Covariance over the feature axis, ``batch + [d, d]``; None: independent components."""
        if callable(self._covariance):
            check_memory(self)
            self._covariance = self._covariance()
        return self._covariance

    @property
    def variance(self) -> Array:
        """Variance of every component, of the variable's shape."""
        if self._variance is None:
            # a difference of dependent values rounds
            diagonals = positive_part(diagonal(self.covariance))
            self._variance = from_features_last(diagonals, self.axis)
        return self._variance

    def joint_covariance(self) -> Array:
        """Covariance over the feature axis, computed even where it is not propagated."""
        if self.has_covariance:
            return self.covariance
        if self.independent:
            self._joint = None
        if callable(self._joint):
            check_memory(self)
            self._joint = self._joint()
        if self._joint is not None:
            return self._joint
        check_memory(self)
        return diagonal_matrix(features_last(self.variance, self.axis))

    def gaussian(self) -> Gaussian:
        """Return the value itself: it is already moment-matched."""
        return self
