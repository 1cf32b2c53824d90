"""Mean-field posteriors of generalised linear models, by SciPy alone."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import root

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
NOISE = 0.5  # of the linear model


def _normal(f, v, y):
    return (y - f) / NOISE**2, np.full_like(f, -0.5 / NOISE**2)


def _poisson(f, v, y):
    rate = np.exp(f + v / 2)
    return y - rate, -rate / 2


def _bernoulli(f, v, y):
    probability = 1 / (1 + np.exp(-f[:, None] - np.sqrt(v)[:, None] * NODES))
    slope = (probability * (1 - probability)) @ WEIGHTS
    return y - probability @ WEIGHTS, -slope / 2


SLOPES = {"normal": _normal, "poisson": _poisson, "bernoulli": _bernoulli}


@dataclass(frozen=True)
class Regression:
    """A regression with independent normal priors, and what may be changed of it.

    Args:
        kind: of the likelihood.
        x: covariates [n, k].
        y: outcomes [n].
        prior_loc: of every coefficient, [k].
        prior_scale: likewise.
        weights: of the data, [n].
        tilt: added to the log density for each unit of the coefficients, [k].
    """

    kind: str
    x: np.ndarray
    y: np.ndarray
    prior_loc: np.ndarray
    prior_scale: np.ndarray
    weights: np.ndarray
    tilt: np.ndarray

    def fitted(self):
        """Location and scale of the coefficients where the ELBO is stationary."""
        size = self.x.shape[1]
        found = root(self._slope, np.concatenate([np.zeros(size), np.full(size, -2.0)]), tol=1e-13)
        assert np.abs(self._slope(found.x)).max() < 1e-9
        return found.x[:size], np.exp(found.x[size:])

    def _slope(self, place):
        size = self.x.shape[1]
        loc, variance = place[:size], np.exp(2 * place[size:])
        f, v = self.x @ loc, self.x**2 @ variance
        by_mean, by_variance = SLOPES[self.kind](f, v, self.y)
        slope = self.x.T @ (self.weights * by_mean) - (loc - self.prior_loc) / self.prior_scale**2
        scales = 2 * (self.x**2).T @ (self.weights * by_variance) - 1 / self.prior_scale**2
        return np.concatenate([slope + self.tilt, variance * scales + 1])

    def changed(self, field, step):
        """Locations with one field changed by steps forth and back, as a derivative [k, ...].

        Args:
            field: its name.
            step: how far.
        """
        columns = []
        for place in range(len(getattr(self, field))):
            ends = []
            for sign in (1, -1):
                values = getattr(self, field).astype(float)
                values[place] += sign * step
                ends.append(replace(self, **{field: values}).fitted()[0])
            columns.append((ends[0] - ends[1]) / (2 * step))
        return np.stack(columns, -1)


def regression(kind, rows=40, seed=0):
    """A regression whose covariates are correlated."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 1.0]])
    f = x @ np.array([0.6, -0.4, 0.3])
    y = {
        "normal": lambda: f + NOISE * rng.normal(size=rows),
        "poisson": lambda: rng.poisson(np.exp(f)).astype(float),
        "bernoulli": lambda: (rng.random(rows) < 1 / (1 + np.exp(-f))).astype(float),
    }[kind]()
    loc, scale = np.array([0.1, 0.0, -0.2]), np.array([1.0, 2.0, 1.5])
    return Regression(kind, x, y, loc, scale, np.ones(rows), np.zeros(3))
