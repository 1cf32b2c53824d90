"""Carry random values across the boundary of a JAX loop: as arrays, and values inside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from moment_calculus.numerics.arrays import diagonal_matrix
from moment_calculus.values import Deferred, Gaussian, Opaque, Root, Spread, Ties
from moment_calculus.values.deferred import Composite
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import ALL, Support, batch_shape, features_last, union


class SeenThrough(Exception):
    """Raised if a step uses more of a value than the moments that cross the boundary."""


class Matched(Deferred):
    """Moments that stand for a function of a Gaussian; the function itself is not available."""

    __slots__ = ()

    def __init__(self, gaussian: Gaussian) -> None:
        self._gaussian = gaussian
        self._recognised_function = self._derived_from = self.closed_form = self.fallback = None

    @property
    def base(self) -> Any:  # type: ignore[override]
        """Raise SeenThrough: the Gaussian is not known."""
        raise SeenThrough("base")

    @property
    def function(self) -> Any:
        """Raise SeenThrough: the function is not known."""
        raise SeenThrough("function")

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the value."""
        return self.gaussian().shape

    @property
    def dtype(self) -> Any:
        """Return the dtype of the moments."""
        return self.gaussian().mean.dtype

    @property
    def at_mean(self) -> Any:
        """Return the mean, for its shape and dtype."""
        return self.gaussian().mean

    @property
    def sites(self) -> frozenset[str]:
        """Return the names of the latent sites that the value depends on."""
        return self.gaussian().sites

    @property
    def support(self) -> Support:
        """Return the latent sites, and which of their elements, that the value depends on."""
        return self.gaussian().support

    @property
    def propagation(self) -> Propagation:
        """Return how randomness flows in this program."""
        return self.gaussian().propagation

    def gaussian(self) -> Gaussian:
        """Return the moments."""
        return self._gaussian  # type: ignore[return-value]

    def moved(self, move: Any) -> Matched:
        """Return the moved moments."""
        return Matched(move(self.gaussian()))


@dataclass(frozen=True)
class Form:
    """What stays the same about a carried random value at every step."""

    shape: tuple[int, ...]
    dtype: Any
    axis: int | None  # of the features
    dense: bool  # whether it carries a covariance
    ties: Ties  # which of its elements depend on each other
    weight: bool  # whether it is a whole latent matrix
    matched: bool  # whether it is a function of a Gaussian, of which only the moments are carried
    known_joint: bool  # whether a joint covariance is known that is not propagated
    joint: bool = False  # whether that joint covariance is carried, too

    @classmethod
    def of(cls, value: Any) -> Form:
        """Return the form of a value; raise SeenThrough for functions of logits."""
        if isinstance(value, Composite):
            raise SeenThrough(value.name)
        gaussian = value.gaussian()
        return cls(
            gaussian.shape,
            gaussian.mean.dtype,
            gaussian.axis,
            gaussian.has_covariance,
            gaussian.ties,
            gaussian.step.weight,
            isinstance(value, Deferred),
            not gaussian.has_covariance and not gaussian.independent and gaussian.axis is not None,
        )

    @property
    def joint_shape(self) -> tuple[int, ...]:
        """Return the shape of the covariance matrices over the feature axis."""
        size = 1 if self.axis is None else self.shape[self.axis]
        return (*batch_shape(self.shape, self.axis), size, size)

    def pack(self, value: Any) -> tuple[Any, ...]:
        """Return mean, variance and, if it has one, covariance of a value of this form."""
        gaussian = value.gaussian()
        arrays = [jnp.broadcast_to(part, self.shape) for part in (gaussian.mean, gaussian.variance)]
        if self.dense or self.joint:
            arrays.append(jnp.broadcast_to(gaussian.joint_covariance(), self.joint_shape))
        return tuple(jnp.asarray(array, self.dtype) for array in arrays)

    def unpack(
        self,
        arrays: Sequence[Any],
        sites: frozenset[str],  # names of the sites that the value depends on
        propagation: Propagation,
        *,
        inputs: tuple[Gaussian, ...] = (),  # values that it was made from, in an unknown way
        joint: Callable[[], Any] | None = None,  # computes a joint covariance not in the arrays
    ) -> Any:
        """Return the value of packed arrays: a root of the graph unless inputs are given."""
        mean, variance, *rest = arrays
        covariance = rest[0] if rest else lambda: self._diagonal(variance)
        behind = union(inputs)
        known = self._joint(rest, joint or _missing)
        gaussian = Gaussian(
            mean,
            Spread(variance, covariance if self.dense else known, self.dense),
            Opaque(inputs, self.weight) if inputs else Root(self.weight),
            axis=self.axis,
            support={site: behind.get(site, ALL) for site in sites},
            ties=self.ties,
            propagation=propagation,
        )
        return Matched(gaussian) if self.matched else gaussian

    def _diagonal(self, variance: Any) -> Any:
        return diagonal_matrix(features_last(variance, self.axis))

    def _joint(self, rest: Sequence[Any], missing: Callable[[], Any]) -> Any:
        if self.dense or not self.known_joint:
            return None
        return (lambda: rest[0]) if rest else missing


def _missing() -> Any:
    raise SeenThrough("joint covariance")
