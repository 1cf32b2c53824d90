"""Entropies and expected log priors of Gaussians, or functions of a Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from moment_calculus.functions.combinators import Scaled
from moment_calculus.functions.table import Exp, Sigmoid, Softplus
from moment_calculus.likelihoods.links import expected_log_sigmoids
from moment_calculus.numerics.arrays import Array, constants, namespace
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.values import Deferred
from moment_calculus.values.deferred import unscaled

SATURATED = 1e4  # argument at which the logistic function has reached its end
ROUNDING = 8  # tolerated units in the last place


def gaussian_entropy(variance: Array) -> Array:
    """Return the entropy ½ log(2πe v) of every component."""
    return 0.5 * (1 + math.log(2 * math.pi) + namespace(variance).log(variance))


def sum_trailing(terms: Array, count: int) -> Array:
    """Return the sums of terms over their trailing ``count`` axes."""
    if not count:
        return terms
    xp = namespace(terms)
    return xp.sum(xp.reshape(terms, (*terms.shape[:-count], -1)), axis=-1)


def gaussian_kl(mean: Array, variance: Array, prior_mean: Array, prior_variance: Array) -> Array:
    """Return KL(N(m, v) ‖ N(m₀, v₀)) of every component."""
    deviation = mean - prior_mean
    spread = (variance + deviation * deviation) / prior_variance
    return 0.5 * (spread - 1 - namespace(variance).log(variance / prior_variance))


def empirical_bayes_variance(
    mean: Array, variance: Array, alpha: Any, beta: Any, axes: tuple[int, ...]
) -> Array:
    """Return the prior variance λ* = (Q + 2β)/(D + 2α + 2) of D weights, Q = Σ(v + m²).

    α and β are shape and scale of its inverse-Gamma hyperprior (Wu et al. 2019, eqs.
    11-13).
    """
    xp = namespace(mean)
    total = xp.sum(variance + mean * mean, axis=axes, keepdims=True)
    count = math.prod(mean.shape[axis] for axis in axes)
    return (total + 2 * beta) / (count + 2 * alpha + 2)


def empirical_bayes_log_prior(
    mean: Array, variance: Array, alpha: Any, beta: Any, axes: tuple[int, ...]
) -> Array:
    """Return E_q[log N(w; 0, λ*)] summed over ``axes``; the gradient flows through λ*.

    Source: Wu et al. 2019, eq. 13.
    """
    xp = namespace(mean)
    prior = empirical_bayes_variance(mean, variance, alpha, beta, axes)
    squared = (variance + mean * mean) / prior
    return xp.sum(-0.5 * (math.log(2 * math.pi) + xp.log(prior) + squared), axis=axes)


def student_t_log_prob(
    squared_norm: Array, count: int, alpha: Any, beta: Any, log_gamma: Callable[[Any], Any]
) -> Array:
    """Return the log density of D weights with an inverse-Gamma(α, β) variance."""
    # The marginal is a multivariate Student-t with 2α degrees of freedom and squared
    # scale β/α.
    half = alpha + 0.5 * count
    log_beta = math.log(beta) if isinstance(beta, int | float) else namespace(beta).log(beta)
    constant = log_gamma(half) - log_gamma(alpha) - 0.5 * count * (math.log(2 * math.pi) + log_beta)
    return constant - half * namespace(squared_norm).log1p(squared_norm / (2 * beta))


def uniform_prior(value: Any, low: Any, high: Any) -> Array:
    """Return E[log Uniform(x; low, high)], x = an affine map of a Gaussian's logistic function.

    NotImplemented for any other value and for random ends; −∞ where x may leave the
    interval.
    """
    sigmoid = isinstance(value, Deferred) and isinstance(unscaled(value.function), Sigmoid)
    if not sigmoid or any(is_value(end) or hasattr(end, "gaussian") for end in (low, high)):
        return NotImplemented
    low, high = (_array(part, value) for part in (low, high))
    xp, far = namespace(low), SATURATED + 0.0 * value.base.mean
    first, last = value(-far), value(far)
    room = high - low + 0 * first
    slack = ROUNDING * float(xp.finfo(room.dtype).eps) * (xp.abs(low) + xp.abs(high))
    lowest, highest = xp.minimum(first, last), xp.maximum(first, last)
    inside = (lowest >= low - slack) & (highest <= high + slack)
    return xp.where(inside, -xp.log(room), -math.inf + 0 * room)


def expected_log_slope(value: Any) -> Array | None:
    """Return E[log |f′(x)|] of a value f(x) in closed form; None if there is none.

    log f′ is x for exp, log S(x) + log S(−x) for the logistic function S, log S(x) for
    softplus.
    """
    if not isinstance(value, Deferred):
        return None
    function, total = value.function, 0.0 * value.base.mean
    xp = namespace(total)
    while isinstance(function, Scaled):
        function, total = function.inner, total + xp.log(xp.abs(function.scale + 0.0 * total))
    if isinstance(function, Exp):
        return total + value.base.mean
    if not isinstance(function, Sigmoid | Softplus):
        return None
    one, zero = expected_log_sigmoids(value.base)
    return total + one + (zero if isinstance(function, Sigmoid) else 0.0)


def _array(parameter: Any, value: Deferred) -> Array:
    like = value.base.mean
    return constants(parameter, like) if isinstance(parameter, int | float) else parameter
