"""Skew normal densities with given means, variances and third central moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr, owens_t

LARGEST_SKEWNESS = 0.995  # of a skew normal; it has none above .99527
OF_HALF_NORMAL = ((4 - np.pi) / 2) ** (2 / 3)  # that part of its skewness which delta multiplies


@dataclass(frozen=True)
class SkewNormal:
    """Densities 2 φ(z) Φ(α z) / ω with z = (x - ξ) / ω, elementwise.

    Source: Azzalini 1985, A class of distributions which includes the normal ones.
    """

    location: np.ndarray  # ξ
    scale: np.ndarray  # ω
    shape: np.ndarray  # α

    @classmethod
    def of_moments(cls, mean: np.ndarray, variance: np.ndarray, third: np.ndarray) -> SkewNormal:
        """Return the densities with these moments; skewness is cut at what the family has."""
        skewness = third / variance**1.5
        size = np.minimum(np.abs(skewness), LARGEST_SKEWNESS) ** (2 / 3)
        squared = np.pi / 2 * size / (size + OF_HALF_NORMAL)  # δ²
        delta = np.sign(skewness) * np.sqrt(squared)
        scale = np.sqrt(variance / (1 - 2 * squared / np.pi))
        location = mean - scale * delta * np.sqrt(2 / np.pi)
        return cls(location, scale, delta / np.sqrt(1 - squared))

    def log_density(self, values: np.ndarray) -> np.ndarray:
        """Return log densities."""
        standard = (values - self.location) / self.scale
        gauss = -0.5 * standard**2 - 0.5 * np.log(2 * np.pi) - np.log(self.scale)
        return gauss + np.log(2) + log_ndtr(self.shape * standard)

    def cdf(self, values: np.ndarray) -> np.ndarray:
        """Return the probabilities of smaller values."""
        standard = (values - self.location) / self.scale
        gauss = ndtr(standard)
        if not np.any(self.shape):
            return gauss
        return np.clip(gauss - 2 * owens_t(standard, self.shape), 0.0, 1.0)

    def sample(self, generator: np.random.Generator) -> np.ndarray:
        """Return one draw of each: δ |u| + sqrt(1 - δ²) v of two standard normal draws."""
        delta = self.shape / np.sqrt(1 + self.shape**2)
        shape = np.shape(self.location)
        half, other = np.abs(generator.standard_normal(shape)), generator.standard_normal(shape)
        return self.location + self.scale * (delta * half + np.sqrt(1 - delta**2) * other)

    def taken(self, rows: np.ndarray) -> SkewNormal:
        """Return the densities [count, *shape] of chosen rows: rows [count, *shape]."""

        def picked(array: np.ndarray) -> np.ndarray:
            return np.take_along_axis(array, rows, axis=0)

        return SkewNormal(picked(self.location), picked(self.scale), picked(self.shape))

    def part(self, elements: slice) -> SkewNormal:
        """Return the densities of some columns."""
        return SkewNormal(
            self.location[:, elements], self.scale[:, elements], self.shape[:, elements]
        )
