"""Marginals by draws, of hyperparameters whose elements a transform mixes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import gaussian_kde

from moment_inference.nested.marginals.site import Marginal, probabilities


class DrawnMarginal(Marginal):
    """The marginals of a site of which there are draws [n, *shape], such as a simplex."""

    def __init__(self, draws: np.ndarray) -> None:
        self.shape, self._draws = draws.shape[1:], draws
        self._columns = np.sort(draws.reshape(len(draws), -1), 0).T
        self._levels = (np.arange(len(draws)) + 0.5) / len(draws)

    def _at(
        self, x: np.ndarray, each: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Return a function of an element's sorted draws and of values [..., *shape]."""
        wide = np.broadcast_to(x, np.broadcast_shapes(np.shape(x), self.shape))
        rows = wide.reshape(-1, len(self._columns))
        found = [each(*pair) for pair in zip(self._columns, rows.T, strict=True)]
        return np.stack(found, -1).reshape(wide.shape)

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return densities by Gaussian kernels; infinite at the only value of a constant."""
        return self._at(x, _density)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of smaller values."""
        return self._at(x, lambda draws, values: np.searchsorted(draws, values) / len(draws))

    def quantile(self, p: float | np.ndarray) -> np.ndarray:
        """Return the quantiles of each element, [*p.shape, *shape]."""
        wanted = probabilities(p)
        found = [np.interp(wanted, self._levels, draws) for draws in self._columns]
        return np.stack(found, -1).reshape((*wanted.shape, *self.shape))

    @property
    def mean(self) -> np.ndarray:
        """Return the means."""
        return self._draws.mean(0)

    @property
    def variance(self) -> np.ndarray:
        """Return the variances."""
        return self._draws.var(0)

    @property
    def skewness(self) -> np.ndarray:
        """Return the skewness of each element, zero of a constant."""
        deviation = np.where(self.variance > 0, self.standard_deviation, 1.0)
        return (((self._draws - self.mean) / deviation) ** 3).mean(0)

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws, [count, *shape], of each element by itself."""
        places = generator.integers(len(self._draws), size=(count, len(self._columns)))
        return self._columns[np.arange(len(self._columns)), places].reshape((count, *self.shape))


def _density(draws: np.ndarray, values: np.ndarray) -> np.ndarray:
    if draws[0] == draws[-1]:
        return np.where(values == draws[0], np.inf, 0.0)
    return gaussian_kde(draws)(values)
