"""The Gaussian of a field given hyperparameters, at many points of them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np

from moment_inference.nested.factors import Factors, factorise
from moment_inference.nested.given.host import ConditionalModel
from moment_inference.nested.given.probes import Probed
from moment_inference.nested.sparse import Sparse

STEPS = 30
SHARES = -0.5, 0.8  # of the weights before in extrapolated ones, at least and at most
LEAST_WEIGHT = 0.1  # of extrapolated weights, as a share of those of either step
EARLIEST, HOPE = 3, 3.0  # steps before a search below the floor ends; gains of the last one to come
REACH = 4.0  # most that a step moves a predictor
GAIN = 1e-6  # nats of a whole step, at the end: ten times as much is left where steps are slow
SMALL_GAIN = 1e-4  # nats, of a search that ends before
DECREMENT = 1e-7  # nats that a step promises, at the end
VARIANCE = 1e-3  # relative change of the predictors' variances, at the end


@dataclass(frozen=True, eq=False)
class Conditional:
    """The optimal Gaussians of the field, q(x | θ), at points θ."""

    theta: np.ndarray  # [g, h]
    log_prior: np.ndarray  # of the points, [g]
    elbo: np.ndarray  # of the field given each point, [g]; nan where there is none
    mean: np.ndarray  # [g, d]
    prior: Sparse  # precisions of the quadratic part, [g, d, d]
    design: Sparse  # of the predictors, [g, n, d]
    predictor: np.ndarray  # means of the predictors, [g, n]
    variance: np.ndarray  # of the predictors, [g, n]
    weights: np.ndarray  # of the predictors in the precisions, [g, n]

    @property
    def log_density(self) -> np.ndarray:
        """Return log p(θ) + ELBO(θ), [g]."""
        return self.log_prior + self.elbo

    @cached_property
    def precision(self) -> Sparse:
        """Return the precisions, [g, d, d]."""
        return self.prior + self.design.gram(self.weights)

    @cached_property
    def factors(self) -> Factors:
        """Return the factors of the precisions."""
        return factorise(self.precision)


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
        size = self.model.size
        return Probed.of(self.model.curvature, self._points, (size, size))

    @cached_property
    def design(self) -> Probed:
        """Return the slopes of the predictors as a function of the points."""
        count = self.model.at_zero(self._points)[2].shape[1]
        return Probed.of(self.model.slopes, self._points, (count, self.model.size))

    def at(
        self, theta: np.ndarray, start: Start | None = None, floor: float = -np.inf
    ) -> Conditional:
        """Return the optimal Gaussians at points, from the moments of a neighbour.

        Where log p(θ) + ELBO(θ) stays below a floor, a search ends early.
        """
        given = _Given.of(self, theta)
        state = given.first(start)
        active = np.arange(len(theta))
        for step in range(STEPS):
            part, is_done = given.take(active).improved(state.take(active))
            if step + 1 >= EARLIEST:
                is_done |= given.log_prior[active] + part.elbo + HOPE * part.gain < floor
            state = state.with_part(active, part)
            active = active[~is_done]
            if not len(active):
                break
        return given.finished(state, active)


class Start(NamedTuple):
    """Moments from which a search begins."""

    mean: np.ndarray  # of the field, [g, d]
    variance: np.ndarray  # of the predictors, [g, n]


@dataclass(frozen=True)
class _State:
    """Where a search is at each point, and the terms there."""

    mean: np.ndarray  # [g, d]
    variance: np.ndarray  # of the predictors, [g, n]
    weights: np.ndarray  # of the predictors in the precision, [g, n]
    terms: np.ndarray  # E f, E f′ and E f″, [g, 3, n]
    elbo: np.ndarray  # −inf before the first step, [g]
    length: np.ndarray  # of the next step, [g]
    gain: np.ndarray  # of the last step, nats, [g]
    wanted: np.ndarray  # weights by the terms before the last step, [g, n]
    missed: np.ndarray  # what the weights there were off, nan before the second step, [g, n]

    def next_weights(self) -> np.ndarray:
        """Return −E f″, extrapolated from the last two steps: the weights move v, and v them."""
        wanted = -self.terms[:, 2]
        missed = wanted - self.weights
        change = (missed - self.missed) * self.variance
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (change * missed * self.variance).sum(1) / (change * change).sum(1)
        share = np.where((self.length == 1) & np.isfinite(share), share, 0.0).clip(*SHARES)
        found = wanted - share[:, None] * (wanted - self.wanted)
        least = LEAST_WEIGHT * np.minimum(wanted, self.wanted)
        return np.where(least > 0, np.maximum(found, least), found)

    def take(self, points: np.ndarray) -> _State:
        """Return the state at some points."""
        return _State(*(getattr(self, each.name)[points] for each in fields(self)))

    def with_part(self, points: np.ndarray, part: _State) -> _State:
        """Return the state with another one at some points."""
        arrays = []
        for each in fields(self):
            array = getattr(self, each.name).copy()
            array[points] = getattr(part, each.name)
            arrays.append(array)
        return _State(*arrays)


@dataclass(frozen=True, eq=False)
class _Given:
    """The model at some points: its quadratic part, design and likelihoods."""

    model: ConditionalModel
    theta: np.ndarray
    log_prior: np.ndarray  # of the points, [g]
    precision: Sparse
    design: Sparse
    constant: np.ndarray  # of the quadratic part, [g]
    slope: np.ndarray  # of the same at zero, [g, d]
    offset: np.ndarray  # of the predictors, [g, n]

    @classmethod
    def of(cls, conditioning: Conditioning, theta: np.ndarray) -> _Given:
        """Return the model at points."""
        model = conditioning.model
        precision, design = conditioning.precision.at(theta), conditioning.design.at(theta)
        log_prior = model.log_prior(theta)
        return cls(model, theta, log_prior, precision, design, *model.at_zero(theta))

    def take(self, points: np.ndarray) -> _Given:
        """Return the model at some of the points."""
        if len(points) == len(self.theta):
            return self
        matrices = self.precision.take(points), self.design.take(points)
        arrays = (part[points] for part in (self.constant, self.slope, self.offset))
        own = self.theta[points], self.log_prior[points]
        return _Given(self.model, *own, *matrices, *arrays)

    def predictor(self, mean: np.ndarray) -> np.ndarray:
        """Return the means of the predictors."""
        return self.offset + self.design.times(mean)

    def first(self, start: Start | None) -> _State:
        """Return where a search begins."""
        count, size = self.slope.shape
        if start is None:
            start = Start(np.zeros((count, size)), np.zeros_like(self.offset))
        mean, variance = start
        terms = self.model.expected(self.theta, self.predictor(mean), variance)
        elbo, length, gain = np.full(count, -np.inf), np.ones(count), np.full(count, np.inf)
        wanted = -terms[:, 2]
        missed = np.full_like(wanted, np.nan)
        return _State(mean, variance, wanted, terms, elbo, length, gain, wanted, missed)

    def improved(self, state: _State) -> tuple[_State, np.ndarray]:
        """Return the state after a step, and where there is nothing left to gain."""
        length = state.length[:, None]
        weights = (1 - length) * state.weights + length * state.next_weights()
        factors = factorise(self.precision + self.design.gram(weights))
        slope = self.slope - self.precision.times(state.mean)
        slope = slope + self.design.transposed_times(state.terms[:, 1])
        step = factors.solve(slope)
        move = np.abs(self.design.times(step)).max(1, initial=0)
        step_length = np.minimum(state.length, REACH / np.maximum(move, 1e-300))
        mean = state.mean + step_length[:, None] * step
        variance = factors.variances(self.design)
        terms = self.model.expected(self.theta, self.predictor(mean), variance)
        elbo = self.elbo(mean, variance, weights, terms, factors)
        rises = elbo >= state.elbo - 1e-9 * np.abs(elbo)
        new_length = np.where(rises, np.minimum(1, 2 * state.length), state.length / 2)
        change = np.abs(variance - state.variance) / (variance + 1e-300)
        settled = (change.max(1, initial=0) < VARIANCE) & ((slope * step).sum(1) < DECREMENT)
        with np.errstate(invalid="ignore"):  # where neither has an ELBO
            gain = np.abs(elbo - state.elbo)
        settled |= (gain < GAIN) & (step_length == 1)
        wanted = -state.terms[:, 2]
        missed = np.where(np.isfinite(state.gain)[:, None], wanted - state.weights, np.nan)
        new = _State(mean, variance, weights, terms, elbo, new_length, gain, wanted, missed)
        return new, settled | ~np.isfinite(elbo)

    def elbo(
        self,
        mean: np.ndarray,
        variance: np.ndarray,
        weights: np.ndarray,
        terms: np.ndarray,
        factors: Factors,
    ) -> np.ndarray:
        """Return the ELBO of the field at each point; nan where a precision is indefinite."""
        size = mean.shape[1]
        quadratic = (self.slope * mean).sum(1) - (mean * self.precision.times(mean)).sum(1) / 2
        trace = size - (weights * variance).sum(1)  # of the quadratic part's precision by Σ
        entropy = (size * (1 + math.log(2 * math.pi)) - factors.log_determinant) / 2
        return self.constant + quadratic - trace / 2 + terms[:, 0].sum(1) + entropy

    def finished(self, state: _State, active: np.ndarray) -> Conditional:
        """Return the Gaussians; without an ELBO where a search was active and far from its end."""
        elbo = state.elbo.copy()
        elbo[active[state.gain[active] > SMALL_GAIN]] = np.nan
        return Conditional(
            self.theta,
            self.log_prior,
            elbo,
            state.mean,
            self.precision,
            self.design,
            self.predictor(state.mean),
            state.variance,
            state.weights,
        )
