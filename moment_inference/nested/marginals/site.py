"""Marginal densities of sites: tables for hyperparameters, mixtures over the grid for the rest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from scipy.interpolate import CubicSpline

from moment_inference.nested.marginals.shifted_log_normal import ShiftedLogNormal

NEGLIGIBLE = 1e-12  # weights of a mixture that are left out
BLOCK = 400_000  # components times elements at once
STEPS = 60  # of Newton's method or bisection
PRECISION = 1e-11  # of quantiles, in standard deviations
NODES, NODES_REACH = 161, 9.0  # of integrals over a component, standard deviations
END = 800  # points of the same over which it falls at an end
FINE = 4001  # points of a table's distribution function

Function = Callable[[np.ndarray], np.ndarray]


class Transform(NamedTuple):
    """A smooth increasing function from an unconstrained scale to a site's support.

    Attributes:
        forward: Takes unconstrained values to the support, elementwise.
        inverse: Its inverse.
        log_slope: The log of its derivative, at unconstrained values.
    """

    forward: Function
    inverse: Function
    log_slope: Function


def _unchanged(values: np.ndarray) -> np.ndarray:
    """Return the values."""
    return np.asarray(values, dtype=float)


IDENTITY = Transform(_unchanged, _unchanged, np.zeros_like)


class Marginal(Protocol):
    """The marginal posterior of each element of a site, on the site's support.

    Attributes:
        shape: The site's shape; a scalar's is ().

    Source: mixtures over a grid of hyperparameters as in Rue, Martino and Chopin 2009,
    Approximate Bayesian inference for latent Gaussian models by integrated nested Laplace
    approximations.
    """

    shape: tuple[int, ...]

    @abstractmethod
    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return densities, per unit of the site.

        Args:
            x: Values that broadcast against the site's shape: [..., *shape].

        Returns:
            Densities of x's broadcast shape, zero outside of the support.
        """

    @abstractmethod
    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of smaller values.

        Args:
            x: Values that broadcast against the site's shape: [..., *shape].

        Returns:
            Probabilities of x's broadcast shape.
        """

    @abstractmethod
    def quantile(self, p: float | np.ndarray) -> np.ndarray:
        """Return the values below which the site is with given probabilities.

        Args:
            p: Probabilities between 0 and 1, a number or of any shape.

        Returns:
            Values [*p.shape, *shape].

        Raises:
            ValueError: if a probability is not between 0 and 1, both excluded.
        """

    @property
    @abstractmethod
    def mean(self) -> np.ndarray:
        """Means [*shape]; infinite where they do not exist."""

    @property
    @abstractmethod
    def variance(self) -> np.ndarray:
        """Variances [*shape]; infinite where they do not exist."""

    @property
    @abstractmethod
    def skewness(self) -> np.ndarray:
        """Third central moments by the cube of standard deviations [*shape]; nan without any."""

    @property
    def standard_deviation(self) -> np.ndarray:
        """Standard deviations [*shape]; infinite where they do not exist."""
        return np.sqrt(self.variance)

    def interval(self, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return central intervals.

        Args:
            mass: Their probability; as much lies below as above.

        Returns:
            Lower and upper ends, each [*shape].

        Raises:
            ValueError: if the mass is not between 0 and 1, both excluded.
        """
        if not 0 < mass < 1:
            raise ValueError(f"an interval has a mass between 0 and 1, not {mass}")
        lower, upper = self.quantile(np.array([(1 - mass) / 2, (1 + mass) / 2]))
        return lower, upper

    @abstractmethod
    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws of each element for itself: elements are independent of each other.

        Args:
            generator: NumPy's generator of random numbers.
            count: How many draws.

        Returns:
            Draws [count, *shape].
        """


def probabilities(p: float | np.ndarray) -> np.ndarray:
    """Return probabilities as an array; raises ValueError where they are none."""
    wanted = np.asarray(p, dtype=float)
    if not np.all((wanted > 0) & (wanted < 1)):
        raise ValueError(f"probabilities lie between 0 and 1, both excluded; got {p}")
    return wanted


class TableMarginal(Marginal):
    """The marginal of a scalar, from a table of its log density on the unconstrained scale.

    ``points`` [n] are increasing, ``log_density`` [n] need not be normalised; between points the
    density is a cubic spline of the log, outside zero. Moments on the support continue the tails
    by exponentials, so that those that do not exist are infinite.
    """

    shape: tuple[int, ...] = ()

    def __init__(
        self, points: np.ndarray, log_density: np.ndarray, transform: Transform = IDENTITY
    ) -> None:
        log_spline = CubicSpline(points, log_density - np.max(log_density))
        self._points = np.linspace(points[0], points[-1], FINE)
        values = log_spline(self._points)
        total = CubicSpline(self._points, np.exp(values)).integrate(points[0], points[-1])
        self._log_total = float(np.log(total))
        self._log_spline, self.transform = log_spline, transform
        self._log_density = values - self._log_total
        self._cumulative = CubicSpline(self._points, np.exp(self._log_density)).antiderivative()

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return densities of values of any shape."""
        inside, places = self._unconstrained(x)
        logs = self._log_spline(places) - self._log_total - self.transform.log_slope(places)
        return np.where(inside, np.exp(logs), 0.0)

    def _unconstrained(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return whether values lie in the table, and unconstrained values within it."""
        with np.errstate(invalid="ignore", divide="ignore"):
            places = np.asarray(self.transform.inverse(np.asarray(x, dtype=float)))
        first, last = self._points[0], self._points[-1]
        return (places >= first) & (places <= last), np.clip(np.nan_to_num(places), first, last)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of smaller values, of any shape."""
        ends = self.transform.forward(self._points[[0, -1]])
        values = np.asarray(x, dtype=float)
        inside = np.clip(self._cumulative(self._unconstrained(x)[1]), 0.0, 1.0)
        return np.where(values <= ends[0], 0.0, np.where(values >= ends[1], 1.0, inside))

    def quantile(self, p: float | np.ndarray) -> np.ndarray:
        """Return the values [*p.shape] below which the site is with given probabilities."""
        wanted = probabilities(p)
        table = self._cumulative(self._points)
        cells = np.clip(np.searchsorted(table, wanted) - 1, 0, FINE - 2)
        low, high = self._points[cells], self._points[cells + 1]
        share = (wanted - table[cells]) / np.maximum(table[cells + 1] - table[cells], 1e-300)
        places = low + (high - low) * share
        for _ in range(3):
            slope = np.maximum(self._cumulative(places, 1), 1e-300)
            places = np.clip(places - (self._cumulative(places) - wanted) / slope, low, high)
        return np.asarray(self.transform.forward(places))

    @cached_property
    def mean(self) -> np.ndarray:
        """The mean [], infinite if it does not exist."""
        centre = float(self.quantile(0.5))
        return np.asarray(centre + self._moment(1, centre))

    @cached_property
    def variance(self) -> np.ndarray:
        """The variance [], infinite if it does not exist."""
        finite = np.isfinite(self.mean)
        return np.asarray(self._moment(2, float(self.mean)) if finite else np.inf)

    @cached_property
    def skewness(self) -> np.ndarray:
        """The third central moment by the cube of the standard deviation [], nan without one."""
        if not np.isfinite(self.variance):
            return np.asarray(np.nan)
        third = self._moment(3, float(self.mean)) / self.variance**1.5
        return np.asarray(third if np.isfinite(third) else np.nan)

    def _moment(self, power: int, centre: float) -> float:
        """Return E (x - centre)^power on the support, tails continued by exponentials."""
        differences = self.transform.forward(self._points) - centre
        logs = self._log_density + power * np.log(np.maximum(np.abs(differences), 1e-300))
        integrand = np.sign(differences) ** power * np.exp(logs)
        within = CubicSpline(self._points, integrand).integrate(self._points[0], self._points[-1])
        falls = self._falls() - power * self._growth(differences)
        left = np.sign(integrand[0]) * _beyond(logs[0], falls[0])
        right = np.sign(integrand[-1]) * _beyond(logs[-1], falls[1])
        return float(within + left + right)

    def _falls(self) -> np.ndarray:
        """Return by how much the log density falls outwards at the ends, per unit, [2].

        It is a mean over some of the table: close to an end a spline can rise.
        """
        ends, inside = self._log_density[[0, -1]], self._log_density[[END, -1 - END]]
        return (inside - ends) / (self._points[END] - self._points[0])

    def _growth(self, differences: np.ndarray) -> np.ndarray:
        """Return by how much the logs of differences grow outwards at the ends, per unit, [2]."""
        logs = np.log(np.abs(differences[[0, 1, -1, -2]]))
        return (logs[[0, 2]] - logs[[1, 3]]) / (self._points[1] - self._points[0])

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws [count]."""
        uniform = generator.uniform(size=count)
        return self.quantile(np.clip(uniform, 1e-15, 1 - 1e-15))


def _beyond(end: float, fall: float) -> float:
    """Return the integral beyond an end of a table of logs, infinite if they do not fall."""
    return float(np.exp(end) / fall) if fall > 0 else np.inf


class MixtureMarginal(Marginal):
    """The marginals of a site's elements as mixtures over g points of hyperparameters.

    Component k of an element is a shifted log-normal with mean ``means[k]``, variance
    ``variances[k]`` and third central moment ``thirds[k]`` (each [g, *shape]; without ``thirds`` it
    is Gaussian), on the unconstrained scale if there is a ``transform``; ``weights`` [g] sum to
    one. Moments without a transform are those of the mixture in closed form.
    """

    def __init__(
        self,
        weights: np.ndarray,
        means: np.ndarray,
        variances: np.ndarray,
        thirds: np.ndarray | None = None,
        transform: Transform | None = None,
    ) -> None:
        kept = np.flatnonzero(weights > NEGLIGIBLE)
        self.shape = tuple(np.shape(means)[1:])
        self.transform = transform or IDENTITY
        self._is_identity = transform is None
        self._weights = (weights[kept] / weights[kept].sum())[:, None]
        self._means, self._variances = (
            np.asarray(array, dtype=float)[kept].reshape(len(kept), -1)
            for array in (means, variances)
        )
        zero = np.zeros_like(self._means)
        self._thirds = zero if thirds is None else thirds[kept].reshape(len(kept), -1)

    @cached_property
    def _components(self) -> ShiftedLogNormal:
        """The components [g, n]."""
        return ShiftedLogNormal.of_moments(self._means, self._variances, self._thirds)

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return densities of values that broadcast against the site's shape."""
        with np.errstate(invalid="ignore", divide="ignore"):
            places = np.asarray(self.transform.inverse(np.asarray(x, dtype=float)))
        valid = np.isfinite(places)
        places = np.where(valid, places, 0.0)
        inner = self._by_rows(places, self._density) * np.exp(-self.transform.log_slope(places))
        return np.where(valid, inner, 0.0)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of smaller values, which broadcast against the site's shape."""
        with np.errstate(invalid="ignore", divide="ignore"):
            places = np.asarray(self.transform.inverse(np.asarray(x, dtype=float)))
        lowest = self.transform.forward(np.asarray(-np.inf))
        outside = np.where(x <= lowest, -np.inf, np.where(np.isnan(x), np.nan, np.inf))
        places = np.where(np.isnan(places), outside, places)
        return self._by_rows(places, self._cumulative)

    def _density(self, places: np.ndarray, elements: slice) -> np.ndarray:
        """Return the mixture's densities [..., n] on the unconstrained scale."""
        parts = self._components.part(elements).density(places[..., None, :])
        return np.sum(self._weights * parts, axis=-2)

    def _cumulative(self, places: np.ndarray, elements: slice) -> np.ndarray:
        """Return the mixture's distribution function [..., n] on the unconstrained scale."""
        parts = self._components.part(elements).cdf(places[..., None, :])
        return np.sum(self._weights * parts, axis=-2)

    def _by_rows(
        self, places: np.ndarray, function: Callable[[np.ndarray, slice], np.ndarray]
    ) -> np.ndarray:
        """Return a function at [..., *shape], some rows of all elements at a time."""
        shape = np.broadcast_shapes(places.shape, self.shape)
        size = self._means.shape[1]
        rows = np.broadcast_to(places, shape).reshape(-1, size)
        parts = np.array_split(rows, 1 + rows.size * len(self._means) // BLOCK)
        found = [self._by_blocks(part, function) for part in parts if len(part)]
        return np.concatenate(found).reshape(shape) if found else np.zeros(shape)

    def _by_blocks(
        self, rows: np.ndarray, function: Callable[[np.ndarray, slice], np.ndarray]
    ) -> np.ndarray:
        """Return a function at rows [..., n], block after block of elements."""
        size = max(1, BLOCK // len(self._means))
        blocks = [slice(start, start + size) for start in range(0, rows.shape[-1], size)]
        return np.concatenate([function(rows[..., block], block) for block in blocks], axis=-1)

    def quantile(self, p: float | np.ndarray) -> np.ndarray:
        """Return the values [*p.shape, *shape] below which elements are with probabilities."""
        wanted = probabilities(p)
        rows = wanted.reshape(wanted.shape + (1,) * len(self.shape))
        places = self._by_rows(rows, self._block_quantile)
        return np.asarray(self.transform.forward(places))

    def _block_quantile(self, wanted: np.ndarray, elements: slice) -> np.ndarray:
        """Return quantiles [r, n], unconstrained, by Newton's method between the components'."""
        components = self._components.part(elements)
        each = components.quantile(wanted[..., None, :])
        low, high = each.min(axis=-2), each.max(axis=-2)
        places = np.sum(self._weights * each, axis=-2)
        deviation = np.sqrt(self._moments[1][elements])
        for _ in range(STEPS):
            excess = self._cumulative(places, elements) - wanted
            low, high = np.where(excess < 0, places, low), np.where(excess > 0, places, high)
            density = np.maximum(self._density(places, elements), 1e-300)
            newton = places - excess / density
            inside = (newton >= low) & (newton <= high)
            before, places = places, np.where(inside, newton, (low + high) / 2)
            if np.all(np.abs(places - before) <= PRECISION * deviation):
                break
        return places

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and third central moment [n] of the mixture, unconstrained."""
        mean = np.sum(self._weights * self._means, axis=0)
        return (mean, *_central(self._weights, self._means - mean, self._variances, self._thirds))

    @cached_property
    def _on_support(self) -> tuple[np.ndarray, ...]:
        """Mean, variance and third central moment, [*shape] each, on the support."""
        if self._is_identity:
            return tuple(np.reshape(part, self.shape) for part in self._moments)
        columns = [self._transformed_moments(number) for number in range(self._means.shape[1])]
        return tuple(np.array(part).reshape(self.shape) for part in zip(*columns, strict=True))

    def _transformed_moments(self, number: int) -> tuple[float, float, float]:
        """Return moments of a transformed element, by the trapezoidal rule."""
        parts = self._components.part(slice(number, number + 1))
        standard = np.linspace(-NODES_REACH, NODES_REACH, NODES)
        density = self._weights * np.exp(-0.5 * standard**2)
        density /= density.sum()
        values = np.asarray(self.transform.forward(parts.at(standard)))
        mean = np.sum(density * values)
        second, third = (np.sum(density * (values - mean) ** power) for power in (2, 3))
        return float(mean), float(second), float(third)

    @property
    def mean(self) -> np.ndarray:
        """Means [*shape]."""
        return self._on_support[0]

    @property
    def variance(self) -> np.ndarray:
        """Variances [*shape]."""
        return self._on_support[1]

    @property
    def skewness(self) -> np.ndarray:
        """Third central moments by the cube of standard deviations [*shape]."""
        return self._on_support[2] / self._on_support[1] ** 1.5

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws [count, *shape]."""
        size = self._means.shape[1]
        edges = np.cumsum(self._weights[:, 0])[:-1]
        rows = np.searchsorted(edges, generator.uniform(size=(count, size)))
        draws = self._components.taken(rows).at(generator.standard_normal((count, size)))
        return np.asarray(self.transform.forward(draws)).reshape(count, *self.shape)


def _central(
    weights: np.ndarray, shifts: np.ndarray, variances: np.ndarray, thirds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return variance and third central moment of a mixture from its components'."""
    variance = np.sum(weights * (variances + shifts**2), axis=0)
    third = np.sum(weights * (thirds + 3 * shifts * variances + shifts**3), axis=0)
    return variance, third
