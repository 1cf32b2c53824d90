"""A step records how a value was computed, to answer how the value depends on other values.

Every operation gives its result a subclass of :class:`Step`, defined beside the
operation. Covariances, lags, vectors and functions of one Gaussian call its methods and
know no subclass by name. The defaults claim nothing: the components may depend on each
other, and covariances with other values are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from moment_calculus.numerics.arrays import Array, axis_moved, device, namespace, transpose
from moment_calculus.numerics.derivatives import transposed
from moment_calculus.values.spread import (
    batch_shape,
    broadcasts,
    features_last,
    from_features_last,
)


class Entries(NamedTuple):
    """The entries of a latent site that are the components of a value."""

    site: Any  # a latent site with independent components
    indices: Callable[[], Array]  # computes the index of every entry, in the shape of the value

    @classmethod
    def of(cls, site: Any) -> Entries:
        """Return all entries of a latent site, in order."""
        xp, shape, place = namespace(site.mean), tuple(site.shape), device(site.mean)
        return cls(site, lambda: xp.reshape(xp.arange(math.prod(shape), device=place), shape))

    def moved(self, move: Callable[[Array], Array]) -> Entries:
        """Return the entries after ``move``, which only rearranges the elements of an array."""
        return Entries(self.site, lambda: move(self.indices()))

    def covariance(self, variance: Array) -> Array:
        """Return the covariance along the trailing axis, given the variance of each component."""
        indices = self.indices()
        return _where_same(indices[..., :, None], indices[..., None, :], variance[..., :, None])


class Added(NamedTuple):
    """A covariance of the components of a value with each other."""

    variance: Array  # of each component
    # the product with cotangents [n, *shape], if the features depend on each other
    times: Callable[[Array], Array] | None = None


def entries_of(value: Any) -> Entries | None:
    """Return the entries of a latent site that are the components of a value, or None."""
    return value.step.entries(value)


def _of_one_site(*values: Any) -> list[Entries] | None:
    """Return the entries of values that are all entries of the same latent site; else None."""
    entries = [entries_of(value) for value in values]
    sites = {id(part.site) if part else None for part in entries}
    return None if len(sites) > 1 or None in sites else entries  # type: ignore[return-value]


def covariance_of_entries(left: Any, right: Any) -> Array | None:
    """Return Cov(left, right), ``batch + [d, e]``, if both are entries of one site; else None."""
    parts = _of_one_site(left, right)
    batches = (batch_shape(value.shape, value.axis) for value in (left, right))
    if parts is None or not broadcasts(*batches):
        return None
    ours, theirs = (
        features_last(part.indices(), value.axis)
        for part, value in zip(parts, (left, right), strict=True)
    )
    variance = features_last(left.variance, left.axis)[..., :, None]
    return _where_same(ours[..., :, None], theirs[..., None, :], variance)


def elementwise_covariance_of_entries(left: Any, right: Any) -> Array | None:
    """Return the covariance of equal components, if both values are entries of one site."""
    parts = _of_one_site(left, right)
    if parts is None:
        return None
    return _where_same(parts[0].indices(), parts[1].indices(), left.variance)


def _where_same(ours: Array, theirs: Array, variance: Array) -> Array:
    xp = namespace(variance)
    return xp.where(ours == theirs, variance, xp.zeros_like(variance))


def covariance_by_older(value: Any, other: Any, query: Any) -> Array | None:
    """Return Cov(value, other) of entries by the inputs of the older value, else NotImplemented."""
    swapped = None if entries_of(value) is None else query.by_inputs(other, value)
    return NotImplemented if swapped is None else transpose(swapped)


class Step:
    """How a value was computed; every kind of operation has a subclass, defined beside it.

    A step never holds the value itself, so that no reference cycle outlives its use. A
    dataclass that takes ``inputs`` as an argument declares them with ``field()``, without
    the default here.

    Attributes:
        inputs: values from which the value was computed.
        identity: whether the components are those of the inputs, or sums of them.
        componentwise: whether component i depends on component i of the inputs alone, and
            the inputs are, in the same sense, functions of one value.
        assumes_independence: whether the features of the inputs were treated as
            independent (diagonal mode).
        drops_covariance: whether the inputs depend on each other and were summed as if
            they did not.
        repeats: whether a component of the input may be several components of the value.
        affine: the only input x, a scale and a shift (arrays or numbers that are not
            random), if the value is scale · x + shift component by component.
        function: the Gaussian x and the function f, as a pair, if the value is f(x).
        line: file and line of the user, if the rule book adds a term for the function.
        is_product: whether the value is the product of its two inputs.
        is_sum: whether the value is the sum of its two inputs.
        joint: the function, if the value is one of several Gaussians, element by element.
        expected_map: x and the expected M [outputs, inputs], if the value is M x plus noise.
        weight: whether the value is a latent matrix as a whole, not a batch of latent
            vectors; its product with columns that are not random then has the rows as
            features.
        data: whether the value is data with noise of their own: input of a map, never its
            weight.
        symmetric: whether the value is a symmetric matrix.
        linear_in_chains: whether the value is linear in latent chains and its components
            depend on each other in no other way; then sums and maps use its covariance in
            diagonal mode too.

    Covariances of a few values are also computed backwards, see :mod:`.backward`, by
    :meth:`pull` and :meth:`own`.
    """

    inputs: tuple[Any, ...] = ()
    identity: bool = False
    componentwise: bool = False
    assumes_independence: bool = False
    drops_covariance: bool = False
    repeats: bool = False
    affine: tuple[Any, Any, Any] | None = None
    function: tuple[Any, Any] | None = None
    line: str = ""
    is_product: bool = False
    is_sum: bool = False
    joint: Any = None
    expected_map: tuple[Any, Any] | None = None
    weight: bool = False
    data: bool = False
    symmetric: bool = False
    linear_in_chains: bool = False

    @property
    def nonlinear(self) -> bool:
        """Whether the value is a nonlinear function or a product, known by its moments alone."""
        return self.is_product or self.function is not None

    @property
    def quadratic(self) -> tuple[Any, Any, Array | None] | None:
        """The second-order part of the value, weight · ((x − E x)(y − E y) − Cov(x, y)).

        Returns:
            x, y, and the weight, an array of the value's shape or None for one; None
            without such a part.
        """
        return (*self.inputs, None) if self.is_product else None

    def follows(self, place: int) -> bool:
        """Whether :meth:`through` can carry the covariance of an input over to the value.

        Args:
            place: index of the input.
        """
        return self.identity or type(self).through is not Step.through

    def through(self, place: int, cross: Array) -> Array | None:
        """Carry Cov(input, ·) over to Cov(value, ·), both ``batch + [d, e]``; None if unknown.

        Args:
            place: index of the input.
            cross: covariance of the input with another value.
        """
        return cross if self.identity else None

    def pull(self, value: Any, place: int, cotangent: Array) -> Array | None:
        """Carry a cotangent of the value over to an input; None if the step cannot.

        The transpose of :meth:`through`, from which it is derived here.

        Args:
            value: the value of this step.
            place: index of the input.
            cotangent: [n, *shape of the value], the derivatives of n numbers by the value.

        Returns:
            [n, *shape of the input], or wider where the input was broadcast: the sums over
            such axes are left to the caller.
        """
        if not self.follows(place):
            return None
        source, batch = self.inputs[place], batch_shape(value.shape, value.axis)
        columns = features_last(cotangent, value.axis)
        xp, size = namespace(columns), 1 if source.axis is None else source.shape[source.axis]
        columns = axis_moved(columns, 0, -1)
        like = xp.zeros(
            (*batch, size, columns.shape[-1]), dtype=columns.dtype, device=device(columns)
        )
        pulled = transposed(lambda cross: self.through(place, cross), like, columns)
        return from_features_last(axis_moved(pulled, -1, 0), source.axis)

    def pull_rows(self, value: Any, place: int, cotangent: Array, axis: int) -> Array | None:
        """The summands of :meth:`pull`, one for each element along an axis that is mixed.

        Args:
            value: the value of this step.
            place: index of the input.
            cotangent: [n, *shape of the value].
            axis: negative axis of the value.

        Returns:
            [n, elements along the axis, *shape of the input], or wider; None if that is not
            known.
        """
        return None

    def outer_inputs(self, value: Any, place: int) -> Array | None:
        """The mean of x [..., in], if the value is M x for the input M [out, in]; else None.

        Args:
            value: the value of this step.
            place: index of the input.
        """
        return None

    def same_rows(self, value: Any, place: int, axis: int) -> int | None:
        """The axis of an input, element by element of which an axis of the value is computed.

        Args:
            value: the value of this step.
            place: index of the input.
            axis: negative axis of the value.

        Returns:
            A negative axis, which the input may lack if it was broadcast; None if elements
            along the axis are mixed, or that is not known.
        """
        return axis if self.componentwise or (self.identity and axis != value.axis) else None

    def own(self, value: Any) -> Added | None:
        """What the step adds to the covariance of the value, beyond what its inputs pass on.

        Args:
            value: the value of this step.

        Returns:
            None for nothing.
        """
        return None

    def own_lag(self, value: Any, offset: tuple[int, ...], absorbed: bool) -> Array | None:
        """The covariance of what the step adds to components that are an offset apart.

        Args:
            value: the value of this step.
            offset: along each axis; zero along that of the features.
            absorbed: whether that is :meth:`absorbed`, in place of :meth:`own`.

        Returns:
            As :meth:`lag`; None if it is not known, and taken as zero.
        """
        return None

    def own_along(self, value: Any, along: Any) -> Array | None:
        """The covariances of :meth:`own` at all pairs of positions along an axis, in one pass.

        Args:
            value: the value of this step.
            along: the axis, see :class:`.Along`.

        Returns:
            [positions, *shape of the value], or what broadcasts to it; None to ask for each
            distance by :meth:`own_lag`.
        """
        return None

    def absorbable(self, value: Any) -> tuple[int, ...]:
        """Places of inputs, such as weights and biases, which add noise to components.

        Used once, they make the components at one position independent of each other.

        Args:
            value: the value of this step.
        """
        return ()

    def absorbed(self, value: Any) -> Added:
        """What absorbable inputs and the step add together to the covariance of the value.

        Args:
            value: the value of this step.
        """
        raise NotImplementedError

    def covariance_with(self, value: Any, other: Any, query: Any) -> Array | None:
        """Cov(value, other), where the step knows more than its inputs; None if it is unknown.

        Args:
            value: the value of this step.
            other: an older value.
            query: computes covariances of other pairs.

        Returns:
            ``batch + [d, e]``, or NotImplemented to compute it from the inputs.
        """
        return NotImplemented

    def elementwise_covariance_with(
        self, value: Any, other: Any, query: Any
    ) -> Array | float | None:
        """Covariance of each component with the same component of another value.

        Args:
            value: the value of this step.
            other: another value, older or newer, of the same shape and feature axis.
            query: computes covariances of other pairs.

        Returns:
            Array of the shape of the value, or None to take the diagonal of the whole
            covariance.
        """
        return None

    def between_features(self, value: Any, rows: Any, columns: Any) -> Array | None:
        """Covariance of some features with others, where that is less work than all of it.

        Args:
            value: the value of this step, with its features on the trailing axis.
            rows: a slice.
            columns: another slice, without a feature in common.

        Returns:
            ``batch + [r, c]``, or what broadcasts to it; None to take it from the whole
            covariance.
        """
        return None

    def image_of_vector(self, value: Any) -> tuple[Any, Array] | None:
        """The vector x and the constant matrix M, if the value is M x plus independent noise.

        Args:
            value: the value of this step, with its features on the trailing axis.

        Returns:
            x with features [..., d] and M [..., features, d]; None for any other value.
        """
        return None

    def function_first(self, value: Any, apply: Callable[[Any], Any]) -> Any:
        """The function of a value, from that of its inputs; None unless that knows more.

        Args:
            value: the value of this step.
            apply: applies the function, which is the same for every element.
        """
        return None

    def lag(self, value: Any, offset: tuple[int, ...]) -> Array | None:
        """Covariance of every component with the one at an offset from it; None if unknown.

        Args:
            value: the value of this step.
            offset: along each axis.

        Returns:
            Array of the covariances, or NotImplemented to take it from the covariance of
            the features, or from :meth:`pairs`.
        """
        return NotImplemented

    def pairs(self, value: Any, pairs: Any) -> Array | None:
        """Covariances of pairs of components, [kinds, *counts]; None if unknown.

        Args:
            value: the value of this step.
            pairs: which, see :class:`.Pairs`, none of a component with itself; or all along an
                axis, :class:`.Along`, with the variances.

        Returns:
            Array of the covariances, or NotImplemented to take them from :meth:`lag`, and
            where that does not know them, as the sum of those of the inputs.
        """
        return NotImplemented

    def as_vector(self, value: Any) -> Any:
        """The same value with its trailing axis as the feature axis; None if that is unknown.

        Args:
            value: the value of this step, a batch of scalars.
        """
        return None

    def positive_sum(self, value: Any) -> Any:
        """Return a sum of few positive functions by a linear map as ``joint``; else None."""
        return None

    def branches(self, value: Any, parts: Any) -> Any:
        """The value under either outcome of a random mask; None if there is no mask.

        Args:
            value: the value of this step.
            parts: for each input its branches, or None.

        Returns:
            :class:`moment_calculus.values.ancestry.Branches`.
        """
        return None

    def pull_move_through(self, move: Any, like: Any) -> Any:
        """The moved value, computed from moved inputs instead; None if that is not possible.

        Args:
            move: the step of the moved value.
            like: the moved value.
        """
        return None

    def move_inputs_first(self, value: Any) -> Any:
        """The same value, with a move applied to the inputs of the moved step.

        See :meth:`pull_move_through`.

        Args:
            value: the value of this step, which is a move.
        """
        return None

    def factors(self, value: Any) -> tuple[int, ...]:
        """Places of inputs given which the value is linear in the others; by default all.

        Args:
            value: the value of this step.
        """
        linear = self.identity or self.affine is not None
        return () if linear else tuple(range(len(self.inputs)))

    def entries(self, value: Any) -> Entries | None:
        """The entries of a latent site that are the components; None if they are no such entries.

        Args:
            value: the value of this step.
        """
        return None


@dataclass(frozen=True, eq=False)
class OfOneSource(Step):
    """Base step of a value that is computed from one other value, its source."""

    source: Any

    @property
    def inputs(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the source as the only input."""
        return (self.source,)

    @cached_property
    def linear_in_chains(self) -> bool:  # type: ignore[override]
        """Return whether the source is linear in latent chains."""
        return self.source.step.linear_in_chains


@dataclass(frozen=True, eq=False)
class Opaque(Step):
    """The step of a value that was computed from others in an unknown way."""

    inputs: tuple[Any, ...] = ()
    weight: bool = False
