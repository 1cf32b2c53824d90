"""Predictive uncertainty as sums and integrals by SciPy, for the tests of both hosts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.stats
from scipy.special import expit, logsumexp, xlogy

from tests.cases.hosts.sites_and_likelihoods import CUTS

MEAN, VARIANCE = np.array([-0.8, 0.3, 1.1]), np.array([0.3, 0.9, 0.05])
Z = np.linspace(-9.0, 9.0, 361)  # the trapezoidal rule is exact to rounding
WEIGHTS = np.exp(-0.5 * Z**2) / np.exp(-0.5 * Z**2).sum()
POINTS = MEAN + np.sqrt(VARIANCE) * Z[:, None]  # of f, [nodes, 3]
LINE = np.linspace(-22.0, 22.0, 1001)
MASS = 0.8


@dataclass(frozen=True)
class Case:
    """A likelihood of a random f, in a host and in SciPy.

    Args:
        host: from the host's distributions, its array functions, and f.
        scipy: from f.
        counts: the largest count that matters, if it is of counts.
        positive: whether the values are.
        increasing: whether the mean of an observation is in f; None if neither that nor decreasing.
    """

    host: Callable[[Any, Any, Any], Any]
    scipy: Callable[[np.ndarray], Any]
    counts: int | None = None
    positive: bool = False
    increasing: bool | None = True


CASES = {
    "Normal": Case(lambda d, xp, f: d.Normal(f, 0.5), lambda f: scipy.stats.norm(f, 0.5)),
    "Normal, scale": Case(
        lambda d, xp, f: d.Normal(f, 0.3 * xp.exp(-0.5 * f)),
        lambda f: scipy.stats.norm(f, 0.3 * np.exp(-0.5 * f)),
    ),
    "Normal, folded": Case(
        lambda d, xp, f: d.Normal(f * f, 0.5),
        lambda f: scipy.stats.norm(f * f, 0.5),
        increasing=None,
    ),
    "StudentT": Case(
        lambda d, xp, f: d.StudentT(4.0, f, 0.5), lambda f: scipy.stats.t(4.0, f, 0.5)
    ),
    "Gamma": Case(
        lambda d, xp, f: d.Gamma(2.0, xp.exp(f)),
        lambda f: scipy.stats.gamma(2.0, scale=np.exp(-f)),
        positive=True,
        increasing=False,
    ),
    "Bernoulli": Case(
        lambda d, xp, f: d.Bernoulli(logits=f), lambda f: scipy.stats.bernoulli(expit(f)), 1
    ),
    "Binomial": Case(
        lambda d, xp, f: d.Binomial(5, logits=f), lambda f: scipy.stats.binom(5, expit(f)), 5
    ),
    "Poisson": Case(
        lambda d, xp, f: d.Poisson(xp.exp(1 + f)), lambda f: scipy.stats.poisson(np.exp(1 + f)), 900
    ),
}


def entropy_and_information(case: Case, points: np.ndarray, weights: np.ndarray) -> tuple:
    """H[E p] and H[E p] − E H[p] of a mixture at points of f [nodes, ...]."""
    if case.counts is not None:
        values, steps = np.arange(case.counts + 1.0), np.ones(case.counts + 1)
    else:
        positive = case.positive
        values = np.exp(LINE) if positive else 0.02 * np.sinh(LINE)
        steps = (values if positive else 0.02 * np.cosh(LINE)) * (LINE[1] - LINE[0])
    law = case.scipy(points)
    entropy, given = 0.0, 0.0
    for value, step in zip(values, steps, strict=True):
        p = law.pmf(value) if case.counts is not None else law.pdf(value)
        mixed = np.tensordot(weights, p, 1)
        entropy = entropy - step * xlogy(mixed, mixed)
        given = given - step * np.tensordot(weights, xlogy(p, p), 1)
    return entropy, entropy - given


@cache
def of_gaussian(name: str) -> tuple:
    """H[E p] and H[E p] − E H[p] of a case of which f is Gaussian, for each precision."""
    return entropy_and_information(CASES[name], POINTS, WEIGHTS)


def check_uncertainty(name: str, found: Any, *, rtol: float = 3e-5) -> None:
    """Entropy, information and intervals of a prediction of ``latent()``."""
    case = CASES[name]
    rtol = 1e-7 if rtol == 3e-5 and name in CLOSE else rtol
    entropy, information = of_gaussian(name)
    np.testing.assert_allclose(found.entropy, entropy, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.mutual_information, information, rtol=rtol, atol=rtol)
    check_credible(case, found.credible_interval(MASS))


def check_credible(case: Case, ends: tuple) -> None:
    """Ends of a credible interval of a mean that is a function of f."""
    ends = [np.asarray(end) for end in ends]
    if case.increasing is None:  # of f²
        for end, level in zip(ends, ((1 - MASS) / 2, (1 + MASS) / 2), strict=True):
            below = [
                scipy.stats.norm(m, v**0.5).cdf(e**0.5) - scipy.stats.norm(m, v**0.5).cdf(-(e**0.5))
                for m, v, e in zip(MEAN, VARIANCE, end, strict=True)
            ]
            np.testing.assert_allclose(below, level, atol=6e-4)
        return
    levels = [(1 - MASS) / 2, (1 + MASS) / 2][:: 1 if case.increasing else -1]
    for end, level in zip(ends, levels, strict=True):
        f = scipy.stats.norm(MEAN, np.sqrt(VARIANCE)).ppf(level)
        np.testing.assert_allclose(end, case.scipy(f).mean(), rtol=2e-6)


CLOSE = ("Normal", "StudentT", "Bernoulli", "Binomial")  # to rounding, almost

LOGITS = np.array([[0.5, -1.0, 0.3], [2.0, 0.0, 0.0]])
ROOT = np.array([[1.2, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.7, 0.2, 0.5]])


def class_draws(count: int = 200_000) -> np.ndarray:
    """Probabilities of three classes for draws of correlated logits, [draws, 2, classes]."""
    noise = np.random.default_rng(0).normal(size=(count, 2, 3))
    f = LOGITS + noise @ ROOT.T
    return np.exp(f - logsumexp(f, axis=-1, keepdims=True))


def class_information(probabilities: np.ndarray) -> np.ndarray:
    """Mutual information of classes from draws [points, ..., classes]."""
    mean = probabilities.mean(0)
    entropies = -xlogy(probabilities, probabilities).sum(-1)
    return -xlogy(mean, mean).sum(-1) - entropies.mean(0)


def check_classes(found: Any) -> None:
    """Uncertainty of a Categorical with logits of mean ``LOGITS`` and covariance of ``ROOT``."""
    probs = np.asarray(found.probs)
    np.testing.assert_allclose(found.entropy, -xlogy(probs, probs).sum(-1), rtol=1e-6)
    np.testing.assert_allclose(found.variation_ratio, 1 - probs.max(-1), rtol=1e-6)
    draws = class_draws()
    error = np.log(draws).std(0).max() / len(draws) ** 0.5  # of an entropy, at most
    np.testing.assert_allclose(
        found.mutual_information, class_information(draws), atol=1e-3 + 5 * error
    )
    for end, level in zip(found.credible_interval(MASS), (0.1, 0.9), strict=True):
        below = (draws <= np.asarray(end)).mean(0)
        np.testing.assert_allclose(below, level, atol=5e-3 + 5 * (0.09 / len(draws)) ** 0.5)


def ordered_probabilities(f: np.ndarray) -> np.ndarray:
    """Probabilities of ordered classes, [..., classes]."""
    edges = expit(np.array(CUTS) - f[..., None])
    zero = np.zeros_like(f)[..., None]
    return np.diff(np.concatenate([zero, edges, zero + 1], axis=-1), axis=-1)


def check_ordered(found: Any) -> None:
    """Uncertainty of an OrderedLogistic with cut points ``CUTS``."""
    given = ordered_probabilities(POINTS)
    mean = np.tensordot(WEIGHTS, given, 1)
    entropy = -xlogy(mean, mean).sum(-1)
    expected = np.tensordot(WEIGHTS, -xlogy(given, given).sum(-1), 1)
    np.testing.assert_allclose(found.entropy, entropy, rtol=2e-6)
    np.testing.assert_allclose(found.mutual_information, entropy - expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(found.variation_ratio, 1 - mean.max(-1), rtol=2e-6)
    low, high = (np.asarray(end) for end in found.credible_interval(MASS))
    f = MEAN + np.sqrt(VARIANCE) * np.random.default_rng(0).normal(size=(100_000, 3))
    draws = ordered_probabilities(f)
    for end, level in ((low, 0.1), (high, 0.9)):
        np.testing.assert_allclose((draws <= end).mean(0), level, atol=6e-3)


K = 5
LOCATIONS = np.random.default_rng(1).normal(size=(K, 3))
EQUAL = np.full(K, 1 / K)


def check_particles(name: str, found: Any, *, rtol: float = 3e-6) -> None:
    """Particles whose f is ``LOCATIONS`` are the mixture of what they predict."""
    case = CASES[name]
    law = case.scipy(LOCATIONS)
    np.testing.assert_allclose(found.mean, law.mean().mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.epistemic_variance, law.mean().var(0), rtol=1e-5)
    np.testing.assert_allclose(found.aleatoric_variance, law.var().mean(0), rtol=1e-5)
    entropy, information = entropy_and_information(case, LOCATIONS, EQUAL)
    np.testing.assert_allclose(found.entropy, entropy, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.mutual_information, information, rtol=rtol, atol=rtol)
    means = np.quantile(law.mean(), [(1 - MASS) / 2, (1 + MASS) / 2], axis=0, method="hazen")
    np.testing.assert_allclose(found.credible_interval(MASS), means, rtol=1e-5)
    quantile = np.asarray(found.quantile(0.3))
    below = law.cdf(quantile).mean(0)
    if case.counts is None:
        np.testing.assert_allclose(below, 0.3, atol=max(rtol, 1e-6))
    else:
        assert (below >= 0.3).all()
        assert (law.cdf(quantile - 1).mean(0) < 0.3).all()


def log_density(name: str, value: float) -> np.ndarray:
    """Log density of the same mixture."""
    law = CASES[name].scipy(LOCATIONS)
    density = law.pmf if CASES[name].counts is not None else law.pdf
    return np.log(density(value).mean(0))
