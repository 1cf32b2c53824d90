"""Mixtures, with equal weights, of the predictive distributions of particles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, namespace, ndtr, safe_scale
from moment_calculus.numerics.distributions import empirical_quantile
from moment_calculus.predictions.marginals import (
    ClassMarginal,
    ContinuousMarginal,
    CountMarginal,
    Marginal,
    NormalMarginal,
    PredictiveMoments,
    VectorMarginal,
    edge_levels,
    no_entropy,
)
from moment_calculus.predictions.site import Axes, PredictedSite

PANELS = 512  # most panels between the quantiles of all particles


@dataclass(frozen=True)
class Particles:
    """The axis of the particles, which precedes the axes of an observation."""

    axes: int  # number of axes of an observation
    moments: PredictiveMoments  # of each particle, [particles, ...], in double precision

    def mean_of(self, array: Array) -> Array:
        """Return the mean over the particles of [particles, ...]; [...] stays as it is."""
        return namespace(array).mean(array, axis=0) if array.ndim > self.axes else array

    def mean(self, function: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """Return the mean over the particles of a function of observations."""

        def averaged(value: Array) -> Array:
            broadcast, axis = self._wide(value)
            result = function(broadcast)
            return namespace(result).mean(result, axis=axis)

        return averaged

    def log_mean(self, function: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """Return log of the mean over the particles of exp of a function."""

        def averaged(value: Array) -> Array:
            broadcast, axis = self._wide(value)
            return log_mean_exp(function(broadcast), axis=axis)

        return averaged

    def _wide(self, value: Array) -> tuple[Array, int]:
        """Insert an axis for the particles into observations; return both."""
        xp = namespace(value)
        missing = max(self.axes - value.ndim, 0)
        value = xp.reshape(value, (*(1,) * missing, *value.shape))
        axis = value.ndim - self.axes
        return xp.expand_dims(value, axis=axis), axis


def log_mean_exp(x: Array, *, axis: int = 0) -> Array:
    """Return log of the mean of eˣ over an axis, without overflow; −∞ of −∞."""
    xp = namespace(x)
    largest = xp.max(x, axis=axis, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
    total = xp.log(xp.mean(xp.exp(x - largest), axis=axis, keepdims=True))
    return xp.squeeze(largest + total, axis=axis)


def mixture_moments(moments: PredictiveMoments) -> PredictiveMoments:
    """Return a mixture's moments by the law of total variance; parts lead the axes."""
    xp = namespace(moments.mean)
    spread = xp.var(moments.mean, axis=0) + xp.mean(moments.epistemic, axis=0)
    mean, aleatoric = (xp.mean(part, axis=0) for part in (moments.mean, moments.aleatoric))
    return PredictiveMoments(mean, spread, aleatoric)


@singledispatch
def mixture_of(marginal: Marginal, particles: Particles) -> Marginal:
    """Return the predictive distribution of the mixture from the particles'."""
    return Marginal(marginal.name, marginal.family)


def _common_fields(marginal: Marginal, particles: Particles) -> dict[str, Any]:
    """Return the expected entropy and the quantiles of means, which every mixture has."""

    def expected_entropy() -> Array:
        return particles.mean_of(_entropy(marginal, particles.moments))

    def mean_quantile(levels: np.ndarray) -> Array:
        return empirical_quantile(particles.moments.mean, levels)

    return {"expected_entropy": expected_entropy, "mean_quantile": mean_quantile}


def _entropy(marginal: Marginal, moments: PredictiveMoments) -> Array:
    """Return the entropies of particles, whose parameters are certain."""
    try:
        return marginal.expected_conditional_entropy(moments)
    except UnsupportedMoments:
        return marginal.entropy(moments)


@mixture_of.register
def _(marginal: ClassMarginal, particles: Particles) -> Marginal:
    fields = _common_fields(marginal, particles)
    return ClassMarginal(marginal.name, marginal.family, None, marginal.ordered, **fields)


@mixture_of.register
def _(marginal: CountMarginal, particles: Particles) -> Marginal:
    success = marginal.success
    return replace(
        marginal,
        log_prob=particles.log_mean(marginal.log_prob),
        expected_surprisal=particles.mean(marginal.expected_surprisal),
        bounds=_outermost(marginal.bounds, particles),
        success=None if success is None else lambda: particles.mean_of(success()),
        random_parameters=0,
        cumulative=particles.mean(marginal.cumulative) if marginal.cumulative else None,
        **_common_fields(marginal, particles),
    )


