"""Pareto-smoothed importance weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from moment_calculus.numerics.arrays import Array

ROWS = 2**18  # numbers of rows that are smoothed at once
CONSTANT = 1e-3  # log weights that differ by less are one another's equals
LEAST = 11  # draws of which weights are made
FEWEST = 5  # draws of a tail that has a shape
EVEN = 0.9  # share of effective draws above which no tail of the weights matters
FEW = 0.1  # share of effective draws below which k̂ itself is not reliable
PRIOR_SHAPE, PRIOR_DRAWS = 0.5, 10  # what k̂ is drawn to, and by how many draws' worth


@dataclass(frozen=True)
class Weights:
    """Pareto-smoothed importance weights of independent draws.

    k̂ alone does not tell whether they can be trusted. Weights that are all but constant have a tail
    of any shape, which does not matter: with an effective share s no mean under the weights is
    further than √(1 / s − 1) standard deviations of the draws from the plain one, a third with 0.9.
    And a proposal that is far too narrow never draws what would give its weights their tail: of
    mean-field guides of correlated regressions k̂ was 0.55 to 0.61 with shares of 0.02 to 0.06,
    where weighted standard deviations were 0.58 to 0.69 of the right ones. So weights are reliable
    with a share above 0.9, or with k̂ ≤ 0.7 (less for few draws) and a share of at least 0.1.

    Args:
        log: logarithms, normalised, [..., draws].
        shape: k̂ of their tails, [...]: zero where weights are constant, infinite where all but a
            few are nothing, and of up to 20 draws.

    Source: Vehtari et al. 2024, Pareto smoothed importance sampling; Kish 1965 (share).
    """

    log: np.ndarray
    shape: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """Number of draws that the weighted ones are worth over their number, [...]."""
        return np.exp(-logsumexp(2 * self.log, axis=-1)) / self.log.shape[-1]

    @property
    def is_reliable(self) -> np.ndarray:
        """Whether expectations under the weights can be trusted, [...]."""
        return ~self.is_heavy & (self.share >= FEW)

    @property
    def is_heavy(self) -> np.ndarray:
        """Whether they have a tail that matters, [...]."""
        return (self.shape > good_shape(self.log.shape[-1])) & (self.share <= EVEN)

    def __str__(self) -> str:
        """Of one set of weights, k̂ and the share."""
        return f"{float(self.shape):.2f}, {float(self.share):.0%} effective"

    def places(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draw with replacement by one set of weights, [count], each as often as it weighs.

        Args:
            generator: of NumPy.
            count: how many.

        Source: Kitagawa 1996 (systematic resampling).
        """
        ends = np.cumsum(np.exp(self.log))
        levels = (generator.uniform() + np.arange(count)) / count * ends[-1]
        found = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
        return generator.permutation(found)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Of draws under one set of weights.

        Args:
            values: [draws, ...].
        """
        return np.tensordot(np.exp(self.log), values, 1)

    def second(self, apart: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Mean product of draws without their means, unbiased for as many as they are worth.

        Args:
            apart: [draws, ...].
            other: broadcastable to it.
        """
        spent = np.exp(logsumexp(2 * self.log))
        return self.mean(apart * other) / (1 - spent)

    def covariance(self, values: np.ndarray) -> np.ndarray:
        """Over the trailing axis of draws under one set of weights, [..., d, d].

        Args:
            values: [draws, ..., d].
        """
        apart = values - self.mean(values)
        rows = [self.second(apart, apart[..., [at]]) for at in range(values.shape[-1])]
        return np.stack(rows, -2)

    def standard_deviation(self, values: np.ndarray) -> np.ndarray:
        """Of draws under one set of weights.

        Args:
            values: [draws, ...].
        """
        apart = values - self.mean(values)
        return np.sqrt(self.second(apart, apart))


