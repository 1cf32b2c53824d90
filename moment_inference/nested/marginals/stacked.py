"""The marginals of a hyperparameter with several elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from moment_inference.nested.marginals.site import Marginal


class StackedMarginal(Marginal):
    """Marginals of scalars as those of the elements of one site."""

    def __init__(self, parts: Sequence[Marginal], shape: tuple[int, ...]) -> None:
        self.parts, self.shape = tuple(parts), shape

    def _each(self, function: Callable[[Marginal], np.ndarray]) -> np.ndarray:
        """Return a function of each element, [..., *shape]."""
        arrays = np.stack([np.asarray(function(part)) for part in self.parts], -1)
        return arrays.reshape(*arrays.shape[:-1], *self.shape)

    def _at(self, name: str, x: np.ndarray) -> np.ndarray:
        wide = np.broadcast_to(x, np.broadcast_shapes(np.shape(x), self.shape))
        lead = wide.shape[: wide.ndim - len(self.shape)]
        columns = np.moveaxis(wide.reshape(*lead, -1), -1, 0)
        found = [getattr(part, name)(c) for part, c in zip(self.parts, columns, strict=True)]
        return np.stack(found, -1).reshape(wide.shape)

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return densities of values that broadcast against the site's shape."""
        return self._at("pdf", x)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of smaller values, which broadcast against the site's shape."""
        return self._at("cdf", x)

    def quantile(self, p: float | np.ndarray) -> np.ndarray:
        """Return the quantiles of each element, [..., *shape]."""
        return self._each(lambda part: part.quantile(p))

    @property
    def mean(self) -> np.ndarray:
        """Return the means."""
        return self._each(lambda part: part.mean)

    @property
    def variance(self) -> np.ndarray:
        """Return the variances."""
        return self._each(lambda part: part.variance)

    @property
    def skewness(self) -> np.ndarray:
        """Return the skewness of each element."""
        return self._each(lambda part: part.skewness)

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws, [count, *shape], of each element by itself."""
        return self._each(lambda part: part.sample(generator, count))
