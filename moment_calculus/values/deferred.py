"""Elementwise functions of a Gaussian whose moments are matched only where they are needed.

A chain of functions is composed first and integrated once, so that it stays recognisable (the
scale of a likelihood, say); a shape operation moves the base, and the moments when they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from moment_calculus.functions.algebra import Composed, Fused, Itself, Scaled, moved
from moment_calculus.functions.chains import Bounds, bounds_of
from moment_calculus.functions.look import Look
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.values.affine import affine
from moment_calculus.values.ancestry import branches_of
from moment_calculus.values.applied import image, ruled
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.support import Support


class Deferred:
    """An elementwise function of one Gaussian, integrated only where its moments are needed.

    Args:
        base: the Gaussian.
        function: the function, with its exact moments.
        closed_form: computes the value from the base, where more is known of it than the moments of
            any function tell.
        otherwise: computes the value where the function is not recognised as one of the table.
    """

    __slots__ = ("_gaussian", "_made", "_settled", "base", "closed_form", "function", "otherwise")

    def __init__(
        self,
        base: Gaussian,
        function: Any,
        *,
        closed_form: Callable[[Gaussian], Gaussian] | None = None,
        otherwise: Callable[[], Gaussian] | None = None,
    ) -> None:
        self.base, self.function = base, function
        self.closed_form, self.otherwise = closed_form, otherwise
        self._gaussian: Gaussian | None = None
        self._settled: Any = None
        self._made: tuple[Deferred, Callable[[Any], Any]] | None = None

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
        return self.function(points)

    @property
    def bounds(self) -> Bounds:
        """Bounds of the function, as far as they are known."""
        return bounds_of(self.function)

    @property
    def look(self) -> Look:
        """Whether the program may be looked at for what its functions compute."""
        return Look.at(self.base.mean)

    @property
    def settled(self) -> Any:
        """The function, with its closed form where it is recognised to have one.

        That is looked for in programs that are traced once, see
        :mod:`moment_calculus.functions.recognition`.
        """
        if self._settled is None:
            seen = self.closed_form is None
            self._settled = self.look.settled(self.function) if seen else self.function
        return self._settled

    @property
    def is_recognised(self) -> bool:
        """Whether it is a chain or combination that was found to be a function of the table."""
        return self.settled is not self.function

    @property
    def is_matched(self) -> bool:
        """Whether its moments were asked for."""
        return self._gaussian is not None

    @property
    def is_plain(self) -> bool:
        """Whether its function is all there is: no chain or combination, and nothing else known."""
        made = isinstance(self.function, Scaled | Composed | Fused)
        return not made and self.closed_form is None

    def of(self, function: Any) -> Deferred:
        """Another function of the same Gaussian.

        Args:
            function: the function.
        """
        return Deferred(self.base, function)

    def gaussian(self) -> Gaussian:
        """Match the moments once; every later use shares the result, and so its identity."""
        if self._gaussian is None:
            line = [self]  # of those that it was moved or scaled from: it may be long
            while (made := line[-1]._made) is not None and made[0]._gaussian is None:
                line.append(made[0])
            for value in reversed(line):
                value._gaussian = value._match()
        return self._gaussian  # type: ignore[return-value]

    @property
    def expectation(self) -> Array:
        """E f(x): the mean, where nobody asks for the variance."""
        if self._gaussian is not None or self.closed_form is not None:
            return self.gaussian().mean
        if self.otherwise is not None and not self.is_recognised:
            return self.gaussian().mean
        if branches_of(self.base) is not None:
            return self.gaussian().mean
        return ruled(self.base, self.settled).expectation(self.base.mean, self.base.variance)

    def _match(self) -> Gaussian:
        if self._made is not None:
            source, move = self._made
            return move(source.gaussian())
        if isinstance(self.function, Scaled):
            inner = self.of(self.function.inner).gaussian()
            return affine(inner, self.function.scale, self.function.shift)
        if self.otherwise is not None and not self.is_recognised:
            return self.otherwise()
        branches = branches_of(self.base)
        if branches is None:
            return image(self.base, self.settled, self.closed_form)
        function = self.settled
        return image(self.base, function, lambda _: branches.joined(partial(_applied, function)))

    def moved(self, move: Callable[[Any], Any]) -> Deferred:
        """The function of the moved base; its moments are the moved moments of this one.

        Args:
            move: shape operation on values and on arrays of the value's shape.
        """
        function = moved(self.function, move, self.shape)
        plain = not isinstance(function, Fused)
        result = Deferred(
            move(self.base), function, closed_form=self.closed_form if plain else None
        )
        result._made = self, move
        return result

    def scaled(self, scale: Array | float, shift: Array | float) -> Deferred:
        """scale · f(x) + shift: the moments of this value, scaled and shifted.

        Args:
            scale: certain array or number, broadcastable to the value's shape.
            shift: likewise.
        """
        result = self.of(Scaled(self.function, scale, shift, self.look))
        result._made = self, lambda value: affine(value, scale, shift)
        return result

    def under(self, outer: Any) -> Deferred:
        """outer(f(x)): one function of one Gaussian, integrated at once.

        Args:
            outer: an activation.
        """
        return self.of(Composed.of(outer, self.function, self.look))


def fuse(
    combine: Callable[..., Array],
    parts: Sequence[Gaussian | Deferred],
    told: Callable[[], Bounds] = Bounds,
    **how: Any,
) -> Deferred:
    """combine(f(x), g(x), …) for functions of one Gaussian x: one function of it.

    Args:
        combine: elementwise function of as many arrays.
        parts: Deferreds f(x), g(x), … of the same base, or x itself.
        told: finds the bounds of the result, where they are known.
        **how: ``closed_form`` and ``otherwise`` as of :class:`Deferred`.
    """
    base = base_of(parts[0])
    functions = tuple(p.function if isinstance(p, Deferred) else Itself() for p in parts)
    return Deferred(base, Fused.of(combine, functions, told, Look.at(base.mean)), **how)


def as_function(value: Gaussian | Deferred) -> Gaussian | Deferred:
    """A function of a Gaussian whose moments were matched, as the function; any other as it is.

    Args:
        value: the value.
    """
    if isinstance(value, Deferred):
        return value
    if value.step.function is not None:
        return Deferred(*value.step.function)
    if value.step.affine is None:
        return value
    source, scale, shift = value.step.affine
    inner = as_function(source)
    return inner.scaled(scale, shift) if isinstance(inner, Deferred) else value


def _applied(function: Any, branch: Any) -> Any:
    """A function of one branch of a value: a value, or an array of an array."""
    if not isinstance(branch, Gaussian | Deferred):
        return function(branch)
    inner = as_function(branch)
    outer = inner.under(function) if isinstance(inner, Deferred) else Deferred(inner, function)
    return outer.gaussian()


def base_of(value: Gaussian | Deferred) -> Gaussian:
    """The Gaussian of which a value is an elementwise function."""
    return value.base if isinstance(value, Deferred) else value


def unscaled(function: Any) -> Any:
    """The function behind affine maps."""
    while isinstance(function, Scaled):
        function = function.inner
    return function
