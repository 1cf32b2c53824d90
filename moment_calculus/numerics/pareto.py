"""Smooth importance weights by a Pareto distribution, and judge them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moment_calculus.numerics.arrays import Array

ROWS = 2**18  # numbers in the rows that are smoothed together
CONSTANT = 1e-3  # log weights that differ by less count as equal
LEAST = 11  # smallest number of draws that weights are made for
FEWEST = 5  # smallest number of draws in a tail with a shape
EVEN = 0.9  # share of effective draws above which the tail does not matter
FEW = 0.1  # share of effective draws below which k̂ itself is not reliable
SMALLEST = 1e-12  # share of the largest draw below which excesses count as rounding
PRIOR_SHAPE, PRIOR_DRAWS = 0.5, 10  # k̂ is shrunk to it, by a prior worth so many draws


@dataclass(frozen=True)
class ImportanceWeights:
    """Pareto-smoothed importance weights of independent draws.

    Source: Vehtari et al. 2024, Pareto smoothed importance sampling; Kish 1965 (share).
    """

    log: np.ndarray  # normalised log weights, [..., draws]
    # k̂ of the tails, [...]: zero of constant weights, infinite of up to 20 draws, and
    # where nearly all weights vanish
    shape: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """Return the effective number of draws over their number, [...]."""
        return 1 / (np.exp(2 * self.log).sum(-1) * self.log.shape[-1])

    @property
    def is_reliable(self) -> np.ndarray:
        """Return whether expectations under the weights can be trusted, [...]."""
        # k̂ alone does not decide. With a share s no weighted mean is further than √(1/s
        # − 1) standard deviations from the plain mean, a third for s = 0.9: any tail is
        # harmless then. And a proposal that is far too narrow never draws the tail: for
        # mean-field guides of correlated regressions k̂ was 0.55 to 0.61 with shares of
        # 0.02 to 0.06, where the weighted standard deviations were 0.58 to 0.69 of the
        # right ones.
        return ~self.is_heavy & (self.share >= FEW)

    @property
    def is_heavy(self) -> np.ndarray:
        """Return whether the weights have a tail that matters, [...]."""
        return (self.shape > largest_reliable_shape(self.log.shape[-1])) & (self.share <= EVEN)

    def __str__(self) -> str:
        """Show k̂ and the share of one set of weights."""
        return f"{float(self.shape):.2f}, {float(self.share):.0%} effective"

    def resample_indices(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draw ``count`` indices with replacement by systematic resampling (Kitagawa 1996)."""
        ends = np.cumsum(np.exp(self.log))
        levels = (generator.uniform() + np.arange(count)) / count * ends[-1]
        indices = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
        return generator.permutation(indices)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of values [draws, ...] under one set of weights."""
        return np.tensordot(np.exp(self.log), values, 1)

    def product_moment(self, deviations: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the mean product of centred draws [draws, ...], without bias."""
        spent = np.exp(2 * self.log).sum()
        return self.mean(deviations * other) / (1 - spent)

    def covariance(self, values: np.ndarray) -> np.ndarray:
        """Return the covariance [..., d, d] of values [draws, ..., d]."""
        deviations = values - self.mean(values)
        rows = [
            self.product_moment(deviations, deviations[..., [at]]) for at in range(values.shape[-1])
        ]
        return np.stack(rows, -2)

    def standard_deviation(self, values: np.ndarray) -> np.ndarray:
        """Return the standard deviation of values [draws, ...] under one set of weights."""
        deviations = values - self.mean(values)
        return np.sqrt(self.product_moment(deviations, deviations))


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    """Return log Σ eˣ over the last axis; SciPy's takes three times as long."""
    largest = x.max(-1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    terms = x - largest
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms, out=terms).sum(-1)) + largest[..., 0]


