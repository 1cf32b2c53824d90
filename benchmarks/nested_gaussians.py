"""The latent Gaussian models of `nested_models` in NumPy alone, given hyperparameters, and what
importance sampling from a Gaussian finds of them.

Given hyperparameters, log p(x) = constant − ½ xᵀ Q x, and the observations' log densities are
functions of a predictor A x each. Where these are Normal, the Gaussian is the posterior itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln, logsumexp, ndtr

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
UNIT = np.log(2 * np.pi)
ENOUGH, TURNS = 1e-4, 100  # the ELBO's error is of second order; far out it may be given up
ORDERS = 9  # of Hermite polynomials in the density of an element


# ---------------------------------------------------------------------------------------------
# Likelihoods


@dataclass(frozen=True)
class Likelihood:
    """Log densities of observations by predictor, their slopes, and their negative curvatures."""

    value: Callable
    slope: Callable
    curvature: Callable

    def expected(self, mean, variance):
        """Expectations of the three under Gaussians."""
        points = mean[..., None] + np.sqrt(variance)[..., None] * NODES
        across = np.moveaxis(points, -1, 0)
        parts = self.value, self.slope, self.curvature
        return [np.einsum("k,k...->...", WEIGHTS, part(across)) for part in parts]


def bernoulli(y):
    return Likelihood(
        lambda e: y * e - np.logaddexp(0, e),
        lambda e: y - expit(e),
        lambda e: expit(e) * expit(-e),
    )


def poisson(y, expected=1.0):
    constant = y * np.log(expected) - gammaln(y + 1)
    rate = lambda e: expected * np.exp(e)  # noqa: E731
    return Likelihood(lambda e: y * e - rate(e) + constant, lambda e: y - rate(e), rate)


def negative_binomial(y, concentration):
    share = lambda e: expit(e - np.log(concentration))  # noqa: E731
    total = y + concentration
    constant = gammaln(total) - gammaln(concentration) - gammaln(y + 1)
    logits = lambda e: e - np.log(concentration)  # noqa: E731
    return Likelihood(
        lambda e: y * logits(e) - total * np.logaddexp(0, logits(e)) + constant,
        lambda e: y - total * share(e),
        lambda e: total * share(e) * (1 - share(e)),
    )


def normal(y, deviation):
    precision = np.broadcast_to(1 / np.square(deviation), y.shape)
    constant = 0.5 * np.log(precision) - 0.5 * UNIT
    return Likelihood(
        lambda e: constant - 0.5 * precision * (y - e) ** 2,
        lambda e: precision * (y - e),
        lambda e: precision + 0 * e,
    )


# ---------------------------------------------------------------------------------------------
# Gaussians


@dataclass(frozen=True)
class Given:
    """A model given its hyperparameters."""

    precision: np.ndarray  # Q [d, d]
    constant: float  # of log p(x)
    predictor: np.ndarray  # A [n, d]
    likelihood: Likelihood
    integrated: Callable | None = None  # exactly, of the Gaussian and places of elements


def independent(predictor, deviations, likelihood):
    """Latent numbers with independent Normal priors."""
    precision = 1 / np.square(deviations)
    constant = 0.5 * np.log(precision).sum() - 0.5 * len(precision) * UNIT
    return Given(np.diag(precision), constant, predictor, likelihood)


@dataclass
class Gaussian:
    """The Gaussian whose ELBO is largest: its mean, covariance, and the ELBO."""

    mean: np.ndarray
    covariance: np.ndarray
    elbo: float
    slope: np.ndarray  # expected, by observation
    curvature: np.ndarray

    @property
    def deviations(self):
        return np.sqrt(np.diag(self.covariance))


def fitted(given, start=None):
    """Newton's method with expected derivatives."""
    predictor, precision = given.predictor, given.precision
    size = len(precision)
    mean, variance = np.zeros(size), np.full(len(predictor), 0.1)
    if start is not None:
        mean = start.mean
        variance = ((predictor @ start.covariance) * predictor).sum(1)
    for turn in range(TURNS):
        value, slope, curvature = given.likelihood.expected(predictor @ mean, variance)
        covariance = np.linalg.inv(precision + predictor.T @ (curvature[:, None] * predictor))
        step = covariance @ (predictor.T @ slope - precision @ mean)
        found = ((predictor @ covariance) * predictor).sum(1)
        if not (np.isfinite(step).all() and np.diag(covariance).min() > 0):
            raise RuntimeError("no Gaussian")
        change = np.abs(step / np.sqrt(np.diag(covariance))).max()
        if change < ENOUGH and np.allclose(variance, found, ENOUGH):
            break
        variance = renewed(variance, found, turn)
        mean = mean + step * min(1.0, 2.0 / np.abs(predictor @ step).max())
    else:
        raise RuntimeError("no convergence")
    elbo = value.sum() + given.constant - 0.5 * mean @ precision @ mean
    elbo += 0.5 * (size * (UNIT + 1) - np.vdot(precision, covariance))
    elbo += 0.5 * np.linalg.slogdet(covariance)[1]
    return Gaussian(mean, covariance, elbo, slope, curvature)


