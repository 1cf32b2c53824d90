"""What front ends say of predictions that they cannot make, in the same words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moment_calculus.refusals.errors import UnsupportedMoments


def no_predictive_moments(
    name: str, fn: Any, known: Iterable[type], *, host: str
) -> UnsupportedMoments:
    """A distribution that has no predictive moments.

    Args:
        name: the site.
        fn: its distribution.
        known: classes that have some.
        host: see the module.
    """
    return UnsupportedMoments(
        f"site '{name}': no predictive moments for {type(fn).__name__}; there are some "
        f"for {', '.join(kind.__name__ for kind in known)}, and for every univariate distribution",
        remedy=predictive_remedy(host),
    )


def no_class_probabilities(name: str, family: str) -> UnsupportedMoments:
    """A prediction of something else than classes, of which ``probs`` were asked.

    Args:
        name: the site.
        family: name of its distribution.
    """
    return UnsupportedMoments(
        f"site '{name}': a {family} has no classes with probabilities",
        remedy="probs are those of Bernoulli, Binomial, Categorical and OrderedLogistic sites; "
        "use log_prob for the probability of a count, or the density of a value",
    )


def no_quantiles(name: str, family: str, *, classes: bool = False) -> UnsupportedMoments:
    """A prediction whose predictive distribution function is not known.

    Args:
        name: the site.
        family: name of its distribution.
        classes: whether it is of classes.
    """
    cause = "its classes have no order" if classes else "its distribution function is not known"
    return UnsupportedMoments(
        f"site '{name}': no predictive quantiles of a {family}: {cause}",
        remedy="use probs, or sample" if classes else "take the quantiles of draws: use sample",
    )


def no_draws(name: str, family: str, *, host: str) -> UnsupportedMoments:
    """A prediction by a rule of the user's own, which says nothing of draws.

    Args:
        name: the site.
        family: name of its distribution.
        host: see the module.
    """
    return UnsupportedMoments(
        f"site '{name}': the predictive moments registered for {family} come without draws",
        remedy=f"return a distribution of {host} in place of the log density from the function "
        f"registered with @{host.lower()}_moments.predictive_moments, or use "
        f"{host.lower()}.infer.Predictive with the guide",
    )


def predictive_remedy(host: str) -> str:
    """What to do where there are no predictive moments.

    Args:
        host: see the module.
    """
    return (
        f"register some with @{host.lower()}_moments.predictive_moments, or use "
        f"{host.lower()}.infer.Predictive with the guide to sample predictions"
    )
