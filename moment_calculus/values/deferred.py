"""Functions of a Gaussian whose moments are computed only where they are needed.

A chain of elementwise functions is composed first and integrated once, so that it stays
recognisable (as the scale of a likelihood, say). A shape operation rearranges the
Gaussian, and the moments if they are known already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from moment_calculus.functions.combinators import (
    Bounds,
    Composed,
    Fused,
    Scaled,
    bounds_of,
    with_arrays_moved,
)
from moment_calculus.functions.recognition import RecognitionPolicy
from moment_calculus.numerics.arrays import Array
from moment_calculus.values.ancestry import branches_of
from moment_calculus.values.elementwise import affine, apply_activation, with_rule_book
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import Support


class Deferred:
    """An elementwise function f(x) of one Gaussian x, integrated only where moments are needed."""

    __slots__ = (
        "_derived_from",
        "_gaussian",
        "_recognised_function",
        "base",
        "closed_form",
        "fallback",
        "function",
    )

    def __init__(
        self,
        base: Gaussian,
        function: Any,
        *,
        closed_form: Callable[[Gaussian], Gaussian] | None = None,
        fallback: Callable[[], Gaussian] | None = None,
    ) -> None:
        self.base, self.function = base, function
        # closed_form computes the value from x where more is known than the moments of f;
        # fallback computes it where f is not recognised as an activation of the table.
        self.closed_form, self.fallback = closed_form, fallback
        self._gaussian: Gaussian | None = None
        self._recognised_function: Any = None
        self._derived_from: tuple[Deferred, Callable[[Any], Any]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the variable."""
        return tuple(self.base.mean.shape)

    @property
    def sites(self) -> frozenset[str]:
        """Return the names of the latent sites on which the value depends."""
        return self.base.sites

    @property
    def support(self) -> Support:
        """Return the latent sites on which the value depends, with their elements."""
        return self.base.support

    @property
    def propagation(self) -> Propagation:
        """Return how randomness flows in this program."""
        return self.base.propagation

    @property
    def dtype(self) -> Any:
        """Return the dtype of the moments."""
        return self.base.mean.dtype

    @property
    def at_mean(self) -> Array:
        """Return f at the mean of x."""
        return self(self.base.mean)

    def __call__(self, points: Array) -> Array:
        """Evaluate f at given values of x."""
        return self.function(points)

    @property
    def bounds(self) -> Bounds:
        """Return the bounds of f, as far as they are known."""
        return bounds_of(self.function)

    @property
    def policy(self) -> RecognitionPolicy:
        """Return whether functions of the program may be evaluated at fixed points."""
        return RecognitionPolicy.of(self.base)

    @property
    def recognised_function(self) -> Any:
        """Return f, or the activation of the table that it equals if that may be looked up."""
        if self._recognised_function is None:
            seen = self.closed_form is None
            self._recognised_function = (
                self.policy.recognised_function(self.function) if seen else self.function
            )
        return self._recognised_function

    @property
    def is_recognised(self) -> bool:
        """Return whether f is a chain or combination that equals an activation of the table."""
        return self.recognised_function is not self.function

    @property
    def has_moments(self) -> bool:
        """Return whether the moments are computed already."""
        return self._gaussian is not None

    @property
    def is_single_activation(self) -> bool:
        """Return whether f is no chain or combination, and has no ``closed_form``."""
        is_combination = isinstance(self.function, Scaled | Composed | Fused)
        return not is_combination and self.closed_form is None

    def of(self, function: Any) -> Deferred:
        """Return another function of the same Gaussian."""
        return Deferred(self.base, function)

    def gaussian(self) -> Gaussian:
        """Compute the moments once; later calls return the same object, so that it is one value."""
        if self._gaussian is None:
            line = [self]  # then the values it was moved or scaled from: too many for a recursion
            while (origin := line[-1]._derived_from) is not None and origin[0]._gaussian is None:
                line.append(origin[0])
            for value in reversed(line):
                value._gaussian = value._compute_gaussian()
        return self._gaussian  # type: ignore[return-value]

    @property
    def expectation(self) -> Array:
        """Return E f(x), without the variance where that saves work."""
        if self._gaussian is not None or self.closed_form is not None:
            return self.gaussian().mean
        if self.fallback is not None and not self.is_recognised:
            return self.gaussian().mean
        if branches_of(self.base) is not None:
            return self.gaussian().mean
        return with_rule_book(self.base, self.recognised_function).expectation(
            self.base.mean, self.base.variance
        )

    def _compute_gaussian(self) -> Gaussian:
        if self._derived_from is not None:
            source, move = self._derived_from
            return move(source.gaussian())
        if isinstance(self.function, Scaled):
            inner = self.of(self.function.inner).gaussian()
            return affine(inner, self.function.scale, self.function.shift)
        if self.fallback is not None and not self.is_recognised:
            return self.fallback()
        branches = branches_of(self.base)
        if branches is None:
            return apply_activation(self.base, self.recognised_function, self.closed_form)
        function = self.recognised_function
        return apply_activation(
            self.base, function, lambda _: branches.join_branches(partial(_applied, function))
        )

    def moved(self, move: Callable[[Any], Any]) -> Any:
        """Return the value after a shape operation ``move`` on values and arrays of this shape.

        Of a stack a move may take one piece, which is a function itself, or an array.
        """
        function = with_arrays_moved(self.function, move, self.shape)
        plain, base = not isinstance(function, Fused), move(self.base)
        if isinstance(base, Gaussian):
            result = Deferred(base, function, closed_form=self.closed_form if plain else None)
        elif isinstance(base, Deferred):
            result = base.then(function)
        else:
            return function(base)
        result._derived_from = self, move
        return result

    def scaled(self, scale: Array | float, shift: Array | float) -> Deferred:
        """Return scale · f(x) + shift, with the moments of this value, scaled and shifted."""
        result = self.of(Scaled(self.function, scale, shift, self.policy))
        result._derived_from = self, lambda value: affine(value, scale, shift)
        return result

    def then(self, outer: Any) -> Deferred:
        """Return outer(f(x)) as one function of the same Gaussian."""
        return self.of(Composed.of(outer, self.function, self.policy))