def renewed(variance, found, turn):
    """Variances of predictors for the next turn: far out, whole steps would go back and forth."""
    shares = (10, 1.0), (30, 0.5), (60, 0.25), (TURNS, 0.1)
    share = next(share for last, share in shares if turn < last)
    return variance ** (1 - share) * found**share


# ---------------------------------------------------------------------------------------------
# Importance sampling


def log_weights(given, found, draws):
    """Log density over the Gaussian's at mean ± draws, with the draws of x − mean.

    The Gaussian's precision is Q + Aᵀ W A, so that quadratic parts in x cancel.
    """
    root = np.linalg.cholesky(found.covariance)
    moves = draws @ root.T
    shift = moves @ (given.precision @ found.mean)
    changes, centre = draws @ (given.predictor @ root).T, given.predictor @ found.mean
    quadratic = 0.5 * changes**2 @ found.curvature
    size, mean = len(root), found.mean
    constant = given.constant - 0.5 * mean @ given.precision @ mean
    constant += 0.5 * size * UNIT + np.log(np.diag(root)).sum()
    both = [
        given.likelihood.value(centre + sign * changes).sum(1) - sign * shift + quadratic + constant
        for sign in (1, -1)
    ]
    return np.stack(both), moves


def evidences(weights):
    """Log evidence by all draws and by each half of them, and the effective number."""
    half = weights.shape[1] // 2
    parts = weights, weights[:, :half], weights[:, half:]
    relative = np.exp(weights - weights.max())
    effective = relative.sum() ** 2 / np.square(relative).sum()
    return np.array([logsumexp(part) - np.log(part.size) for part in parts]), effective


def polynomials(standardised, orders=ORDERS):
    """Hermite polynomials by order, each over its factorial."""
    found = [np.ones_like(standardised), standardised]
    for order in range(2, orders):
        found.append((standardised * found[-1] - found[-2]) / order)
    return np.stack(found)


def coefficients(relative, standardised):
    """Of an element's density over its Gaussian's, by weights [...] with mean one."""
    found = np.tensordot(polynomials(standardised), relative - 1, relative.ndim) / relative.size
    found[0] = 1.0
    return found


def distributed(points, mean, deviation, coefficients):
    """Density and distribution function of a Gaussian times a sum of Hermite polynomials."""
    standardised = (points - mean) / deviation
    scaled = coefficients * np.cumprod(np.r_[1.0, 1 : len(coefficients)])
    parts = polynomials(standardised, len(scaled))
    normal = np.exp(-0.5 * (standardised**2 + UNIT))
    ratios = scaled[1:] / np.arange(1, len(scaled))
    below = ndtr(standardised) - normal * (ratios @ parts[:-1])  # ∫ φ Heₙ = −φ Heₙ₋₁
    return normal * (scaled @ parts) / deviation, below


def raw_moments(mean, deviation, coefficients):
    """Of order one to three."""
    first, second, third = coefficients[1:4] * (1, 2, 6)
    second, third = 1 + second, third + 3 * first
    return np.array(
        [
            mean + deviation * first,
            mean**2 + 2 * mean * deviation * first + deviation**2 * second,
            mean**3
            + 3 * mean**2 * deviation * first
            + 3 * mean * deviation**2 * second
            + deviation**3 * third,
        ]
    )
