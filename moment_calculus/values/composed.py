"""Chains and combinations of functions of one Gaussian: one function of it, integrated at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from moment_calculus.functions.chains import (
    Bounds,
    bounds_of,
    chain_bounds,
    chain_knots,
    merged,
    numbers,
    through,
)
from moment_calculus.functions.recognition.probing import agrees_in_the_tails
from moment_calculus.numerics.arrays import Array
from moment_calculus.values.deferred import Deferred, base_of
from moment_calculus.values.gaussian import Gaussian

_known: ContextVar[dict | None] = ContextVar("values of the functions of a chain", default=None)


class ComposedDeferred(Deferred):
    """outer(f(x)) for a Deferred f(x): one function of one Gaussian, integrated at once.

    Args:
        outer: activation of f(x).
        source: the Deferred f(x).
        integrated: turns an elementwise function of arrays, its knots (or what finds them), and
            the constants of the chain into an activation.
    """

    __slots__ = ("integrated", "outer", "source")

    def __init__(self, outer: Any, source: Deferred, integrated: Callable[..., Any]) -> None:
        constants = numbers(source.constants, getattr(outer, "constants", frozenset()))
        activation = integrated(
            lambda points: outer(source(points)), lambda: chain_knots(outer, source), constants
        )
        super().__init__(source.base, activation)
        self.outer, self.source, self.integrated = outer, source, integrated

    @property
    def bounds(self) -> Bounds:
        """Those of the outer function."""
        return chain_bounds(self.outer, self.source)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Through both functions."""
        return through(self.outer.preimages(level), self.source)

    def _rebased(self, move: Callable[[Any], Any]) -> Deferred:
        return ComposedDeferred(self.outer, self.source.moved(move), self.integrated)


class FusedDeferred(Deferred):
    """combine(f(x), g(x), …) for functions of one Gaussian x: integrated at once, like a chain.

    Args:
        combine: elementwise function of as many arrays.
        parts: Deferreds f(x), g(x), … of the same base and shape, or x itself.
        integrated: as of :class:`ComposedDeferred`.
        matched: as of :class:`Deferred`; not kept by a shape operation, which moves the moments.
        otherwise: computes the moments where the function is not recognised as one of the table.
        bounds: finds those of the result, where they are known.
    """

    __slots__ = ("combine", "integrated", "known", "otherwise", "parts")

    def __init__(
        self,
        combine: Callable[..., Array],
        parts: Sequence[Gaussian | Deferred],
        integrated: Callable[..., Any],
        *,
        matched: Callable[[Gaussian], Gaussian] | None = None,
        otherwise: Callable[[], Gaussian] | None = None,
        bounds: Callable[[], Bounds] = Bounds,
    ) -> None:
        functions = [part for part in parts if isinstance(part, Deferred)]
        activation = integrated(
            _Shared(lambda points: combine(*(_at(part, points) for part in parts))),
            lambda: merged(*(part.activation.knots for part in functions)),
            numbers(*(part.constants for part in functions)),
        )
        super().__init__(base_of(parts[0]), activation, matched)
        self.combine, self.parts, self.integrated = combine, tuple(parts), integrated
        self.known, self.otherwise = bounds, otherwise

    @property
    def bounds(self) -> Bounds:
        """What is known; where that says nothing, those of the function it is recognised as."""
        known, found = self.known(), self.settled
        told = known.positive or found is self.activation
        return (
            known if told or not agrees_in_the_tails(self.activation, found) else bounds_of(found)
        )

    def _rebased(self, move: Callable[[Any], Any]) -> Deferred:
        parts = [
            part.moved(move) if isinstance(part, Deferred) else move(part) for part in self.parts
        ]
        return FusedDeferred(self.combine, parts, self.integrated, bounds=self.known)

    def _match(self) -> Gaussian:
        if self.otherwise is None or self.settled is not self.activation:
            return super()._match()
        return self.otherwise()


class _Shared:
    """A function that a chain evaluates once at the same points, however often it uses it.

    Without it the cost of a chain would double wherever a value is used twice.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self.function = function

    def __call__(self, points: Array) -> Array:
        known = _known.get()
        if known is None:
            token = _known.set({})
            try:
                return self.function(points)
            finally:
                _known.reset(token)
        key = id(self), id(points)
        if key not in known:  # with the points, whose id it keeps
            known[key] = points, self.function(points)
        return known[key][1]


def _at(value: Gaussian | Deferred, points: Array) -> Array:
    return value(points) if isinstance(value, Deferred) else points
