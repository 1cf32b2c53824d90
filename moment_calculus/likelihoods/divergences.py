"""Entropies and expected log priors of Gaussian latent sites."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace


def gaussian_entropy(variance: Array) -> Array:
    """Entropy ½ log(2πe v) of every component.

    Args:
        variance: of any shape.
    """
    return 0.5 * (1 + math.log(2 * math.pi) + namespace(variance).log(variance))


def gaussian_kl(mean: Array, variance: Array, prior_mean: Array, prior_variance: Array) -> Array:
    """KL(N(m, v) ‖ N(m₀, v₀)) of every component.

    Args:
        mean: posterior mean.
        variance: posterior variance.
        prior_mean: broadcastable with ``mean``.
        prior_variance: broadcastable with ``mean``.
    """
    deviation = mean - prior_mean
    spread = (variance + deviation * deviation) / prior_variance
    return 0.5 * (spread - 1 - namespace(variance).log(variance / prior_variance))


def empirical_bayes_variance(
    mean: Array, variance: Array, alpha: Any, beta: Any, axes: tuple[int, ...]
) -> Array:
    """Prior variance λ* = (Q + 2β)/(D + 2α + 2) of a set of D weights, Q = Σ(v + m²).

    Args:
        mean: posterior means.
        variance: posterior variances.
        alpha: shape of the inverse-Gamma hyperprior, a number or an array that broadcasts with
            the means once the axes have size one.
        beta: scale of the inverse-Gamma hyperprior, likewise.
        axes: the axes that make up one set; they are kept with size one.

    Source: Wu et al. 2019, eqs. 11-13.
    """
    xp = namespace(mean)
    total = xp.sum(variance + mean * mean, axis=axes, keepdims=True)
    count = math.prod(mean.shape[axis] for axis in axes)
    return (total + 2 * beta) / (count + 2 * alpha + 2)


def empirical_bayes_log_prior(
    mean: Array, variance: Array, alpha: Any, beta: Any, axes: tuple[int, ...]
) -> Array:
    """E_q[log N(w; 0, λ*)] summed over one set of weights, λ* being differentiated through.

    Args:
        mean: as of :func:`empirical_bayes_variance`, and so the others.
        variance: posterior variances.
        alpha: of the hyperprior.
        beta: of the hyperprior.
        axes: the axes that make up one set.

    Source: Wu et al. 2019, eq. 13.
    """
    xp = namespace(mean)
    prior = empirical_bayes_variance(mean, variance, alpha, beta, axes)
    squared = (variance + mean * mean) / prior
    return xp.sum(-0.5 * (math.log(2 * math.pi) + xp.log(prior) + squared), axis=axes)


def student_t_log_prob(
    squared_norm: Array, count: int, alpha: Any, beta: Any, log_gamma: Callable[[Any], Any]
) -> Array:
    """Log density of D weights whose variance has an inverse-Gamma(α, β) hyperprior.

    The marginal is a multivariate Student-t with 2α degrees of freedom and squared scale β/α.

    Args:
        squared_norm: Σ w² over the set.
        count: number D of weights in the set.
        alpha: shape of the hyperprior, a number or an array for several sets.
        beta: scale of the hyperprior, likewise.
        log_gamma: log Γ of what ``alpha`` is.
    """
    half = alpha + 0.5 * count
    log_beta = math.log(beta) if isinstance(beta, int | float) else namespace(beta).log(beta)
    constant = log_gamma(half) - log_gamma(alpha) - 0.5 * count * (math.log(2 * math.pi) + log_beta)
    return constant - half * namespace(squared_norm).log1p(squared_norm / (2 * beta))
