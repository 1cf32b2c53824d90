"""What a front end supplies to nested inference: a model given its hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np


class ConditionalModel(Protocol):
    """A model as a function of points [g, h] of its hyperparameters, on the unconstrained space.

    Given them, its other latent sites are the field x [d]. The log joint density is log p of
    the hyperparameters, a quadratic function of x, and log likelihoods f of predictors η [n],
    which are linear in x.
    """

    @property
    def size(self) -> int:
        """The number of coordinates of the field."""

    def prior_quartiles(self) -> np.ndarray:
        """Quartiles of the hyperparameters' priors, unconstrained, each given medians: [3, h]."""

    def densities(self, theta: np.ndarray, x: np.ndarray) -> Mapping[str, np.ndarray]:
        """The log densities of all sites at values [g, d] of the field, [g] each."""

    def log_prior(self, theta: np.ndarray) -> np.ndarray:
        """The log density of the hyperparameters on the unconstrained space, [g]."""

    def predictors(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The means of the predictors at means x [g, d] of the field, [g, n]."""

    def at_zero(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The quadratic part at x = 0 [g], its slope there [g, d], and the predictors [g, n]."""

    def curvature(self, theta: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Minus the Hessian of the quadratic part, times directions [k, d]: [g, k, d]."""

    def slopes(self, theta: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """The slopes of the predictors along directions [k, d], [g, k, n]."""

    def expected(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E f, E f′ and E f″ for η_i ~ N(mean, variance), [g, 3, n]."""

    def higher(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """The expected third, fourth and fifth derivatives of f, [g, 3, n]."""

    def log_likelihoods(self, theta: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """The log likelihoods f at predictors [g, m, n], as many at each point: [g, m, n]."""
