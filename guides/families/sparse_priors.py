"""Expected log densities of sparse priors, whose density has a pole at zero, under Gaussians.

The expectation of either is the solution of a one-dimensional problem that is fitted once,
in float64, at the first call.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import scipy

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.likelihoods.divergences import gaussian_entropy
from moment_calculus.numerics.arrays import Array, constants, namespace, polynomial
from moment_calculus.numerics.derivatives import PIECE, elementwise, with_checkpoint
from moment_calculus.numerics.normal import is_single_precision

# ----------------------------------------------------------------------------------------
# Log-uniform, p(w) = c/|w|. With t = m²/2v, KL(N(m, v) ‖ p) = ∫₀^∞ 1 − exp(−t sech² y) dy,
# whose derivative is Dawson's D(√t)/√t; c is the one for which it is zero at t = 0. It is
# t for small t and ½ log(4eᵞt) for large, so that a polynomial gives its difference from
# ½ log(1 + 4eᵞt) divided by u = t/(t + c).

_SLOPE = 4 * math.exp(np.euler_gamma)
_CENTRE = 2.0
_FARTHEST = 1e16  # standard deviations, where the square of a float32 is finite
_DEGREES = {True: 20, False: 40}  # of the polynomial, in single and in double precision


def log_uniform_divergence(mean: Array, variance: Array) -> Array:
    """Return KL(N(m, v) ‖ log-uniform) of every component, zero at m = 0.

    Its error is at most 1e-10 nat in float64 and 1e-5 nat in float32, for all m²/v; that of
    its derivative by m²/2v 1e-9. The fit of Molchanov et al. 2017 (eq. 14), which is
    −k₁ S(k₂ + k₃ log α) + ½ log(1 + 1/α) + k₁ for α = v/m², is off by up to 0.0094 nat.
    """
    xp = namespace(mean)
    distance = xp.clip(mean / xp.sqrt(variance), min=-_FARTHEST, max=_FARTHEST)
    return _divergence_at(0.5 * distance * distance)


def _divergence_of_ratio(ratio: Array) -> Array:
    xp = namespace(ratio)
    share = 1 - _CENTRE / (ratio + _CENTRE)
    rest = polynomial(_divergence_polynomial(_DEGREES[is_single_precision(ratio)]), 2 * share - 1)
    return 0.5 * xp.log1p(_SLOPE * ratio) + ratio / (ratio + _CENTRE) * rest


_divergence_at = with_checkpoint(_divergence_of_ratio)


@functools.cache
def _divergence_polynomial(degree: int) -> tuple[float, ...]:
    """Return coefficients in powers of 2u − 1, u = t/(t + c)."""

    def target(points: np.ndarray) -> Any:
        share = (1 + points) / 2
        ratio = _CENTRE * share / (1 - share)
        nodes = 0.05 * np.arange(400)  # the trapezoidal rule of an even, analytic function
        heights = -np.expm1(-ratio[:, None] / np.cosh(nodes) ** 2)
        integral = 0.05 * (heights.sum(axis=-1) - 0.5 * heights[:, 0])
        return (integral - 0.5 * np.log1p(_SLOPE * ratio)) / share

    fit: np.ndarray = np.polynomial.chebyshev.chebinterpolate(target, degree)
    return tuple(np.polynomial.chebyshev.cheb2poly(fit).tolist())


def log_uniform(mean: Array, variance: Array) -> Array:
    """Return E[log p(w)] of the log-uniform prior, w ~ N(m, v)."""
    return -gaussian_entropy(variance) - log_uniform_divergence(mean, variance)


# ----------------------------------------------------------------------------------------
# Horseshoe, p(w) = (2π³)^(−1/2) eᵘ E₁(u), u = w²/2. eᵘ E₁(u) = ∫ e⁻ʳ/(u + r) dr is a
# Stieltjes function, so that its logarithm is a constant and a mixture of e⁻ˢᵘ with
# positive weights H(s) ds = ∫ η(r) e⁻ˢʳ dr ds, η(r) = arg(−Ei(r) + iπ)/π: the trapezoidal
# rule in log s makes a sum of Gaussians in w of it, whose expectations are closed.

_LOG_NORMALISER = -0.5 * math.log(2 * math.pi**3)
_RULES = {True: (-40.0, 46.0, 0.75), False: (-50.0, 62.0, 0.45)}  # log s from, to, by
_NODES = 250  # at most
_LARGEST_EXPONENT = 2000.0  # e^−1000 is zero


@functools.cache
def _gaussians(single: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Return precisions s, weights and the constant of log(eᵘ E₁(u))."""
    first, last, step = _RULES[single]
    precisions = np.exp(np.arange(first, last, step))
    points = np.arange(-60.0, 5.0, 0.04)  # of log(r s)
    shares = np.arctan2(np.pi, -_exponential_integral(np.exp(points) / precisions[:, None]))
    weights = step * 0.04 / np.pi * (shares * np.exp(points - np.exp(points))).sum(axis=-1)
    at_one = 1 + math.log(scipy.special.exp1(1.0))
    return precisions, weights, at_one - float(weights @ np.exp(-precisions))


