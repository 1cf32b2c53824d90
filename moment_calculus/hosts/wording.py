"""Refusals that every front end words alike: of guide sites, likelihoods and predictions.

Host is the name of the probabilistic language as its users write it: ``"Pyro"``, ``"NumPyro"``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from moment_calculus.refusals.errors import UnsupportedMoments

MEAN_FIELD_GUIDES = "use DVIGuide, AutoNormal or AutoDiagonalNormal"
_BY_DRAWING = "naming them in sample_sites="
_SAMPLE_REMEDY = "name it in sample_sites= to draw it by reparameterisation"


def no_expected_log_prob(
    name: str, fn: Any, known: Iterable[type], *, host: str, sites: Iterable[str] = ()
) -> UnsupportedMoments:
    """A distribution that has no rule for its expected log-probability.

    Args:
        name: the site.
        fn: its distribution.
        known: classes that have one.
        host: see the module.
        sites: the latent sites that its parameters depend on, if known.
    """
    names = sorted({kind.__name__ for kind in known})
    return UnsupportedMoments(
        f"site '{name}': no expected log-probability for {type(fn).__name__} with random "
        f"parameters or value; there is one for {', '.join(names)}, and for every univariate "
        "distribution",
        sites=sites,
        remedy=f"register one with @{host.lower()}_moments.expected_log_prob, or draw the latent "
        f"sites by {_BY_DRAWING}",
    )


def no_tempered_log_prob(
    name: str, fn: Any, known: Iterable[type], *, host: str, sites: Iterable[str] = ()
) -> UnsupportedMoments:
    """A distribution that has no rule for the mean of a power of its density.

    Args:
        name: the site.
        fn: its distribution.
        known: classes that have one.
        host: see the module.
        sites: the latent sites that its parameters depend on.
    """
    names = sorted({kind.__name__ for kind in known})
    return UnsupportedMoments(
        f"site '{name}': the mean of a power of the density of a {type(fn).__name__} with random "
        f"parameters has no rule; there is one for {', '.join(names)}, and for every univariate "
        "distribution",
        sites=sites,
        remedy="use propagation='sampled', or the expected log-probability, "
        f"{host.lower()}_moments.DeterministicELBO",
    )


def not_univariate(fn: Any, sites: Iterable[str]) -> UnsupportedMoments:
    """Random parameters that are not one for each element of a distribution's batch.

    Args:
        fn: the distribution.
        sites: the latent sites that they depend on.
    """
    return UnsupportedMoments(
        f"the random parameters of a {type(fn).__name__} are not those of a univariate "
        "distribution, one for each element of its batch",
        sites=sites,
        remedy=f"draw the latent sites by {_BY_DRAWING}",
    )


def not_confined(
    parameter: str, fn: Any, constraint: Any, *, sites: Iterable[str], links: str
) -> UnsupportedMoments:
    """A Gaussian as a parameter that has to stay in an interval.

    Args:
        parameter: its name.
        fn: the distribution.
        constraint: the interval.
        sites: the latent sites that the Gaussian depends on.
        links: the host's spelling of functions whose values are confined.
    """
    return UnsupportedMoments(
        f"the parameter {parameter} of {type(fn).__name__} is a Gaussian value, or matched by "
        f"one, which is not confined to {constraint}",
        sites=sites,
        remedy=f"make it a function of one Gaussian with such values, e.g. {links}, or draw its "
        "sites by naming them in sample_sites=",
    )


def dependent_posterior(name: str, parameter: str, sites: Collection[str]) -> UnsupportedMoments:
    """A guide site whose moments are not known, because it depends on other latent sites.

    Args:
        name: the guide site.
        parameter: what of it depends on others.
        sites: those others.
    """
    others = sorted(sites)
    return UnsupportedMoments(
        f"guide site '{name}' has a {parameter} that depends on other latent sites "
        f"({', '.join(others)}): the guide is neither mean-field nor linear and Gaussian",
        sites=[name, *others],
        remedy="make the scales of guide sites certain and their locations certain or linear in "
        f"other sites, or draw the sites by {_BY_DRAWING}",
    )


def ignored_correlations(name: str, posterior: Any) -> UnsupportedMoments:
    """A multivariate Normal where only variances are propagated.

    Args:
        name: the guide site.
        posterior: its distribution, without expansions and the like.
    """
    return UnsupportedMoments(
        f"guide site '{name}' has a {type(posterior).__name__} posterior: covariance='diagonal' "
        "would ignore its correlations",
        sites=[name],
        remedy=f"use covariance='full', or {MEAN_FIELD_GUIDES}",
    )


def ignored_dependence(name: str, sites: Collection[str]) -> UnsupportedMoments:
    """A vector that is centred at what its components share, where only variances are propagated.

    Args:
        name: the guide site.
        sites: the latent sites that its location depends on.
    """
    others = sorted(sites)
    return UnsupportedMoments(
        f"guide site '{name}' has components that depend on each other through its location (on "
        f"{', '.join(others)}): covariance='diagonal' would ignore its correlations",
        sites=[name, *others],
        remedy=f"use covariance='full', or {MEAN_FIELD_GUIDES}",
    )


def discrete_site(name: str, posterior: Any, *, host: str) -> UnsupportedMoments:
    """A latent site that is discrete.

    Args:
        name: the site.
        posterior: its distribution in the guide, without expansions and the like.
        host: see the module.
    """
    return UnsupportedMoments(
        f"latent site '{name}' is discrete ({type(posterior).__name__}): it has no "
        "reparameterised samples and no Gaussian moments",
        sites=[name],
        remedy=_discrete_remedy(host),
    )


def no_posterior_moments(name: str, posterior: Any, remedy: str = "") -> UnsupportedMoments:
    """A posterior that is neither Gaussian nor an elementwise transform of a Gaussian.

    Args:
        name: the guide site.
        posterior: its distribution, without expansions and the like.
        remedy: what to do about it; by default to draw the site.
    """
    if mixing := [part for part in getattr(posterior, "transforms", ()) if part.domain.event_dim]:
        return UnsupportedMoments(
            f"the components of guide site '{name}' are mixed by its {type(mixing[0]).__name__}: "
            "they have no analytic moments",
            sites=[name],
            remedy=remedy or f"draw it by reparameterisation: sample_sites=['{name}']",
        )
    return UnsupportedMoments(
        f"guide site '{name}' has a {type(posterior).__name__} posterior; analytic moments need "
        "independent Normal components, elementwise transforms of them, or a multivariate Normal",
        sites=[name],
        remedy=remedy or _SAMPLE_REMEDY,
    )


def not_reparameterised(
    name: str, posterior: Any, *, host: str, by_name: bool = True
) -> UnsupportedMoments:
    """A site that is to be drawn, and cannot be by reparameterisation.

    Args:
        name: the site.
        posterior: its distribution in the guide, without expansions and the like.
        host: see the module.
        by_name: whether it is one of ``sample_sites``; else all sites are drawn.
    """
    if not by_name and posterior.support.is_discrete:
        return discrete_site(name, posterior, host=host)
    site = f"site '{name}' of sample_sites" if by_name else f"latent site '{name}'"
    return UnsupportedMoments(
        f"{site} cannot be drawn by reparameterisation: "
        f"{type(posterior).__name__} has no reparameterised samples",
        sites=[name],
        remedy=_discrete_remedy(host),
    )


def point_without_density(name: str) -> UnsupportedMoments:
    """A point estimate in the guide of an objective that needs its density.

    Args:
        name: the site.
    """
    return UnsupportedMoments(
        f"site '{name}' of the guide is a point estimate (a Delta, as of AutoDelta): it has no "
        "density, and there is no ratio of densities",
        sites=[name],
        remedy="give it a distribution in the guide (DVIGuide, AutoNormal), make it a param of the "
        "model, or use DeterministicELBO(), or BBAlphaELBO() with its default energy",
    )


def not_in_guide(name: str) -> UnsupportedMoments:
    """A latent site of the model that the guide does not have.

    Args:
        name: the site.
    """
    return UnsupportedMoments(
        f"latent site '{name}' of the model is not in the guide",
        sites=[name],
        remedy="add it to the guide, or observe it",
    )


def drawn_in_silence(operation: str, location: str, *, host: str) -> UnsupportedMoments:
    """A model that draws random numbers which are no site.

    Args:
        operation: what draws them, as the user calls it.
        location: the user's line.
        host: see the module.
    """
    sample = f"{host.lower()}.sample"
    return UnsupportedMoments(
        "the model draws random numbers that belong to no site: its ELBO and its predictions would "
        "be random, and nothing would say so",
        remedy="switch dropout and the like to evaluation (.eval(), deterministic=True), pass what "
        f"is random as an argument, or draw it by {sample} and name it in sample_sites=",
        operation=operation,
        location=location,
    )


def drawn_by_function(operation: str, location: str) -> UnsupportedMoments:
    """A function that draws random numbers while moments are propagated through it.

    Args:
        operation: what draws them, as the user calls it.
        location: the user's line.
    """
    return UnsupportedMoments(
        "the function draws random numbers: the moments would be random, and nothing would say so",
        remedy="switch dropout and the like to evaluation (.eval()), or pass what is random as an "
        "argument: its Moments, or numbers drawn before",
        operation=operation,
        location=location,
    )


def nothing_observed() -> ValueError:
    """A log predictive density is asked for, and there are no observations."""
    return ValueError(
        "the model observes nothing with these arguments: pass the observations as in training"
    )


def unknown_sample_sites(unknown: Iterable[str], latent: list[str]) -> UnsupportedMoments:
    """Names in ``sample_sites`` that are not those of latent sites.

    Args:
        unknown: these names.
        latent: the guide's latent sites, in the order of the program.
    """
    return UnsupportedMoments(
        f"sample_sites names {', '.join(map(repr, sorted(unknown)))}, not a latent site of the "
        f"guide; its latent sites are {', '.join(map(repr, latent)) or 'none'}",
        sites=latent,
        remedy="name sites as the model does",
    )


def _discrete_remedy(host: str) -> str:
    return (
        f"sum it out in the model, e.g. by a mixture distribution, or use {host}'s "
        "TraceEnum_ELBO; hide it from an automatic guide only if the model enumerates it"
    )
