"""The Gaussian of a field given hyperparameters, at many points of them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from moment_inference.nested.factors import Factors, factorise
from moment_inference.nested.host import ConditionalModel
from moment_inference.nested.probes import Probed
from moment_inference.nested.sparse import Sparse

STEPS = 60
HALVINGS = 25
DECREMENT = 1e-9  # nats that a step promises, at the end
VARIANCE = 1e-5  # relative change of the predictors' variances, at the end


@dataclass(frozen=True, eq=False)
class Conditional:
    """The optimal Gaussians of the field, q(x | θ), at points θ."""

    theta: np.ndarray  # [g, h]
    log_prior: np.ndarray  # of the points, [g]
    elbo: np.ndarray  # of the field given each point, [g]; nan where there is none
    mean: np.ndarray  # [g, d]
    factors: Factors  # of the precisions
    design: Sparse  # of the predictors, [g, n, d]
    predictor: np.ndarray  # means of the predictors, [g, n]
    variance: np.ndarray  # of the predictors, [g, n]

    @property
    def log_density(self) -> np.ndarray:
        """Return log p(θ) + ELBO(θ), [g]."""
        return self.log_prior + self.elbo


@dataclass(frozen=True, eq=False)
class Conditioning:
    """A model whose field is optimised given hyperparameters."""

    model: ConditionalModel
    start: np.ndarray  # a point, [h]

    @cached_property
    def _points(self) -> np.ndarray:
        """Return two points that show which elements depend on each other."""
        return np.stack([self.start, self.start + 0.37])

    @cached_property
    def precision(self) -> Probed:
        """Return the precision of the quadratic part as a function of the points."""
        return Probed.of(self.model.curvature, self._points, self.model.size)

    @cached_property
    def design(self) -> Probed:
        """Return the slopes of the predictors as a function of the points."""
        return Probed.of(self.model.slopes, self._points, self.model.size)

    def at(self, theta: np.ndarray, mean: np.ndarray | None = None) -> Conditional:
        """Return the optimal Gaussians at points, from means [d] or [g, d] of a neighbour."""
        program = _Program(self, theta)
        state = program.first(np.zeros(self.model.size) if mean is None else mean)
        for _ in range(STEPS):
            state, is_done = program.improved(state)
            if is_done.all():
                break
        elbo = np.where(is_done & state.factors.is_definite, state.elbo, np.nan)
        return Conditional(
            theta,
            self.model.log_prior(theta),
            elbo,
            state.mean,
            state.factors,
            program.design,
            program.predictor(state.mean),
            state.variance,
        )


@dataclass(frozen=True, eq=False)
class _State:
    mean: np.ndarray
    variance: np.ndarray  # of the predictors
    terms: np.ndarray  # E f, E f′ and E f″, [g, 3, n]
    elbo: np.ndarray  # −inf before the first step
    factors: Factors | None = None


class _Program:
    """The model at some points: quadratic part, design and likelihoods."""

    def __init__(self, conditioning: Conditioning, theta: np.ndarray) -> None:
        self.model, self.theta = conditioning.model, theta
        self.precision, self.design = (
            part.at(theta) for part in (conditioning.precision, conditioning.design)
        )
        self.constant, self.slope, self.offset = self.model.at_zero(theta)

    def predictor(self, mean: np.ndarray) -> np.ndarray:
        """Return the means of the predictors."""
        return self.offset + self.design.times(mean)

    def first(self, mean: np.ndarray) -> _State:
        """Return a state without variances."""
        mean = np.broadcast_to(mean, self.slope.shape)
        variance = np.zeros_like(self.offset)
        terms = self.model.expected(self.theta, self.predictor(mean), variance)
        return _State(mean, variance, terms, np.full(len(mean), -np.inf))

    def improved(self, state: _State) -> tuple[_State, np.ndarray]:
        """Return the state after a step, and where there is nothing left to gain."""
        weights = -state.terms[:, 2]
        factors = factorise(self.precision + self.design.gram(weights))
        if not factors.is_definite.all():
            factors = factorise(self.precision + self.design.gram(np.maximum(weights, 0)))
            weights = np.maximum(weights, 0)
        slope = self.slope - self.precision.times(state.mean)
        slope = slope + self.design.transposed_times(state.terms[:, 1])
        step = factors.solve(slope)
        variance = factors.variances(self.design)
        new = self._along(state, step, variance, factors, weights)
        decrement = (slope * step).sum(1)
        change = np.abs(variance - state.variance) / (variance + 1e-300)
        settled = change.max(1, initial=0) < VARIANCE
        return new, ((decrement < DECREMENT) & settled) | ~factors.is_definite

    def _along(
        self, state: _State, step: np.ndarray, variance: np.ndarray, factors: Factors, weights: np.ndarray
    ) -> _State:
        """Return the state after the longest step of which the ELBO rises."""
        length, best = np.ones(len(step)), state
        for _ in range(HALVINGS):
            mean = state.mean + length[:, None] * step
            terms = self.model.expected(self.theta, self.predictor(mean), variance)
            elbo = self._elbo(mean, terms, variance, factors, weights)
            worse = ~(elbo >= state.elbo - 1e-9 * (1 + np.abs(state.elbo))) & factors.is_definite
            best = _State(mean, variance, terms, elbo, factors)
            if not worse.any():
                break
            length = np.where(worse, length / 2, length)
        return best

    def _elbo(
        self,
        mean: np.ndarray,
        terms: np.ndarray,
        variance: np.ndarray,
        factors: Factors,
        weights: np.ndarray,
    ) -> np.ndarray:
        size = mean.shape[1]
        quadratic = (self.slope * mean).sum(1) - (mean * self.precision.times(mean)).sum(1) / 2
        trace = size - (weights * variance).sum(1)  # of the precision of the quadratic part by Σ
        entropy = (size * (1 + math.log(2 * math.pi)) - factors.log_determinant) / 2
        return self.constant + quadratic - trace / 2 + terms[:, 0].sum(1) + entropy