def smooth_weights(log_ratios: Array, efficiency: float = 1.0) -> ImportanceWeights:
    """Return smoothed weights from log ratios [..., draws].

    ``efficiency`` is the effective number of draws over their number: 1 of independent ones.
    """
    ratios = np.array(log_ratios, np.float64)
    rows = ratios.reshape(-1, ratios.shape[-1])
    step = max(1, ROWS // max(1, rows.shape[-1]))
    shapes = np.concatenate(
        [np.zeros(0)]
        + [_smooth(rows[at : at + step], efficiency) for at in range(0, len(rows), step)]
    )
    return ImportanceWeights(rows.reshape(ratios.shape), shapes.reshape(ratios.shape[:-1]))


def check_ratios(log_ratios: np.ndarray) -> np.ndarray:
    """Return log ratios [draws] as they are; raise ValueError if too few or not finite."""
    if len(log_ratios) < LEAST:
        raise ValueError(f"{len(log_ratios)} draws have no importance weights: they take {LEAST}")
    if np.isnan(log_ratios).any() or not np.isfinite(log_ratios).any():
        raise ValueError(
            "log densities of draws are not finite: the guide draws what the model gives no density"
        )
    return log_ratios


def tail_of_mean(values: np.ndarray) -> tuple[float, float, float]:
    """Return k̂ of the largest draws, its error, and the part of the mean beyond the largest.

    The standard error of the shape k̂ is (1 + k̂)/√m of m draws in the tail. The part beyond
    is ∫ S(x) dx where the survival function S of a generalised Pareto distribution, with k̂
    one standard error further up, is below 1/n: infinite from a shape of 1, for there is no
    mean then.
    """
    count = len(values)
    tail = _tail_size(count)
    largest = np.sort(values)[count - tail - 1 :]
    excess = largest[1:] - largest[0]
    if tail < FEWEST or not excess[-1] > SMALLEST * np.abs(largest).max():
        return 0.0, 0.0, 0.0
    shapes, scales = _pareto(excess[None])
    shape, scale = float(shapes[0]), float(scales[0])
    if not np.isfinite([shape, scale]).all():
        return np.inf, 0.0, np.inf
    error = (1 + max(shape, 0.0)) / tail**0.5
    upper = shape + error
    return shape, error, scale * tail**upper / (count * (1 - upper)) if upper < 1 else np.inf


def largest_reliable_shape(draws: int) -> float:
    """Return the largest k̂ that can be trusted (Vehtari et al. 2024, section 3.2.4)."""
    return min(1 - 1 / np.log10(draws), 0.7)


def _tail_size(count: int, efficiency: float = 1.0) -> int:
    """Return how many of the largest draws are a tail."""
    return int(np.ceil(min(count / 5, 3 * np.sqrt(count / efficiency))))


def _smooth(rows: np.ndarray, efficiency: float) -> np.ndarray:
    """Smooth and normalise log ratios [rows, draws] in place; return k̂ of each row."""
    rows -= rows.max(-1, keepdims=True)
    is_constant = rows.min(-1) > -CONSTANT
    count = rows.shape[-1]
    tail = _tail_size(count, efficiency)
    order = np.argpartition(rows, count - tail - 1, axis=-1)
    tail_indices, before = order[:, count - tail :], order[:, count - tail - 1 : count - tail]
    cut = np.maximum(np.take_along_axis(rows, before, -1), np.log(np.finfo(float).tiny))
    values = np.take_along_axis(rows, tail_indices, -1)
    tail_indices = np.take_along_axis(tail_indices, np.argsort(values, axis=-1), -1)
    values = np.sort(values, axis=-1)
    excess = np.exp(values) - np.exp(cut)
    has_tail = (excess[:, -1] > np.finfo(float).eps) & (tail >= FEWEST)
    shapes, scales = _pareto(np.where(has_tail[:, None], excess, np.arange(1.0, tail + 1)))
    quantiles = _quantiles(shapes, scales, (np.arange(tail) + 0.5) / tail)
    is_fitted = (has_tail & np.isfinite(shapes))[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(is_fitted, np.log(quantiles + np.exp(cut)), values)
    np.put_along_axis(rows, tail_indices, np.minimum(values, 0.0), -1)
    rows -= log_sum_exp(rows)[:, None]
    return np.where(is_constant, 0.0, np.where(is_fitted[:, 0], shapes, np.inf))


def _quantiles(shapes: np.ndarray, scales: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return quantiles of generalised Pareto distributions, [rows, levels]."""
    rates, shape = -np.log1p(-levels), shapes[:, None]
    flat = np.abs(shape) < 1e-12
    with np.errstate(invalid="ignore"):
        curved = np.expm1(shape * rates) / np.where(flat, 1.0, shape)
    return scales[:, None] * np.where(flat, rates, curved)


def _pareto(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit generalised Pareto distributions to ascending excesses [rows, n]; return shape and scale.

    The fit is the posterior mean of θ = −shape / scale on a grid; its prior is made of a
    quartile. Source: Zhang and Stephens 2009; Vehtari et al. 2024, appendix C (prior of
    the shape).
    """
    n = excess.shape[-1]
    size = 30 + int(np.sqrt(n))
    quartile, largest = excess[:, int(n / 4 + 0.5) - 1], excess[:, -1]
    grid = 1 - np.sqrt(size / (np.arange(size) + 0.5))
    with np.errstate(all="ignore"):  # a quartile of zero gives a shape that is not finite
        grid = grid / (3 * quartile[:, None]) + 1 / largest[:, None]
        columns = [np.log1p(-grid[:, at, None] * excess).mean(-1) for at in range(size)]
        shapes = np.stack(columns, -1)
        profile = n * (np.log(-grid / shapes) - shapes - 1)
        weights = np.exp(profile - log_sum_exp(profile)[:, None])
        weights = np.where(weights < 10 * np.finfo(float).eps, 0.0, weights)
        theta = (weights * grid).sum(-1) / weights.sum(-1)
        shape = np.log1p(-theta[:, None] * excess).mean(-1)
        scale = -shape / theta
    return (n * shape + PRIOR_DRAWS * PRIOR_SHAPE) / (n + PRIOR_DRAWS), scale
