"""What the log joint density has beyond that of the optimal Gaussian, as a sum over predictors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.given.host import ConditionalModel


@dataclass(frozen=True, eq=False)
class Remainder:
    """The terms r of log p(x, y | θ) − log q(x) = ELBO + Σ_i r_i(δ_i), η = E η + δ, at points.

    With w the weights of the predictors in the precision and v their variances,
    r = f(η) − E f − δ E f′ + ½ w (δ² − v): at the optimum all else has the slopes −E f′ and the
    precision that w leaves.
    """

    model: ConditionalModel
    theta: np.ndarray  # [g, h]
    predictor: np.ndarray  # E η, [g, n]
    variance: np.ndarray  # v, [g, n]
    weights: np.ndarray  # w, [g, n]

    @classmethod
    def of(cls, model: ConditionalModel, conditional: Conditional, points: np.ndarray) -> Remainder:
        """Return the terms at some of the points."""
        arrays = conditional.theta, conditional.predictor, conditional.variance, conditional.weights
        return cls(model, *(array[points] for array in arrays))

    def at(self, deviation: np.ndarray) -> np.ndarray:
        """Return r at deviations [g, m, n] of the predictors."""
        expected, slope = self._terms
        weights, variance = self.weights[:, None], self.variance[:, None]
        rest = self.model.log_likelihoods(self.theta, self.predictor[:, None] + deviation)
        rest -= expected + weights * variance / 2
        quadratic = weights / 2 * deviation
        quadratic -= slope
        quadratic *= deviation
        rest += quadratic
        return rest

    @cached_property
    def _terms(self) -> tuple[np.ndarray, np.ndarray]:
        """Return E f and E f′, [g, 1, n] each."""
        terms = self.model.expected(self.theta, self.predictor, self.variance)
        return terms[:, :1], terms[:, 1:2]
