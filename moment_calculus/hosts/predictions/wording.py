"""Error messages for predictions that cannot be made, shared by both front ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moment_calculus.errors import UnsupportedMoments


def no_predictive_moments(
    name: str, fn: Any, known: Iterable[type], *, framework: str
) -> UnsupportedMoments:
    """Return the error for a distribution without predictive moments."""
    return UnsupportedMoments(
        f"site '{name}': no predictive moments for {type(fn).__name__}; there are some "
        f"for {', '.join(kind.__name__ for kind in known)}, and for every univariate "
        "distribution of which the host knows the mean",
        remedy=predictive_remedy(framework),
    )


def no_class_probabilities(name: str, family: str) -> UnsupportedMoments:
    """Return the error for ``probs`` of a site that has no classes."""
    return UnsupportedMoments(
        f"site '{name}': a {family} has no classes with probabilities",
        remedy="probs are those of Bernoulli, Binomial, Categorical and OrderedLogistic sites; "
        "use log_prob for the probability of a count, or the density of a value",
    )


def no_quantiles(name: str, family: str, *, classes: bool = False) -> UnsupportedMoments:
    """Return the error for quantiles without a known predictive distribution function."""
    cause = "its classes have no order" if classes else "its distribution function is not known"
    return UnsupportedMoments(
        f"site '{name}': no predictive quantiles of a {family}: {cause}",
        remedy="use probs, or sample" if classes else "take the quantiles of draws: use sample",
    )


def no_distribution_function(
    name: str, family: str, *, classes: bool = False
) -> UnsupportedMoments:
    """Return the error for ``cdf`` without a known predictive distribution function."""
    cause = "its classes have no order" if classes else "that of its likelihood is not known"
    return UnsupportedMoments(
        f"site '{name}': no predictive distribution function of a {family}: {cause}",
        remedy="use probs" if classes else "take the share of draws below the value: use sample",
    )


def no_entropy(name: str, family: str) -> UnsupportedMoments:
    """Return the error for the entropy of a predictive density that is not known."""
    return UnsupportedMoments(
        f"site '{name}': no predictive entropy of a {family}: its predictive distribution function "
        "is not known",
        remedy="take the mean of −log_prob over draws: use sample",
    )


def no_entropy_given(name: str, family: str) -> UnsupportedMoments:
    """Return the error for a distribution whose entropy given its parameters is not known."""
    return UnsupportedMoments(
        f"site '{name}': no mutual information of a {family}: its entropy given its parameters is "
        "not known",
        remedy="use epistemic_variance, or entropy, which counts the noise too",
    )


def no_variation_ratio(name: str, family: str) -> UnsupportedMoments:
    """Return the error for the variation ratio of a site that has no classes."""
    return UnsupportedMoments(
        f"site '{name}': a {family} has no classes, and so no variation ratio",
        remedy="it is that of Bernoulli, Categorical and OrderedLogistic sites; use entropy or "
        "variance",
    )


def no_credible_interval(name: str, family: str) -> UnsupportedMoments:
    """Return the error where the distribution of the mean of an observation is not known."""
    return UnsupportedMoments(
        f"site '{name}': no credible interval of the mean of a {family}: how it depends on the "
        "latent sites is not known",
        remedy="use epistemic_variance, or the interval of the observation",
    )


def not_of_particles(name: str, family: str, shape: tuple[int, ...]) -> ValueError:
    """Return the error for a distribution without particle axis or with random parameters."""
    return ValueError(
        f"site '{name}': a SampledPrediction is of certain parameters with the particles on the "
        f"leading axis of the batch shape; this {family} has the batch shape {tuple(shape)}, or "
        "random parameters; use Prediction for these"
    )


def no_draws(name: str, family: str, *, framework: str) -> UnsupportedMoments:
    """Return the error for draws of a site whose registered predictive moments have none."""
    return UnsupportedMoments(
        f"site '{name}': the predictive moments registered for {family} come without draws",
        remedy=f"return a distribution of {framework} in place of the log density from the "
        f"function registered with @{framework.lower()}_moments.predictive_moments, or use "
        f"{framework.lower()}.infer.Predictive with the guide",
    )


def predictive_remedy(framework: str) -> str:
    """Return the remedy for a distribution without predictive moments."""
    return (
        f"register some with @{framework.lower()}_moments.predictive_moments, or use "
        f"{framework.lower()}.infer.Predictive with the guide to sample predictions"
    )
