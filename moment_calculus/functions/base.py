"""Base classes of activations, and helpers that their moment formulas share.

Which one to take: ``Smooth`` for a function with a derivative (f, f′ and the knots are
enough); ``SmoothRectifier`` if it is also nearly max(x, 0); an instance of
``PiecewiseLinear`` for straight pieces; an instance of ``Rescaled`` for a f(bx) + c of
another one; ``Delegating`` to replace some methods of another one, as rule books do;
``Integrated`` for a function without a derivative, as chains are; ``Activation`` itself
where mean, variance, Hermite coefficients and gain are known in closed form.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import array_api_compat
import numpy as np

from moment_calculus.numerics.arrays import Array, constants, namespace, outer, safe_scale
from moment_calculus.numerics.execution import elements, scan, together
from moment_calculus.numerics.normal import LIMIT

Moments = tuple[Array, Array]
Pairing = Callable[[Array, Array], Array]


class Activation(ABC):
    """An elementwise function f with the moments of f(x) for Gaussian x.

    A subclass is a frozen dataclass; its fields are the function's parameters.
    """

    name: str
    # Places around which f changes within a distance of one; quadrature refines there.
    knots: tuple[Any, ...] = (0.0,)
    # Bounds of f. ``open_ended``: f never reaches a finite bound, and approaches it at
    # most exponentially.
    bounds: tuple[float, float] = (-math.inf, math.inf)
    open_ended: bool = False
    superlinear: bool = False  # whether f grows faster than linearly
    # Whether the derivatives of Hermite coefficients by μ and v are exactly multiples of
    # the next coefficients (Appell's property); no parameter of f may be an array then.
    appell: bool = False

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function.

        Args:
            x: any array.
        """

    @abstractmethod
    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Exact mean and variance of f(x).

        Args:
            mean: mean of x.
            variance: variance of x, of the same shape; zero gives the plain function.

        Returns:
            The mean and the variance, of the shape of x.
        """

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Mean of f(x) alone; a subclass overrides it where that is less work than both moments.

        Args:
            mean: mean of x.
            variance: variance of x, of the same shape.
        """
        return self.moments(mean, variance)[0]

    @abstractmethod
    def hermite(self, mean: Array, variance: Array, order: int) -> Sequence[Array]:
        """Orthonormal Hermite coefficients g_n = σⁿ E[f⁽ⁿ⁾(x)] / √n!, n = 1 … order.

        They give Var f = Σ g_n² and, for correlation ρ, Cov(f(x), f(y)) = Σ ρⁿ g_n(x)
        g_n(y). They may be one array, along a leading axis.

        Args:
            mean: mean of x.
            variance: variance of x, of the same shape.
            order: number of coefficients.
        """

    @abstractmethod
    def gain(self, mean: Array, variance: Array) -> Array:
        """Expected derivative E[f′(x)] = Cov(x, f(x)) / Var(x).

        Args:
            mean: mean of x.
            variance: variance of x, of the same shape.
        """

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Exact covariance of f(x_i) and f(x_j) for i ≠ j; the diagonal is left unspecified.

        Args:
            mean: means of x, [..., d].
            variance: variances of x, [..., d].
            covariance: covariance of x, [..., d, d].

        Returns:
            Covariances [..., d, d], or NotImplemented if there is no closed form.
        """
        return NotImplemented

    def pair_partials(self, mean: Array, variance: Array, covariance: Array) -> Any:
        """Derivatives of :meth:`pair_covariance`, which a compiler else derives at length.

        Args:
            mean: means of x, [..., d].
            variance: variances of x, [..., d].
            covariance: covariance of x, [..., d, d].

        Returns:
            The derivatives of the entries C_ij by E x_i, by Var x_i and by Cov(x_i, x_j), each
            [..., d, d] and finite on the diagonal too, or NotImplemented.
        """
        return NotImplemented

    def cross_covariance(
        self,
        other: Activation,
        first: Moments,
        second: Moments,
        covariance: Array,
        combine: Pairing,
    ) -> Array:
        """Exact covariance of f(x) and g(y) for two functions.

        Args:
            other: g.
            first: mean and variance of x, [..., d].
            second: mean and variance of y, [..., e].
            covariance: Cov(x, y), [..., d, e].
            combine: combines arrays of x and y, such as the outer product.

        Returns:
            Array of the shape of the covariance, or NotImplemented if there is no closed
            form.
        """
        return NotImplemented

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Known solutions x of f(x) = level, each with |dx/df| there.

        A chain of functions takes the knots of its outer function from here; additional
        places do no harm.

        Args:
            level: the value, a number or an array.

        Returns:
            Pairs of x and |dx/df|; empty if nothing is known.
        """
        return ()

    def dvi_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Covariance of every pair by the approximation of [DVI]; exact where the paper has none.

        Args:
            mean: means of x, [..., d].
            variance: variances of x, [..., d].
            covariance: covariance of x, [..., d, d].

        Returns:
            Covariances [..., d, d] as :meth:`pair_covariance`, or NotImplemented.
        """
        return self.pair_covariance(mean, variance, covariance)


class Delegating(Activation):
    """Base of a function that replaces some methods of another activation and keeps the rest.

    A subclass that changes the moments has to define gain, hermite and pair_covariance
    too. Otherwise its covariances would not belong to its variances: full mode does not
    support it.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.name, self.superlinear = function.name, function.superlinear
        self.bounds, self.open_ended = function.bounds, function.open_ended

    @property
    def knots(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the knots of the other function."""
        return self.function.knots

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.function(x)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance by the other function."""
        return self.function.moments(mean, variance)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients of the other function."""
        return self.function.hermite(mean, variance, order)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative of the other function."""
        return self.function.gain(mean, variance)

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the covariance of every pair by the other function."""
        return self.function.pair_covariance(mean, variance, covariance)


def inverse_at(
    level: Any, bounds: tuple[float, float], inverse: Callable, slope: Callable
) -> tuple[tuple[Any, Any], ...]:
    """Return (x, |dx/df|) where an increasing f takes a level; () if a number is out of bounds."""
    if not isinstance(level, int | float):
        xp = namespace(level)
        return ((inverse(xp, level), slope(xp, level)),)
    if not bounds[0] < level < bounds[1]:
        return ()
    return ((float(inverse(np, np.float64(level))), float(slope(np, np.float64(level)))),)


def normal_hermite(
    threshold: Array,
    density: Array,
    order: int,
    ratio: Array | float = 1.0,
    reduce: Callable[[Array], Array] = lambda term: term,
) -> Sequence[Array]:
    """Return rⁿ He_n(h) φ(h) / √n! for n = 0 … order − 1, by a recursion that cannot overflow.

    ``density`` is φ(h) or a multiple of it; ``reduce`` reduces every term, for example to
    a sum.
    """
    # clipped where φ(h) = 0 already: the gradient would multiply that zero by hⁿ = ∞
    threshold = ratio * namespace(threshold).clip(threshold, min=-LIMIT, max=LIMIT)
    square = ratio * ratio

    def step(state: tuple[Array, Array], numbers: Any) -> tuple[tuple[Array, Array], Array]:
        (current, previous), (root, inverse) = state, numbers
        following = (threshold * current - (square * root) * previous) * inverse
        return (following, current), reduce(current)

    counts = np.arange(float(order))
    roots = np.stack([counts**0.5, (counts + 1) ** -0.5], axis=-1)
    return scan(step, roots, (density, 0.0 * density))


def correlation(variance: Array, covariance: Array) -> Array:
    """Return the correlations [..., d, d] of a covariance matrix, clipped to [−1, 1]."""
    inverse = 1 / safe_scale(variance)
    return clipped_correlation(covariance, outer(inverse, inverse))


def clipped_correlation(covariance: Array, inverse: Array) -> Array:
    """Return the covariance times ``inverse`` = 1/σ_x · 1/σ_y, clipped to [−1, 1]."""
    # The derivative of 1/(σ_x σ_y) would contain (σ_x σ_y)², which is zero in float32.
    return namespace(covariance).clip(covariance * inverse, min=-1.0, max=1.0)


@functools.cache
def _upper_triangle(size: int) -> tuple[np.ndarray, ...]:
    """Return rows, columns and places above the diagonal, and each entry's number among them."""
    rows, columns = np.triu_indices(size, 1)
    number = np.zeros((size, size), dtype=np.int64)
    number[rows, columns] = number[columns, rows] = np.arange(rows.size)
    return rows, columns, rows * size + columns, number.ravel()


def over_pairs(function: Any, features: Any, matrix: Array) -> Array:
    """Evaluate a symmetric function of (a_i, a_j, M_ij) once for every pair i < j: [..., d, d].

    The features a are [..., d], or a tuple of such arrays; the matrix M is symmetric,
    [..., d, d]. The diagonal of the result is unspecified.
    """
    size, xp = matrix.shape[-1], namespace(matrix)
    if size < 2:
        return 0 * matrix
    rows, columns, places, numbers = (
        _to_framework(index, matrix) for index in _upper_triangle(size)
    )
    flat = xp.reshape(matrix, (*matrix.shape[:-2], size * size))
    values = function(
        _take_features(features, rows), _take_features(features, columns), elements(flat, places)
    )
    return xp.reshape(elements(values, numbers), (*values.shape[:-1], size, size))


def _take_features(features: Any, index: Array) -> Any:
    if isinstance(features, tuple):
        return tuple(_take_features(part, index) for part in features)
    return elements(features, index)


def _to_framework(index: np.ndarray, like: Array) -> Array:
    """Copy an integer index to the framework and the device of an array."""
    xp = namespace(like)
    if array_api_compat.is_torch_array(like):
        return xp.asarray(index, device=like.device)
    return xp.asarray(index)


@dataclass(frozen=True)
class Rescaled(Activation):
    """The function a f(bx) + c for an activation f."""

    activation: Activation  # f
    inner: float = 1.0  # b, not zero
    outer: float = 1.0  # a
    shift: float = 0.0  # c
    name: str = field(default="rescaled", compare=False)

    @property
    def knots(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the knots of f in units of x."""
        return tuple(
            (knot[0] / self.inner, knot[1] / abs(self.inner))
            if isinstance(knot, tuple)
            else (knot / self.inner, 1 / abs(self.inner))
            for knot in self.activation.knots
        )

    @property
    def bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """Return the bounds of f, scaled and shifted."""
        low, high = sorted(self.outer * bound + self.shift for bound in self.activation.bounds)
        return low, high

    @property
    def open_ended(self) -> bool:  # type: ignore[override]
        """Return whether f never reaches its finite bounds."""
        return self.activation.open_ended

    @property
    def superlinear(self) -> bool:  # type: ignore[override]
        """Return whether f grows faster than linearly."""
        return self.activation.superlinear

    @property
    def appell(self) -> bool:  # type: ignore[override]
        """Return whether f has Appell's property and is rescaled by numbers."""
        numbers = all(isinstance(part, int | float) for part in (self.inner, self.outer))
        return numbers and self.activation.appell

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return where the function takes a value, and |dx/d level| there."""
        preimages = self.activation.preimages((level - self.shift) / self.outer)
        factor = abs(self.inner * self.outer)
        return tuple((location / self.inner, stretch / factor) for location, stretch in preimages)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.outer * self.activation(self.inner * x) + self.shift

    def _scaled(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        return self.inner * mean, self.inner * self.inner * variance

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance, as accurate as those of f."""
        centre, spread = self.activation.moments(*self._scaled(mean, variance))
        return self.outer * centre + self.shift, self.outer * self.outer * spread

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Return the mean, as accurate as that of f."""
        return self.outer * self.activation.expectation(*self._scaled(mean, variance)) + self.shift

    def hermite(self, mean: Array, variance: Array, order: int) -> Array:
        """Return the Hermite coefficients; their sign alternates where b is negative."""
        sign = 1 if self.inner > 0 else -1
        terms = together(self.activation.hermite(*self._scaled(mean, variance), order))
        signs = np.reshape(float(sign) ** np.arange(1, order + 1), (-1, *(1,) * mean.ndim))
        return terms * constants(self.outer * signs, mean)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        return self.outer * self.inner * self.activation.gain(*self._scaled(mean, variance))

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the covariance of every pair by the formula of f."""
        return self._pairs(self.activation.pair_covariance, mean, variance, covariance)

    def dvi_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the approximate covariance of every pair by the formula of f."""
        return self._pairs(self.activation.dvi_covariance, mean, variance, covariance)

    def _pairs(self, rule: Any, mean: Array, variance: Array, covariance: Array) -> Array:
        shares = rule(*self._scaled(mean, variance), self.inner * self.inner * covariance)
        return shares if shares is NotImplemented else self.outer * self.outer * shares
