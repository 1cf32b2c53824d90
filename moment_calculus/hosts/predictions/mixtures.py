"""Predictions by particles: mixtures, with equal weights, of what each of them predicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np

from moment_calculus.hosts.predictions import wording
from moment_calculus.hosts.predictions.discrete import ClassMarginal, CountMarginal
from moment_calculus.hosts.predictions.marginals import (
    ContinuousMarginal,
    Marginal,
    NormalMarginal,
    PredictiveMoments,
    VectorMarginal,
    edge_levels,
)
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.quantiles import empirical_quantile
from moment_calculus.numerics.special import namespace, ndtr, safe_scale
from moment_calculus.refusals.errors import UnsupportedMoments

PANELS = 512  # at most, between quantiles of all particles


@dataclass(frozen=True)
class Particles:
    """The axis of the particles, before those of an observation.

    Args:
        axes: how many axes an observation has.
        moments: of what every particle predicts, [particles, ...], in double precision.
    """

    axes: int
    moments: PredictiveMoments

    def mean_of(self, array: Array) -> Array:
        """Mean over the particles of an array; itself where it has no axis of them.

        Args:
            array: [particles, ...] or [...].
        """
        return namespace(array).mean(array, axis=0) if array.ndim > self.axes else array

    def mean(self, function: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """Mean over the particles of a function of observations.

        Args:
            function: from observations [..., particles, ...] to numbers.
        """

        def averaged(value: Array) -> Array:
            wide, axis = self._wide(value)
            found = function(wide)
            return namespace(found).mean(found, axis=axis)

        return averaged

    def log_mean(self, function: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """log of the mean over the particles of the exponential of a function of observations.

        Args:
            function: from observations [..., particles, ...] to logarithms.
        """

        def averaged(value: Array) -> Array:
            wide, axis = self._wide(value)
            return log_mean_exp(function(wide), axis=axis)

        return averaged

    def _wide(self, value: Array) -> tuple[Array, int]:
        """Observations with an axis for the particles, and which it is."""
        xp = namespace(value)
        missing = max(self.axes - value.ndim, 0)
        value = xp.reshape(value, (*(1,) * missing, *value.shape))
        axis = value.ndim - self.axes
        return xp.expand_dims(value, axis=axis), axis


def log_mean_exp(x: Array, *, axis: int = 0) -> Array:
    """log of the mean of eˣ over one axis, without overflow; −∞ where all are.

    Args:
        x: [...].
        axis: the axis.
    """
    xp = namespace(x)
    largest = xp.max(x, axis=axis, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
    total = xp.log(xp.mean(xp.exp(x - largest), axis=axis, keepdims=True))
    return xp.squeeze(largest + total, axis=axis)


def mixture_moments(moments: PredictiveMoments) -> PredictiveMoments:
    """Moments of a mixture: the variance of the means of its parts is the epistemic one.

    Args:
        moments: of the parts, on the leading axis.

    Source: the law of total variance.
    """
    xp = namespace(moments.mean)
    spread = xp.var(moments.mean, axis=0) + xp.mean(moments.epistemic, axis=0)
    mean, aleatoric = (xp.mean(part, axis=0) for part in (moments.mean, moments.aleatoric))
    return PredictiveMoments(mean, spread, aleatoric)


@singledispatch
def mixed(marginal: Marginal, particles: Particles) -> Marginal:
    """What is known of the mixture.

    Args:
        marginal: what is known of what every particle predicts.
        particles: their axis.
    """
    return Marginal(marginal.name, marginal.family)


def _known(marginal: Marginal, particles: Particles) -> dict[str, Any]:
    """What every kind of mixture knows."""

    def expected_entropy() -> Array:
        return particles.mean_of(_entropy(marginal, particles.moments))

    def mean_quantile(levels: np.ndarray) -> Array:
        return empirical_quantile(particles.moments.mean, levels)

    return {"expected_entropy": expected_entropy, "mean_quantile": mean_quantile}


def _entropy(marginal: Marginal, moments: PredictiveMoments) -> Array:
    """Entropies of what particles predict, which are certain of their parameters."""
    try:
        return marginal.given_parameters(moments)
    except UnsupportedMoments:
        return marginal.entropy(moments)


@mixed.register
def _(marginal: ClassMarginal, particles: Particles) -> Marginal:
    known = _known(marginal, particles)
    return ClassMarginal(marginal.name, marginal.family, None, marginal.ordered, **known)


@mixed.register
def _(marginal: CountMarginal, particles: Particles) -> Marginal:
    success = marginal.success
    return replace(
        marginal,
        log_prob=particles.log_mean(marginal.log_prob),
        expected_surprisal=particles.mean(marginal.expected_surprisal),
        bounds=_outermost(marginal.bounds, particles),
        success=None if success is None else lambda: particles.mean_of(success()),
        random=0,
        **_known(marginal, particles),
    )


@dataclass(frozen=True)
class MixtureMarginal(ContinuousMarginal):
    """A mixture of continuous distributions.

    Args:
        parts: gives quantiles of its parts, [edges, particles, ...].
    """

    parts: Callable[[], Array] | None = None

    def edges(self, moments: PredictiveMoments) -> Array:
        """Those of all parts together, so that narrow ones are seen."""
        assert self.parts is not None
        found = self.parts()
        xp = namespace(found)
        ordered = xp.sort(xp.reshape(found, (-1, *found.shape[2:])), axis=0)
        step = -(-(ordered.shape[0] - 1) // PANELS)
        return xp.concat([ordered[:-1:step, ...], ordered[-1:, ...]], axis=0)


@mixed.register
def _(marginal: ContinuousMarginal, particles: Particles) -> Marginal:
    return MixtureMarginal(
        marginal.name,
        marginal.family,
        particles.mean(marginal.cumulative),
        particles.log_mean(marginal.log_prob),
        _outermost(marginal.bounds, particles),
        lambda: marginal.edges(particles.moments),
        **_known(marginal, particles),
    )


@mixed.register
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
        parts=lambda: marginal.quantile(edge_levels(mean), moments),
        **_known(marginal, particles),
    )


@dataclass(frozen=True)
class MixedVectorMarginal(MixtureMarginal):
    """A mixture of vectors, whose components are known each on its own."""

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Not known of all components together."""
        raise wording.no_entropy(self.name, f"mixture of {self.family}s")


@mixed.register
def _(marginal: VectorMarginal, particles: Particles) -> Marginal:
    alone = mixed.dispatch(NormalMarginal)(marginal, particles)
    return MixedVectorMarginal(**vars(alone))


def _outermost(bounds: tuple[Any, Any], particles: Particles) -> tuple[Any, Any]:
    """Bounds that hold for all particles."""
    low, high = bounds
    many = [getattr(bound, "ndim", 0) > particles.axes for bound in bounds]
    low = namespace(low).min(low, axis=0) if many[0] else low
    return low, namespace(high).max(high, axis=0) if many[1] else high
