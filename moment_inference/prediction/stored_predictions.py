"""Predictions as bytes: the laws of the random parameters, without the steps that computed them.

The graph of steps holds all weights, inputs and covariances of a model. What a likelihood asks of
its parameters are functions of a few Gaussians, each element on its own or a vector of classes:
their moments take the memory of the outputs, and give the same numbers.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import chain
from typing import Any

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.drivers import affine_relation
from moment_calculus.operations.elementwise.factors import Joint, joint_parameter, positive_factors
from moment_calculus.operations.elementwise.joint import joint_value
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import aligned
from moment_calculus.operations.elementwise.unary import is_value, scale_shift
from moment_calculus.operations.normalised.softmax import FunctionOfLogits
from moment_calculus.operations.shapes.concatenation import stack
from moment_calculus.operations.shapes.coordinates import image_of, on_support
from moment_calculus.operations.shapes.indexing import index, unstacked
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values import (
    Deferred,
    Gaussian,
    Spread,
    Ties,
    elementwise_covariance,
)
from moment_calculus.values.ancestry import branches_of
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements, broadcast_shape, overlap

REMEDY = "pickle its mean, variances and quantiles, or the fit, and call predict again"


def not_storable(site: str, why: str) -> UnsupportedMoments:
    """Return the error for a prediction that is no bytes."""
    return UnsupportedMoments(
        f"the prediction of site '{site}' does not pickle: {why}", remedy=REMEDY
    )


# ----------------------------------------------------------------------------------------
# The Gaussians


@dataclass(frozen=True)
class StoredGaussian:
    """The moments of a Gaussian that depends on no other one."""

    mean: Array
    variance: Array
    covariance: Array | None  # of a vector
    is_vector: bool
    propagated: bool  # whether the covariance is propagated
    ties: int
    propagation: Propagation

    @classmethod
    def of(cls, value: Gaussian, is_vector: bool) -> StoredGaussian:
        """Return the moments of a value."""
        has_covariance = is_vector and value.axis == -1 and not value.spread.plain
        return cls(
            value.mean,
            value.variance,
            value.joint_covariance() if has_covariance else None,
            is_vector,
            value.spread.propagated,
            int(Ties.FEATURES if has_covariance else Ties.NONE),
            value.propagation,
        )

    def restored(self, name: str) -> list[Gaussian]:
        """Return the value, in a list."""
        return [
            Gaussian(
                self.mean,
                Spread(self.variance, self.covariance, self.propagated),
                axis=-1 if self.is_vector else None,
                support=all_elements([name]),
                ties=Ties(self.ties),
                propagation=self.propagation,
            )
        ]


@dataclass(frozen=True)
class StoredGroup:
    """The joint moments, for each element, of Gaussians that depend on each other."""

    mean: Array  # [..., k]
    covariance: Array  # [..., k, k]
    propagation: Propagation

    @classmethod
    def of(cls, site: str, values: Sequence[Gaussian]) -> StoredGroup:
        """Return the moments of values that broadcast to one shape."""
        shape = broadcast_shape(*(value.shape for value in values))
        xp = namespace(values[0].mean)
        rows = [
            xp.stack([_wide(_covariance(site, left, right), shape, left) for right in values], -1)
            for left in values
        ]
        means = xp.stack([xp.broadcast_to(value.mean, shape) for value in values], axis=-1)
        return cls(
            means, xp.stack(rows, axis=-2), replace(values[0].propagation, covariance="full")
        )

    def restored(self, name: str) -> list[Gaussian]:
        """Return the components of the joint Gaussian."""
        moments = Moments(self.mean, covariance=self.covariance)
        joint = as_value(moments, name, self.propagation)
        return [index(joint, (..., place)) for place in range(self.mean.shape[-1])]


def _covariance(site: str, left: Gaussian, right: Gaussian) -> Any:
    if left is right:
        return left.variance
    covariance = elementwise_covariance(*aligned(left, right)[:2])
    if covariance is None:
        raise not_storable(site, "the covariance of two of its parameters is not known")
    return covariance


def _wide(covariance: Any, shape: tuple[int, ...], like: Gaussian) -> Array:
    xp = namespace(like.mean)
    return xp.broadcast_to(covariance + xp.zeros_like(like.mean), shape)


# ----------------------------------------------------------------------------------------
# The parameters as functions of them


@dataclass(frozen=True)
class Affine:
    """A Gaussian of the list, scaled and shifted."""

    place: int
    scale: float = 1.0
    shift: Any = 0.0

    def __call__(self, gaussians: Sequence[Gaussian]) -> Gaussian:
        """Return the value."""
        source = gaussians[self.place]
        if self.scale == 1 and isinstance(self.shift, float) and self.shift == 0:
            return source
        return scale_shift(source, self.scale, self.shift).gaussian()


@dataclass(frozen=True)
class Function:
    """An elementwise function of a Gaussian."""

    base: Affine
    function: Any
    recognised_function: Any

    def __call__(self, gaussians: Sequence[Gaussian]) -> Deferred:
        """Return the value."""
        result = Deferred(self.base(gaussians), self.function)
        result._recognised_function = self.recognised_function
        return result


@dataclass(frozen=True)
class OfVector:
    """A function of logits, or a vector on a support of the coordinates."""

    base: Affine
    make: Callable[..., Any]
    arguments: tuple = ()
    shape: tuple[int, ...] | None = None  # to which the result is broadcast

    def __call__(self, gaussians: Sequence[Gaussian]) -> Any:
        """Return the value."""
        result = self.make(*self.arguments, self.base(gaussians))
        return result if self.shape in (None, result.shape) else broadcast(result, self.shape)


@dataclass(frozen=True)
class OfParts:
    """A product of positive factors, or what was stacked from parts."""

    combine: Callable[[list[Any]], Any]
    parts: tuple[Any, ...]

    def __call__(self, gaussians: Sequence[Gaussian]) -> Any:
        """Return the value."""
        return self.combine([part(gaussians) for part in self.parts])


def _product(parts: list[Any]) -> Any:
    return reduce(multiply, parts)


def _stack(parts: list[Any]) -> Any:
    return stack(parts, -1)


def _certain(array: Any, gaussians: Sequence[Gaussian]) -> Any:
    return array


def _filled(skeleton: Joint, parts: list[Any]) -> Gaussian:
    """Return a function of several Gaussians, its parts put where they were read."""
    leaves = iter(parts)
    return joint_value(skeleton.rebuilt(lambda _: next(leaves)))


@dataclass
class _Reader:
    """Reads values as functions of Gaussians, and collects these."""

    site: str
    gaussians: list[Gaussian] = field(default_factory=list)
    is_vector: list[bool] = field(default_factory=list)

    def read(self, value: Any, is_vector: bool) -> Callable[[Sequence[Gaussian]], Any]:
        if isinstance(value, Deferred):
            base = self._affine(value.base, is_vector)
            return Function(base, value.function, value.recognised_function)
        if isinstance(value, FunctionOfLogits):
            return OfVector(self._affine(value.source, True), type(value))
        if not isinstance(value, Gaussian):
            raise not_storable(self.site, f"a {type(value).__name__} is among its parameters")
        if (parts := unstacked(value)) is not None:
            return OfParts(_stack, tuple(self.read(part, False) for part in parts))
        if (factors := positive_factors(value)) is not None:
            return OfParts(_product, tuple(self.read(part, False) for part in factors))
        if (joint := joint_parameter(value)) is not None:
            leaves = (
                self.read(leaf, False) if is_value(leaf) else partial(_certain, leaf)
                for leaf in joint.leaves()
            )
            skeleton = joint.rebuilt(lambda leaf: None)
            return OfParts(partial(_filled, skeleton), tuple(leaves))
        if (image := image_of(value)) is not None:
            base = self._affine(image.coordinates, True)
            return OfVector(base, on_support, (image.support,), value.shape)
        return self._affine(value, is_vector)

    def _affine(self, value: Gaussian, is_vector: bool) -> Affine:
        if branches_of(value) is not None:
            raise not_storable(self.site, "one of its parameters comes straight from dropout")
        for place, (known, kind) in enumerate(zip(self.gaussians, self.is_vector, strict=True)):
            relation = affine_relation(known, value) if kind == is_vector else None
            if relation is not None:
                return Affine(place, *relation)
        self.gaussians.append(value)
        self.is_vector.append(is_vector)
        return Affine(len(self.gaussians) - 1)

    def stored(self) -> tuple[list[Any], list[int]]:
        """Return the moments of independent groups, and the indices of their Gaussians in order."""
        groups: list[list[int]] = []
        for place, value in enumerate(self.gaussians):
            tied = [g for g in groups if any(overlap(self.gaussians[n], value) for n in g)]
            groups = [g for g in groups if g not in tied]
            groups.append([*chain.from_iterable(tied), place])
        return [self._stored(group) for group in groups], [*chain.from_iterable(groups)]

    def _stored(self, group: list[int]) -> Any:
        if len(group) == 1:
            return StoredGaussian.of(self.gaussians[group[0]], self.is_vector[group[0]])
        if any(self.is_vector[place] for place in group):
            raise not_storable(self.site, "a vector and another parameter depend on each other")
        return StoredGroup.of(self.site, [self.gaussians[place] for place in group])


@dataclass
class StoredParameters:
    """The random parameters of a site, which are restored together."""

    site: str
    groups: list[Any]
    places: list[int]  # of the groups' Gaussians, one group after the other
    functions: list[Callable[[Sequence[Gaussian]], Any]]

    @classmethod
    def of(cls, site: str, values: Iterable[tuple[Any, bool]]) -> StoredParameters:
        """Return parameters from values, and whether a trailing axis of each is one element."""
        reader = _Reader(site)
        functions = [reader.read(value, is_vector) for value, is_vector in values]
        return cls(site, *reader.stored(), functions)

    def __getitem__(self, place: int) -> Any:
        """Return a parameter, always the same value."""
        return self._values[place]

    @cached_property
    def _values(self) -> list[Any]:
        restored = [
            value
            for number, group in enumerate(self.groups)
            for value in group.restored(f"{self.site} [{number}]")
        ]
        gaussians = [
            value
            for _, value in sorted(
                zip(self.places, restored, strict=True), key=lambda pair: pair[0]
            )
        ]
        return [function(gaussians) for function in self.functions]


def _parameter(parameters: StoredParameters, place: int) -> Any:
    return parameters[place]


class _Pickler(pickle.Pickler):
    def __init__(
        self, file: io.BytesIO, values: list[tuple[Any, bool]], site: str, reduce: Callable
    ) -> None:
        super().__init__(file, protocol=5)
        self._parameters = StoredParameters.of(site, values)
        self._places = {id(value): place for place, (value, _) in enumerate(values)}
        self._reduce = reduce

    def reducer_override(self, part: Any) -> Any:
        if (place := self._places.get(id(part))) is not None:
            return _parameter, (self._parameters, place)
        return self._reduce(part)


def as_bytes(
    name: str,
    distribution: Any,
    values: list[tuple[Any, bool]],  # random ones, and whether an axis of each is one element
    reduce: Callable[[Any], Any],  # as pickle's ``reducer_override``, for the framework's arrays
) -> bytes:
    """Return a distribution as bytes for ``pickle.loads``, or raise UnsupportedMoments."""
    file = io.BytesIO()
    try:
        _Pickler(file, values, name, reduce).dump(distribution)
    except UnsupportedMoments:
        raise
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise not_storable(name, f"{error}; only what a module defines can be stored") from error
    return file.getvalue()