def _exponential_integral(points: np.ndarray) -> np.ndarray:
    return scipy.special.expi(np.minimum(points, 700.0))


def _statistics(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return E[log(eᵘ E₁(u))] of unit scale, its derivatives by the mean and by the variance."""
    xp = namespace(mean)
    precisions, weights, constant = _gaussians(is_single_precision(mean))
    precisions, weights = constants(precisions, mean), constants(weights, mean)
    tilt = 1 / (1 / precisions + variance[..., None])
    exponent = xp.clip(tilt * (mean * mean)[..., None], max=_LARGEST_EXPONENT)
    terms = weights * xp.sqrt(tilt / precisions) * xp.exp(-0.5 * exponent)
    by_tilt = terms * tilt
    slope = xp.sum(by_tilt, axis=-1)
    bend = 0.5 * xp.sum(by_tilt * (exponent - 1), axis=-1)
    return constant + xp.sum(terms, axis=-1), -mean * slope, bend


def _value(mean: Array, variance: Array) -> Array:
    return _statistics(mean, variance)[0]


def _slopes(mean: Array, variance: Array) -> tuple[tuple[Array, Array]]:
    return (_statistics(mean, variance)[1:],)


_expected_log = elementwise(
    _value, _slopes, values_and_partials=_statistics, piece=8 * PIECE // _NODES
)


def horseshoe(mean: Array, variance: Array, scale: Array | float) -> Array:
    """Return E[log p(w)] of the marginal horseshoe density, w ~ N(m, v).

    Its error is at most 1e-8 nat in float64 for |w| ≤ 1e7 scales, and 1e-5 nat in float32
    for |w| ≤ 1e6 scales; within 1e-10 scales (1e-8 in float32) of zero the density is held.
    A zero variance gives the log density itself.

    Source: Carvalho, Polson and Scott 2010 for the prior; the mixture is ours. The bound
    of Louizos et al. 2017 by factors for w and its scale is at best log p(√(m² + v)).
    """
    xp = namespace(mean)
    inverse = 1 / scale
    mean, variance = xp.broadcast_arrays(mean * inverse, variance * (inverse * inverse))
    log_scale = math.log(scale) if isinstance(scale, int | float) else xp.log(scale)
    return _expected_log(mean, variance) + (_LOG_NORMALISER - log_scale)


def horseshoe_log_prob(value: Array, scale: Array | float) -> Array:
    """Return the log density of the horseshoe, held within 1e-13 scales of its pole."""
    return horseshoe(value, 0.0 * value, scale)


# ----------------------------------------------------------------------------------------
# Refusals


def improper_prior(use: str) -> UnsupportedMoments:
    """Return the error for a use of the log-uniform prior that needs a proper one."""
    return UnsupportedMoments(
        f"LogUniform has no {use}: it is improper, 1/|w| has infinite mass at zero and at "
        "infinity, and with it the posterior of the weights; only its divergence from a "
        "Gaussian is finite",
        remedy="train with DeterministicELBO and a Gaussian guide such as DVIGuide, or put "
        "Horseshoe(scale) in its place, which is proper",
    )


def observed_horseshoe(name: str) -> UnsupportedMoments:
    """Return the error for an observed site that is to be sampled as a hierarchy."""
    return UnsupportedMoments(
        f"HorseshoeReparam: site '{name}' is observed, and a product of a scale and a normal "
        "cannot be held at a value",
        sites=[name],
        remedy="leave observed sites out of the config of reparam: they have a log density",
    )
