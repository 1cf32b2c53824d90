"""Means of powers of probabilities of classes whose logits are Gaussian."""

from __future__ import annotations

from typing import Any

from moment_calculus.functions.table import Sigmoid
from moment_calculus.likelihoods.categorical import (
    categorical,
    chosen,
    draws,
    sampled_log_probabilities,
)
from moment_calculus.likelihoods.links import expected_log_odds, log_odds
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.quadrature import log_mean_exp, nodes
from moment_calculus.numerics.special import (
    double,
    gammaln,
    in_precision_of,
    log_softmax,
    namespace,
)
from moment_calculus.operations.normalised.softmax_moments import against_the_rest
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values import Gaussian, Spread


def tempered_categorical(power: Any, value: Array, logits: Any, *, bound: str = "delta") -> Array:
    """(1/a) log E[softmax(f)_yᵃ] for Gaussian logits f, without draws: an approximation.

    The logit of the class minus the logsumexp of the others is matched by a Gaussian x, whose
    M_a = (1/a) log E[S(x)ᵃ] is exact, S the logistic function. The result is

        M_a + (1 − a) (E − M_0) − a log Σ q

    with E the expected log-probability of :func:`.categorical` and q the means of S(x) of all
    classes. At a = 1 it is the logarithm of the softmax expectation, normalised over the classes;
    for a → 0 it is the expected log-probability that the ELBO has.

    Measured error in nats for two to ten classes, random means and covariances, in the mean over
    labels that have these probabilities, and the largest of any label: at a = 1 up to 0.002, 0.015
    and 0.08 (0.01, 0.5 and 1.4) at logit variances of 0.1, 1 and 4; at a = ½, with ``"delta"``,
    0.001, 0.016 and 0.14 (0.01, 0.5 and 1.5), most of which is that of the ELBO itself. The
    pairwise logistic form of the source has 0.01, 0.09 and 0.18 at a = 1 (0.3, 1.8 and 2.8).

    Args:
        power: a, positive number or array [...].
        value: class indices, [...].
        logits: value [..., classes].
        bound: of E, ``"delta"`` or ``"jensen"``.

    Returns:
        Array [...].

    Source: the expectation of a softmax, Shekhovtsov et al. 2018, eq. 12 and appendix C.7, by
        :func:`moment_calculus.operations.normalised.softmax_moments.softmax_moments`.
    """
    logits = logits.gaussian()
    margins = against_the_rest(logits)
    totals = Sigmoid().moments(*margins)[0]
    xp = namespace(totals)
    mean, variance = (chosen(part, value) for part in margins)
    tempered = _of_margin(power, mean, variance)
    margin = Gaussian(mean, Spread(variance), axis=None, support=logits.support)
    gap = categorical(value, logits, bound=bound) - expected_log_odds(margin)[0]
    share = xp.clip(power + xp.zeros_like(tempered), max=1.0)
    return tempered + (1 - share) * gap - share * xp.log(xp.sum(totals, axis=-1))


def _of_margin(power: Any, mean: Array, variance: Array) -> Array:
    """(1/a) log E[S(x)ᵃ]: S is as smooth as the panels around zero are wide."""
    wide = double(mean) + 0 * power, double(variance) + 0 * power
    points, weights = nodes(*wide)
    found = log_mean_exp(power * log_odds(points)[0], weights) / power
    return in_precision_of(found, mean)


def tempered_categorical_sampled(power: Any, value: Array, logits: Any, noise: Array) -> Array:
    """(1/a) log of the mean of softmax(f)_yᵃ over draws of the logits alone.

    The mean is unbiased; its logarithm is too low in expectation, by about half the relative
    variance of the mean over a, and of one draw it is that of no power at all. For a → 0 it is
    :func:`.categorical_sampled` with the same draws.

    Args:
        power: a, positive number or array [...].
        value: class indices, [...].
        logits: value [..., classes].
        noise: standard normal draws, [draws, ..., classes].

    Returns:
        Array [...].

    Source: the energy of Li and Gal 2017, eq. 7, with draws of the logits.
    """
    return _of_draws(power, sampled_log_probabilities(value, logits, noise))


def tempered_multinomial_sampled(power: Any, value: Array, logits: Any, noise: Array) -> Array:
    """The same of the counts of classes.

    Args:
        power: as of :func:`tempered_categorical_sampled`.
        value: counts of the classes, [..., classes].
        logits: likewise.
        noise: likewise.

    Returns:
        Array [...].
    """
    drawn = log_softmax(draws(logits.gaussian(), noise))
    xp = namespace(drawn)
    value = value + xp.zeros_like(drawn[0])
    ways = gammaln(xp.sum(value, axis=-1) + 1) - xp.sum(gammaln(value + 1), axis=-1)
    return ways + _of_draws(power, xp.sum(value * drawn, axis=-1))


def check_sampled(logits: Gaussian, family: str) -> None:
    """Refuse the mean of a power where only draws of the logits give it.

    Args:
        logits: Gaussian [..., classes].
        family: name of the distribution.

    Raises:
        UnsupportedMoments: if the logits are not to be drawn.
    """
    if logits.propagation.categorical != "sample":
        raise UnsupportedMoments(
            f"the mean of a power of the density of a {family} has no analytic rule",
            sites=logits.sites,
            remedy="choose categorical='sample', with several categorical_draws" + OR_DRAW,
        )


def _of_draws(power: Any, terms: Array) -> Array:
    xp = namespace(terms)
    return log_mean_exp(power * terms, xp.ones_like(terms)) / power