def as_function(value: Gaussian | Deferred) -> Gaussian | Deferred:
    """Return a Gaussian as the function of a Gaussian from which it was computed; else itself."""
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
    """Return a function of one branch of a value: a value, or an array for an array."""
    if not isinstance(branch, Gaussian | Deferred):
        return function(branch)
    inner = as_function(branch)
    outer = inner.then(function) if isinstance(inner, Deferred) else Deferred(inner, function)
    return outer.gaussian()


def base_of(value: Gaussian | Deferred) -> Gaussian:
    """Return the Gaussian of which a value is an elementwise function."""
    return value.base if isinstance(value, Deferred) else value


def unscaled(function: Any) -> Any:
    """Return the function inside affine maps."""
    while isinstance(function, Scaled):
        function = function.inner
    return function


class Composite:
    """A function of one Gaussian, its source, without moments until they are asked for."""

    __slots__ = ("source",)
    name = ""

    def __init__(self, source: Gaussian) -> None:
        self.source = source

    @property
    def sites(self) -> frozenset[str]:
        """Names of the latent sites that the value depends on."""
        return self.source.sites

    @property
    def support(self) -> Support:
        """The latent sites, and which of their elements, that the value depends on."""
        return self.source.support

    @property
    def at_mean(self) -> Array:
        """The function at the mean of its source."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.at_mean.shape)

    def gaussian(self) -> Any:
        """Return the moments of the function as a value."""
        raise NotImplementedError

    def permuted(self, order: Sequence[int]) -> Any:
        """Return the function with reordered axes: ``order`` is the old axis at each place."""
        raise NotImplementedError

    def converted(self, convert: Callable[[Array], Array]) -> Any:
        """Return the function in another precision or on another device."""
        raise NotImplementedError


class PendingWeight(Composite):
    """A latent weight without moments before it meets its inputs, in a linear map."""

    __slots__ = ()

    @property
    def is_used(self) -> bool:
        """Whether the weight has met inputs in this run of the program."""
        raise NotImplementedError

    def map_inputs(self, inputs: Any, bias: Any) -> Any:
        """Return the map of inputs [..., in] by a weight [out, in], plus a bias or None."""
        raise NotImplementedError

    def as_row(self) -> Any:
        """Return a vector [in] as a weight [1, in]."""
        raise NotImplementedError

    def unused(self) -> Any:
        """Return the weight before its inputs, for another run of the same program."""
        raise NotImplementedError
