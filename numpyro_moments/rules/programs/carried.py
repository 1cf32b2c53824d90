"""Random values across the boundary of a JAX loop: arrays on the way, values inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from moment_calculus.numerics.arrays import diagonal_matrix
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.values import Deferred, Gaussian, Opaque, Root, Spread, Ties
from moment_calculus.values.layout import batch_shape, features_last
from moment_calculus.values.support import ALL, Support, union


class SeenThrough(Exception):
    """A step uses more of a value than the moments that cross the boundary."""


class Matched(Deferred):
    """Moments that stand for a function of a Gaussian; nobody may ask for the function.

    Args:
        gaussian: the moments.
    """

    __slots__ = ()

    def __init__(self, gaussian: Gaussian) -> None:
        self._gaussian = gaussian
        self._settled = self._made = self.closed_form = self.otherwise = None

    @property
    def base(self) -> Any:  # type: ignore[override]
        """Not known."""
        raise SeenThrough("base")

    @property
    def function(self) -> Any:
        """Not known."""
        raise SeenThrough("function")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        return self.gaussian().shape

    @property
    def dtype(self) -> Any:
        """That of its moments."""
        return self.gaussian().mean.dtype

    @property
    def at_mean(self) -> Any:
        """The mean, which serves those who look for a shape and a type."""
        return self.gaussian().mean

    @property
    def sites(self) -> frozenset[str]:
        """Names of the latent sites the value depends on."""
        return self.gaussian().sites

    @property
    def support(self) -> Support:
        """The latent sites, and which of their elements, that the value depends on."""
        return self.gaussian().support

    @property
    def propagation(self) -> Propagation:
        """How randomness flows in this program."""
        return self.gaussian().propagation

    def gaussian(self) -> Gaussian:
        """The moments."""
        return self._gaussian  # type: ignore[return-value]

    def moved(self, move: Any) -> Matched:
        """The moved moments."""
        return Matched(move(self.gaussian()))


@dataclass(frozen=True)
class Form:
    """What of a random value is the same at every step.

    Args:
        shape: of the value.
        dtype: of its arrays.
        axis: its feature axis.
        dense: whether it carries a covariance.
        ties: what within it is tied to what.
        weight: whether it is a latent matrix as a whole.
        matched: whether it is a function of a Gaussian, of which only the moments are carried.
        known_joint: whether a joint covariance is known that is not propagated.
        joint: whether that joint covariance crosses too.
    """

    shape: tuple[int, ...]
    dtype: Any
    axis: int | None
    dense: bool
    ties: Ties
    weight: bool
    matched: bool
    known_joint: bool
    joint: bool = False

    @classmethod
    def of(cls, value: Any) -> Form:
        """The form of a random value.

        Raises:
            SeenThrough: if it is a function of logits, whose moments do not stand for it.
        """
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
        """Shape of the covariance matrices over the feature axis."""
        size = 1 if self.axis is None else self.shape[self.axis]
        return (*batch_shape(self.shape, self.axis), size, size)

    def pack(self, value: Any) -> tuple[Any, ...]:
        """Arrays of a value of this form: mean, variance and, if it has one, covariance.

        Args:
            value: Gaussian or Deferred.
        """
        gaussian = value.gaussian()
        arrays = [jnp.broadcast_to(part, self.shape) for part in (gaussian.mean, gaussian.variance)]
        if self.dense or self.joint:
            arrays.append(jnp.broadcast_to(gaussian.joint_covariance(), self.joint_shape))
        return tuple(jnp.asarray(array, self.dtype) for array in arrays)

    def unpack(
        self,
        arrays: Sequence[Any],
        sites: frozenset[str],
        propagation: Propagation,
        *,
        inputs: tuple[Gaussian, ...] = (),
        joint: Callable[[], Any] | None = None,
    ) -> Any:
        """The value again, as a root of the graph unless inputs are given.

        Args:
            arrays: of :meth:`pack`; of independent components the first two suffice.
            sites: names of what it depends on.
            propagation: how randomness flows.
            inputs: values that it was made from, in an unknown way.
            joint: computes the joint covariance, where one is known that is not among the arrays.
        """
        mean, variance, *rest = arrays
        covariance = rest[0] if rest else lambda: self._diagonal(variance)
        behind = union(inputs)
        known = self._joint(rest, joint or _missing)
        gaussian = Gaussian(
            mean,
            Spread(variance, covariance if self.dense else None, known),
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
