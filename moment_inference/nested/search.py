"""Conditional Gaussians at many points, each search beginning where the points before point to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import numpy as np

from moment_inference.nested.conditional import Conditional, Conditioning, Start
from moment_inference.nested.exploration.mode import finite
from moment_inference.nested.given.fieldless import WithoutField

NEIGHBOURS = 2  # as many points a fit's term
AMPLIFIED = 3.0  # most that a fit may amplify deviations of its points: else it extrapolates
RIDGE = 1e-9
SMALLEST = 1e-300
NEGLIGIBLE = 30.0  # nats below the best point from which a search may end early
KEPT = 2**26  # most numbers of moments


@dataclass(eq=False)
class Search:
    """Conditional Gaussians at points; the moments found are where further searches begin."""

    conditioning: Conditioning | WithoutField
    best: float = -np.inf
    _points: list[np.ndarray] = field(default_factory=list)
    _means: list[np.ndarray] = field(default_factory=list)
    _logs: list[np.ndarray] = field(default_factory=list)  # of the predictors' variances

    def evaluate(self, points: np.ndarray) -> np.ndarray:
        """Return log p(θ) + ELBO(θ) at points."""
        return self.at(points).log_density

    def best_of(self, candidates: np.ndarray) -> np.ndarray:
        """Return the candidate of the largest density, the first if all fail."""
        return candidates[int(np.argmax(finite(self.evaluate, candidates)))]

    def at(self, points: np.ndarray) -> Conditional:
        """Return the conditional Gaussians at points."""
        found = self.conditioning.at(points, self._start(points), self.best - NEGLIGIBLE)
        density = found.log_density
        self.best = max(self.best, np.max(density, initial=-np.inf, where=np.isfinite(density)))
        for place in np.flatnonzero(density > self.best - NEGLIGIBLE):
            self._keep(points[place], found.mean[place], found.variance[place])
        return found

    def _keep(self, point: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
        while self._points and (len(self._points) + 1) * (mean.size + variance.size) > KEPT:
            for kept in (self._points, self._means, self._logs):
                kept.pop(0)
        self._points.append(point)
        self._means.append(mean)
        self._logs.append(np.log(np.maximum(variance, SMALLEST)))

    def _start(self, points: np.ndarray) -> Start | None:
        """Return moments at new points by those of the points nearest to each."""
        if not self._points:
            return None
        shares = interpolation(np.stack(self._points), points)
        mean, logs = shares @ np.stack(self._means), shares @ np.stack(self._logs)
        return Start(mean, np.exp(logs))


def interpolation(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return shares [w, k] of known points [k, h] in the value at each wanted one [w, h].

    They are those of a polynomial through the nearest points, of degree two, one or zero: the
    highest that does not extrapolate.
    """
    spread = known.std(0)
    scales = np.where(spread > 0, spread, 1.0)
    shares = np.zeros((len(wanted), len(known)))
    for row, point in zip(shares, wanted, strict=True):
        offsets = (known - point) / scales
        distances = np.square(offsets).sum(1)
        nearest = np.argsort(distances, kind="stable")
        for degree in (2, 1, 0) if known.shape[1] else (0,):
            terms = math.comb(known.shape[1] + degree, degree)
            chosen = nearest[: NEIGHBOURS * terms if degree else 1]
            if len(chosen) < terms:
                continue
            found = _fit(_basis(offsets[chosen], degree), distances[chosen])
            if np.abs(found).sum() <= AMPLIFIED:
                row[chosen] = found
                break
    return shares


def _fit(basis: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return shares of values in that of a polynomial at zero, close values weighing more."""
    weights = 1 / (distances / max(distances.max(), SMALLEST) + RIDGE)
    normal = (basis * weights[:, None]).T @ basis
    normal += RIDGE * np.trace(normal) / len(normal) * np.eye(len(normal))
    found = weights * (basis @ np.linalg.solve(normal, np.eye(len(normal))[0]))
    return found / found.sum()


def _basis(offsets: np.ndarray, degree: int) -> np.ndarray:
    """Return the monomials up to a degree of two, [k, terms]."""
    parts = [np.ones((len(offsets), 1)), offsets]
    if degree == 2:
        pairs = combinations_with_replacement(offsets.T, 2)
        parts.append(np.stack([one * other for one, other in pairs], 1))
    return np.concatenate(parts[: degree + 1], 1)
