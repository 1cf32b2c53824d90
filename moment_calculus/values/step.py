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

import array_api_compat
import numpy as np

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

    site: Any  # a latent site whose step knows the covariances of its entries
    move: Callable[[Array], Array]  # from an array of all entries to one of these

    @classmethod
    def of(cls, site: Any) -> Entries:
        """Return all entries of a latent site, in order."""
        return cls(site, lambda array: array)

    def moved(self, move: Callable[[Array], Array]) -> Entries:
        """Return the entries after ``move``, which only rearranges the elements of an array."""
        return Entries(self.site, lambda array: move(self.move(array)))

    def indices(self) -> Array:
        """Return the index of every entry, in the shape of the value; known to JAX by NumPy."""
        numbers = _numbers_by_numpy(self.site.mean, self.move)
        return self.move(_numbers(self.site.mean)) if numbers is None else numbers

    def covariance(self, variance: Array) -> Array:
        """Return the covariance along the trailing axis, given the variance of each component."""
        indices = self.indices()
        return self.site.step.covariances_of_entries(indices, indices, variance)


class Added(NamedTuple):
    """A covariance of the components of a value with each other."""

    variance: Array  # of each component
    # the product with cotangents [n, *shape], if the features depend on each other
    times: Callable[[Array], Array] | None = None


def _numbers(array: Array) -> Array:
    xp, shape = namespace(array), tuple(array.shape)
    return xp.reshape(xp.arange(math.prod(shape), device=device(array)), shape)


def _numbers_by_numpy(like: Array, move: Callable[[Array], Array]) -> np.ndarray | None:
    """Return numbers as JAX takes them for constants; None for torch, or if they are traced."""
    if array_api_compat.is_torch_array(like):
        return None
    try:
        numbers = move(np.arange(math.prod(like.shape)).reshape(like.shape))
    except TypeError:  # an index without values
        return None
    return numbers if isinstance(numbers, np.ndarray) else None


def entries_of(value: Any) -> Entries | None:
    """Return the entries of a latent site that are the components of a value, or None."""
    return value.step.entries(value)


def _of_one_site(*values: Any) -> list[Entries] | None:
    """Return the entries of values that are all entries of the same latent site; else None."""
    entries: list[Entries] = []
    for value in values:
        part = entries_of(value)
        if part is None or (entries and part.site is not entries[0].site):
            return None
        entries.append(part)
    return entries


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
    variance = features_last(left.variance, left.axis)
    return parts[0].site.step.covariances_of_entries(ours, theirs, variance)