@dataclass(frozen=True)
class MixtureMarginal(ContinuousMarginal):
    """A mixture of continuous distributions."""

    part_edges: Callable[[], Array] | None = None  # of the parts, [edges, particles, ...]

    def edges(self, moments: PredictiveMoments) -> Array:
        """Return the panel ends of all parts, so that narrow parts are resolved."""
        assert self.part_edges is not None
        result = self.part_edges()
        xp = namespace(result)
        ordered = xp.sort(xp.reshape(result, (-1, *result.shape[2:])), axis=0)
        step = -(-(ordered.shape[0] - 1) // PANELS)
        return xp.concat([ordered[:-1:step, ...], ordered[-1:, ...]], axis=0)


@mixture_of.register
def _(marginal: ContinuousMarginal, particles: Particles) -> Marginal:
    return MixtureMarginal(
        marginal.name,
        marginal.family,
        particles.mean(marginal.cumulative),
        particles.log_mean(marginal.log_prob),
        _outermost(marginal.bounds, particles),
        lambda: marginal.edges(particles.moments),
        **_common_fields(marginal, particles),
    )


@mixture_of.register
def _(marginal: NormalMarginal, particles: Particles) -> Marginal:
    moments = particles.moments
    mean, scale = moments.mean, safe_scale(moments.variance)
    xp = namespace(mean)

    def cumulative(value: Array) -> Array:
        return ndtr((value - mean) / scale)

    def log_prob(value: Array) -> Array:
        return -0.5 * (math.log(2 * math.pi) + ((value - mean) / scale) ** 2) - xp.log(scale)

    return MixtureMarginal(
        marginal.name,
        marginal.family,
        particles.mean(cumulative),
        particles.log_mean(log_prob),
        part_edges=lambda: marginal.quantile(edge_levels(mean), moments),
        **_common_fields(marginal, particles),
    )


@dataclass(frozen=True)
class MixedVectorMarginal(MixtureMarginal):
    """A mixture of vectors, of which only the marginals of components are known."""

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Raise UnsupportedMoments: the joint entropy of all components is not known."""
        raise no_entropy(self.name, f"mixture of {self.family}s")


@mixture_of.register
def _(marginal: VectorMarginal, particles: Particles) -> Marginal:
    alone = mixture_of.dispatch(NormalMarginal)(marginal, particles)
    return MixedVectorMarginal(**vars(alone))


def _outermost(bounds: tuple[Any, Any], particles: Particles) -> tuple[Any, Any]:
    """Return bounds that hold for all particles."""
    low, high = bounds
    has_particles = [getattr(bound, "ndim", 0) > particles.axes for bound in bounds]
    low = namespace(low).min(low, axis=0) if has_particles[0] else low
    return low, namespace(high).max(high, axis=0) if has_particles[1] else high


class SampledSite(PredictedSite):
    """Prediction of a site by a mixture, with equal weights, of predictions ``parts`` by particles.

    The particles are the leading axis of ``parts``. The variance of their means counts as
    epistemic, the mean of their aleatoric variances as aleatoric (law of total variance).
    """

    def __init__(self, parts: PredictedSite) -> None:
        (_, *elements), event, summed = parts._axes
        axes = Axes(tuple(elements), event, summed)
        with parts._context():
            given = parts._moments()
            moments = PredictiveMoments(*map(parts._like_mean, mixture_moments(given)))
        particles = Particles(len(elements) + event, given)
        self.parts = parts
        log_density = particles.log_mean(parts._log_density)
        marginal = mixture_of(parts._marginal, particles)
        super().__init__(
            parts.name, parts.distribution, moments, log_density, marginal, axes, parts._context
        )


def not_of_particles(name: str, family: str, shape: tuple[int, ...]) -> ValueError:
    """Return the error for no particle axis, or for random parameters."""
    return ValueError(
        f"site '{name}': a SampledPrediction is of certain parameters with the particles on the "
        f"leading axis of the batch shape; this {family} has the batch shape {tuple(shape)}, or "
        "random parameters; use Prediction for these"
    )
