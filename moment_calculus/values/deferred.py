"""Elementwise functions of a Gaussian whose moments are matched only where they are needed.

A chain of functions is composed first and integrated once, so that it stays recognisable (the
scale of a likelihood, say); a shape operation moves the base, and the moments when they are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.functions.chains import Bounds, bounds_of, numbers
from moment_calculus.functions.recognition.by_values import recognised
from moment_calculus.functions.recognition.probing import crossings
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.normal.bivariate import is_single
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import is_traced_once, namespace
from moment_calculus.values.applied import image
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.support import Support


class Deferred:
    """An elementwise function of one Gaussian, integrated only where its moments are needed.

    Args:
        base: the Gaussian.
        activation: the function, with its exact moments.
        matched: computes the moments of the function of the base, where more is known of them
            than of any activation's.
    """

    __slots__ = ("_gaussian", "_settled", "_source", "activation", "base", "matched")

    def __init__(
        self,
        base: Gaussian,
        activation: Any,
        matched: Callable[[Gaussian], Gaussian] | None = None,
    ) -> None:
        self.base, self.activation, self.matched = base, activation, matched
        self._gaussian: Gaussian | None = None
        self._settled: Any = None
        self._source: tuple[Deferred, Callable[[Any], Any]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        return self.base.shape

    @property
    def sites(self) -> frozenset[str]:
        """Names of the latent sites the value depends on."""
        return self.base.sites

    @property
    def support(self) -> Support:
        """The latent sites, and which of their elements, that the value depends on."""
        return self.base.support

    @property
    def propagation(self) -> Propagation:
        """How randomness flows in this program."""
        return self.base.propagation

    @property
    def dtype(self) -> Any:
        """That of its moments."""
        return self.base.mean.dtype

    @property
    def at_mean(self) -> Array:
        """The function at the mean of its base."""
        return self(self.base.mean)

    def __call__(self, points: Array) -> Array:
        """Evaluate the function at given values of its base."""
        return self.activation(points)

    @property
    def bounds(self) -> Bounds:
        """Bounds of the function, as far as they are known."""
        return bounds_of(self.activation)

    @property
    def constants(self) -> frozenset[float] | None:
        """Numbers by which a chain multiplies and shifts; None if some are arrays."""
        return getattr(self.activation, "constants", frozenset())

    @property
    def settled(self) -> Any:
        """The activation, with its closed form where it is recognised to have one.

        That is looked for in programs that are traced once, see
        :mod:`moment_calculus.functions.recognition`.
        """
        if self._settled is None:
            look = self.matched is None and is_traced_once(self.base.mean)
            self._settled = _recognised(self) if look else self.activation
        return self._settled

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Where the function takes a value, as :meth:`Activation.preimages`.

        Of a number, wherever the function crosses it, if the program is traced once.

        Args:
            level: the value, a number or an array.
        """
        found = self.activation.preimages(level)
        look = isinstance(level, int | float) and is_traced_once(self.base.mean)
        return crossings(self.activation, float(level)) if look and not found else found

    def gaussian(self) -> Gaussian:
        """Match the moments once; every later use shares the result, and so its identity."""
        if self._gaussian is None:
            if self._source is None:
                self._gaussian = self._match()
            else:
                source, move = self._source
                self._gaussian = move(source.gaussian())
        return self._gaussian

    def moved(self, move: Callable[[Any], Any]) -> Deferred:
        """The function of the moved base; its moments are the moved moments of this one.

        Args:
            move: shape operation on values and on arrays of the value's shape.
        """
        result = self._rebased(move)
        result._source = (self, move)
        return result

    def _rebased(self, move: Callable[[Any], Any]) -> Deferred:
        return Deferred(move(self.base), self.activation, self.matched)

    def _match(self) -> Gaussian:
        """The same function of the same base gives the same value, not a second one beside it."""
        return image(self.base, self.settled, self.matched)


class AffineDeferred(Deferred):
    """scale · f(x) + shift for a Deferred f(x): still one function of one Gaussian.

    Args:
        source: the Deferred.
        scale: certain array or number, broadcastable to the source's shape.
        shift: likewise.
        match: computes the affine image of the source's moments, so that dependence on the
            source is known exactly.
    """

    __slots__ = ("match", "scale", "shift", "source")

    def __init__(
        self,
        source: Deferred,
        scale: Array | float,
        shift: Array | float,
        match: Callable[[Gaussian, Any, Any], Gaussian],
    ) -> None:
        super().__init__(source.base, source.activation)
        self.source, self.scale, self.shift, self.match = source, scale, shift, match

    def __call__(self, points: Array) -> Array:
        """Evaluate the function at given values of its base."""
        return self.source(points) * self.scale + self.shift

    @property
    def constants(self) -> frozenset[float] | None:
        """Those of the source, and its own."""
        return numbers(self.source.constants, self.scale, self.shift)

    @property
    def bounds(self) -> Bounds:
        """Those of the source, mapped."""
        return self.source.bounds.affine(self.scale, self.shift)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Those of the source."""
        found = self.source.preimages((level - self.shift) / self.scale)
        return tuple((place, stretch / abs(self.scale)) for place, stretch in found)

    def _rebased(self, move: Callable[[Any], Any]) -> Deferred:
        scale, shift = (self._moved_part(part, move) for part in (self.scale, self.shift))
        return AffineDeferred(self.source.moved(move), scale, shift, self.match)

    def _moved_part(self, part: Any, move: Callable[[Any], Any]) -> Any:
        if not len(getattr(part, "shape", ())):
            return part
        return move(namespace(part).broadcast_to(part, self.shape))

    def _match(self) -> Gaussian:
        return self.match(self.source.gaussian(), self.scale, self.shift)


def base_of(value: Gaussian | Deferred) -> Gaussian:
    """The Gaussian of which a value is an elementwise function."""
    return value.base if isinstance(value, Deferred) else value


def root_of(value: Deferred) -> Deferred:
    """The function behind affine maps."""
    while isinstance(value, AffineDeferred):
        value = value.source
    return value


def _recognised(value: Deferred) -> Any:
    return recognised(value.activation, single=is_single(value.base.mean))