def smoothed(log_ratios: Array) -> Weights:
    """Smooth the largest of importance ratios as quantiles of a Pareto distribution.

    Args:
        log_ratios: of independent draws, [..., draws].

    Source: Vehtari et al. 2024, Pareto smoothed importance sampling, section 2.
    """
    ratios = np.array(log_ratios, np.float64)
    rows = ratios.reshape(-1, ratios.shape[-1])
    step = max(1, ROWS // max(1, rows.shape[-1]))
    shapes = np.concatenate(
        [np.zeros(0), *(_smooth(rows[at : at + step]) for at in range(0, len(rows), step))]
    )
    return Weights(rows.reshape(ratios.shape), shapes.reshape(ratios.shape[:-1]))


def checked_ratios(log_ratios: np.ndarray) -> np.ndarray:
    """Log ratios of densities of draws, of which weights can be made.

    Args:
        log_ratios: log p − log q, [draws].

    Raises:
        ValueError: if they are too few, or not finite.
    """
    if len(log_ratios) < LEAST:
        raise ValueError(f"{len(log_ratios)} draws have no importance weights: they take {LEAST}")
    if np.isnan(log_ratios).any() or not np.isfinite(log_ratios).any():
        raise ValueError(
            "log densities of draws are not finite: the guide draws what the model gives no density"
        )
    return log_ratios


def good_shape(draws: int) -> float:
    """The largest k̂ of weights that can be trusted.

    Args:
        draws: their number.

    Source: Vehtari et al. 2024, section 3.2.4.
    """
    return min(1 - 1 / np.log10(draws), 0.7)


def _smooth(rows: np.ndarray) -> np.ndarray:
    """Smooth and normalise log ratios in their place; returns k̂ of each row."""
    rows -= rows.max(-1, keepdims=True)
    is_constant = rows.min(-1) > -CONSTANT
    count = rows.shape[-1]
    tail = int(np.ceil(min(count / 5, 3 * np.sqrt(count))))
    order = np.argpartition(rows, count - tail - 1, axis=-1)
    places, before = order[:, count - tail :], order[:, count - tail - 1 : count - tail]
    cut = np.maximum(np.take_along_axis(rows, before, -1), np.log(np.finfo(float).tiny))
    values = np.take_along_axis(rows, places, -1)
    places = np.take_along_axis(places, np.argsort(values, axis=-1), -1)
    values = np.sort(values, axis=-1)
    excess = np.exp(values) - np.exp(cut)
    has_tail = (excess[:, -1] > np.finfo(float).eps) & (tail >= FEWEST)
    shapes, scales = _pareto(np.where(has_tail[:, None], excess, np.arange(1.0, tail + 1)))
    quantiles = _quantiles(shapes, scales, (np.arange(tail) + 0.5) / tail)
    is_fitted = (has_tail & np.isfinite(shapes))[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(is_fitted, np.log(quantiles + np.exp(cut)), values)
    np.put_along_axis(rows, places, np.minimum(values, 0.0), -1)
    rows -= logsumexp(rows, axis=-1, keepdims=True)
    return np.where(is_constant, 0.0, np.where(is_fitted[:, 0], shapes, np.inf))


def _quantiles(shapes: np.ndarray, scales: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Of generalised Pareto distributions, [rows, levels]."""
    rates, shape = -np.log1p(-levels), shapes[:, None]
    flat = np.abs(shape) < 1e-12
    with np.errstate(invalid="ignore"):
        curved = np.expm1(shape * rates) / np.where(flat, 1.0, shape)
    return scales[:, None] * np.where(flat, rates, curved)


def _pareto(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale of generalised Pareto distributions.

    The posterior mean of θ = −shape / scale on a grid, whose prior is made of a quartile.

    Args:
        excess: over a threshold, ascending, [rows, n].

    Source: Zhang and Stephens 2009; Vehtari et al. 2024, appendix C (prior of the shape).
    """
    n = excess.shape[-1]
    size = 30 + int(np.sqrt(n))
    quartile, largest = excess[:, int(n / 4 + 0.5) - 1], excess[:, -1]
    grid = 1 - np.sqrt(size / (np.arange(size) + 0.5))
    with np.errstate(all="ignore"):  # of a quartile that is zero, whose shape is not finite
        grid = grid / (3 * quartile[:, None]) + 1 / largest[:, None]
        columns = [np.log1p(-grid[:, at, None] * excess).mean(-1) for at in range(size)]
        shapes = np.stack(columns, -1)
        profile = n * (np.log(-grid / shapes) - shapes - 1)
        weights = np.exp(profile - logsumexp(profile, axis=-1, keepdims=True))
        weights = np.where(weights < 10 * np.finfo(float).eps, 0.0, weights)
        theta = (weights * grid).sum(-1) / weights.sum(-1)
        shape = np.log1p(-theta[:, None] * excess).mean(-1)
        scale = -shape / theta
    return (n * shape + PRIOR_DRAWS * PRIOR_SHAPE) / (n + PRIOR_DRAWS), scale