def elementwise_covariance_of_entries(left: Any, right: Any) -> Array | None:
    """Return the covariance of equal components, if both values are entries of one site."""
    parts = _of_one_site(left, right)
    if parts is None:
        return None
    ours, theirs = (part.indices() for part in parts)
    return parts[0].site.step.covariance_of_entries(ours, theirs, left.variance)


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
        affine: the only input x, a scale and a shift (arrays or numbers that are not
            random), if the value is scale · x + shift component by component.
        function: the Gaussian x and the function f, as a pair, if the value is f(x).
        nonlinear: whether the value is a nonlinear function or a product, known by its moments
            alone.
        quadratic: x, y and a weight, an array of the value's shape or None for one, of the
            second-order part of the value, weight · ((x − E x)(y − E y) − Cov(x, y)).

    Covariances of a few values are also computed backwards, see :mod:`.backward`, by
    :meth:`pull` and :meth:`own`. What only some kinds of steps answer is in :mod:`.protocols`.
    """

    inputs: tuple[Any, ...] = ()
    identity: bool = False
    componentwise: bool = False
    assumes_independence: bool = False
    drops_covariance: bool = False
    affine: tuple[Any, Any, Any] | None = None
    function: tuple[Any, Any] | None = None
    nonlinear: bool = False
    quadratic: tuple[Any, Any, Array | None] | None = None

    def follows(self, input_index: int) -> bool:
        """Whether :meth:`through` can carry the covariance of an input over to the value.

        Args:
            input_index: index of the input.
        """
        return self.identity or type(self).through is not Step.through

    def through(self, input_index: int, cross: Array) -> Array | None:
        """Carry Cov(input, ·) over to Cov(value, ·), both ``batch + [d, e]``; None if unknown.

        Args:
            input_index: index of the input.
            cross: covariance of the input with another value.
        """
        return cross if self.identity else None

    def pull(self, value: Any, input_index: int, cotangent: Array) -> Array | None:
        """Carry a cotangent of the value over to an input; None if the step cannot.

        The transpose of :meth:`through`, from which it is derived here.

        Args:
            value: the value of this step.
            input_index: index of the input.
            cotangent: [n, *shape of the value], the derivatives of n numbers by the value.

        Returns:
            [n, *shape of the input], or wider where the input was broadcast: the sums over
            such axes are left to the caller.
        """
        if not self.follows(input_index):
            return None
        source, batch = self.inputs[input_index], batch_shape(value.shape, value.axis)
        columns = features_last(cotangent, value.axis)
        xp, size = namespace(columns), 1 if source.axis is None else source.shape[source.axis]
        columns = axis_moved(columns, 0, -1)
        like = xp.zeros(
            (*batch, size, columns.shape[-1]), dtype=columns.dtype, device=device(columns)
        )
        pulled = transposed(lambda cross: self.through(input_index, cross), like, columns)
        return from_features_last(axis_moved(pulled, -1, 0), source.axis)

    def same_rows(self, value: Any, input_index: int, axis: int) -> int | None:
        """The axis of an input, element by element of which an axis of the value is computed.

        Args:
            value: the value of this step.
            input_index: index of the input.
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

    def factors(self, value: Any) -> tuple[int, ...]:
        """Indices of inputs given which the value is linear in the others; by default all.

        Args:
            value: the value of this step.
        """
        linear = self.identity or self.affine is not None
        return () if linear else tuple(range(len(self.inputs)))

    def again(self, value: Any, inputs: tuple[Any, ...]) -> Any:
        """The value computed from other inputs of the same shapes; None if the step cannot.

        Args:
            value: the value of this step.
            inputs: values in the place of its inputs.
        """
        return None

    def entries(self, value: Any) -> Entries | None:
        """The entries of a latent site that are the components; None if they are no such entries.

        Args:
            value: the value of this step.
        """
        return None

    def covariance_of_entries(self, ours: Array, theirs: Array, variance: Array) -> Array:
        """Covariance of entries of a latent site; by default they are independent.

        Args:
            ours: indices, of any shape.
            theirs: other indices, of a shape that broadcasts with it.
            variance: of the entries ``ours``.
        """
        return _where_same(ours, theirs, variance)

    def covariances_of_entries(self, ours: Array, theirs: Array, variance: Array) -> Array:
        """Covariances ``batch + [d, e]`` of entries of a latent site with each other.

        Args:
            ours: indices, ``batch + [d]``.
            theirs: other indices, ``batch + [e]``.
            variance: of the entries ``ours``.
        """
        return _where_same(ours[..., :, None], theirs[..., None, :], variance[..., :, None])


@dataclass(frozen=True, eq=False)
class OfOneSource(Step):
    """Base step of a value that is computed from one other value, its source."""

    source: Any

    @cached_property
    def inputs(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the source as the only input."""
        return (self.source,)


class Product(Step):
    """Base step of the product of two inputs, or of one with itself."""

    nonlinear = True

    @property
    def quadratic(self) -> tuple[Any, Any, None]:  # type: ignore[override]
        """Return both factors."""
        return (*self.inputs, None)


@dataclass(frozen=True, eq=False)
class Opaque(Step):
    """The step of a value that was computed from others in an unknown way."""

    inputs: tuple[Any, ...] = ()
    weight: bool = False
