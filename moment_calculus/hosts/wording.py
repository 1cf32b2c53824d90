"""Error messages of both front ends, about guide sites, likelihoods and predictions.

The argument ``framework`` is the framework's name as users write it: "Pyro" or "NumPyro".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from moment_calculus.errors import UnsupportedMoments

MEAN_FIELD_GUIDES = "use DVIGuide, AutoNormal or AutoDiagonalNormal"
_BY_DRAWING = "naming them in sample_sites="
_SAMPLE_REMEDY = "name it in sample_sites= to draw it by reparameterisation"


def no_expected_log_prob(
    name: str, fn: Any, known: Iterable[type], *, framework: str, sites: Iterable[str] = ()
) -> UnsupportedMoments:
    """Return the error for a distribution without a rule for its expected log-probability."""
    names = sorted({kind.__name__ for kind in known})
    return UnsupportedMoments(
        f"site '{name}': no expected log-probability for {type(fn).__name__} with random "
        f"parameters or value; there is one for {', '.join(names)}, and for every univariate "
        "distribution",
        sites=sites,
        remedy=f"register one with @{framework.lower()}_moments.expected_log_prob, or draw the "
        f"latent sites by {_BY_DRAWING}",
    )


def no_tempered_log_prob(
    name: str, fn: Any, known: Iterable[type], *, framework: str, sites: Iterable[str] = ()
) -> UnsupportedMoments:
    """Return the error for a distribution without a rule for the mean of a power of its density."""
    names = sorted({kind.__name__ for kind in known})
    return UnsupportedMoments(
        f"site '{name}': the mean of a power of the density of a {type(fn).__name__} with random "
        f"parameters has no rule; there is one for {', '.join(names)}, and for every univariate "
        "distribution",
        sites=sites,
        remedy="use propagation='sampled', or the expected log-probability, "
        f"{framework.lower()}_moments.DeterministicELBO",
    )


def not_univariate(fn: Any, sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error for random parameters that are not one for each element of the batch."""
    return UnsupportedMoments(
        f"the random parameters of a {type(fn).__name__} are not those of a univariate "
        "distribution, one for each element of its batch",
        sites=sites,
        remedy=f"draw the latent sites by {_BY_DRAWING}",
    )


def gaussian_with_constraint(
    parameter: str, fn: Any, constraint: Any, *, sites: Iterable[str], link_names: str
) -> UnsupportedMoments:
    """Return the error for a Gaussian as a parameter that must stay in an interval."""
    return UnsupportedMoments(
        f"the parameter {parameter} of {type(fn).__name__} is a Gaussian value, or matched by "
        f"one, which is not confined to {constraint}",
        sites=sites,
        remedy=f"make it a function of one Gaussian with such values, e.g. {link_names}, or draw "
        "its sites by naming them in sample_sites=",
    )


def dependent_posterior(name: str, parameter: str, sites: Collection[str]) -> UnsupportedMoments:
    """Return the error for a guide site whose ``parameter`` depends on other latent sites."""
    others = sorted(sites)
    return UnsupportedMoments(
        f"guide site '{name}' has a {parameter} that depends on other latent sites "
        f"({', '.join(others)}): the guide is neither mean-field nor linear and Gaussian",
        sites=[name, *others],
        remedy="make the scales of guide sites certain and their locations certain or linear in "
        f"other sites, or draw the sites by {_BY_DRAWING}",
    )


def ignored_correlations(name: str, posterior: Any) -> UnsupportedMoments:
    """Return the error for a multivariate Normal where only variances are propagated."""
    return UnsupportedMoments(
        f"guide site '{name}' has a {type(posterior).__name__} posterior: covariance='diagonal' "
        "would ignore its correlations",
        sites=[name],
        remedy=f"use covariance='full', or {MEAN_FIELD_GUIDES}",
    )


def ignored_dependence(name: str, sites: Collection[str]) -> UnsupportedMoments:
    """Return the error for components with a shared random location in diagonal mode."""
    others = sorted(sites)
    return UnsupportedMoments(
        f"guide site '{name}' has components that depend on each other through its location (on "
        f"{', '.join(others)}): covariance='diagonal' would ignore its correlations",
        sites=[name, *others],
        remedy=f"use covariance='full', or {MEAN_FIELD_GUIDES}",
    )


def discrete_site(name: str, posterior: Any, *, framework: str) -> UnsupportedMoments:
    """Return the error for a discrete latent site."""
    return UnsupportedMoments(
        f"latent site '{name}' is discrete ({type(posterior).__name__}): it has no "
        "reparameterised samples and no Gaussian moments",
        sites=[name],
        remedy=_discrete_remedy(framework),
    )


def no_posterior_moments(name: str, posterior: Any, remedy: str = "") -> UnsupportedMoments:
    """Return the error for a posterior that is no elementwise transform of a Gaussian."""
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
    name: str, posterior: Any, *, framework: str, by_name: bool = True
) -> UnsupportedMoments:
    """Return the error for a site to be drawn that has no reparameterised samples."""
    if not by_name and posterior.support.is_discrete:
        return discrete_site(name, posterior, framework=framework)
    site = f"site '{name}' of sample_sites" if by_name else f"latent site '{name}'"
    return UnsupportedMoments(
        f"{site} cannot be drawn by reparameterisation: "
        f"{type(posterior).__name__} has no reparameterised samples",
        sites=[name],
        remedy=_discrete_remedy(framework),
    )


def point_without_density(name: str) -> UnsupportedMoments:
    """Return the error for a point estimate where the objective needs a density."""
    return UnsupportedMoments(
        f"site '{name}' of the guide is a point estimate (a Delta, as of AutoDelta): it has no "
        "density, and there is no ratio of densities",
        sites=[name],
        remedy="give it a distribution in the guide (DVIGuide, AutoNormal), make it a param of the "
        "model, or use DeterministicELBO(), or BBAlphaELBO() with its default energy",
    )


def not_in_guide(name: str) -> UnsupportedMoments:
    """Return the error for a latent site of the model that is not in the guide."""
    return UnsupportedMoments(
        f"latent site '{name}' of the model is not in the guide",
        sites=[name],
        remedy="add it to the guide, or observe it",
    )


def randomness_outside_sites(
    operation: str, location: str, *, framework: str
) -> UnsupportedMoments:
    """Return the error for a model that draws random numbers outside its sites."""
    sample = f"{framework.lower()}.sample"
    return UnsupportedMoments(
        "the model draws random numbers that belong to no site: its ELBO and its predictions would "
        "be random, and nothing would say so",
        remedy="switch dropout and the like to evaluation (.eval(), deterministic=True), pass what "
        f"is random as an argument, or draw it by {sample} and name it in sample_sites=",
        operation=operation,
        location=location,
    )


def randomness_in_function(operation: str, location: str) -> UnsupportedMoments:
    """Return the error for a function that draws random numbers while moments propagate."""
    return UnsupportedMoments(
        "the function draws random numbers: the moments would be random, and nothing would say so",
        remedy="switch dropout and the like to evaluation (.eval()), or pass what is random as an "
        "argument: its Moments, or numbers drawn before",
        operation=operation,
        location=location,
    )


def nothing_observed() -> ValueError:
    """Return the error for a log predictive density without observations."""
    return ValueError(
        "the model observes nothing with these arguments: pass the observations as in training"
    )


def unknown_sample_sites(unknown: Iterable[str], latent: list[str]) -> UnsupportedMoments:
    """Return the error for names in ``sample_sites`` that are no latent sites of the guide."""
    return UnsupportedMoments(
        f"sample_sites names {', '.join(map(repr, sorted(unknown)))}, not a latent site of the "
        f"guide; its latent sites are {', '.join(map(repr, latent)) or 'none'}",
        sites=latent,
        remedy="name sites as the model does",
    )


def _discrete_remedy(framework: str) -> str:
    return (
        f"sum it out in the model, e.g. by a mixture distribution, or use {framework}'s "
        "TraceEnum_ELBO; hide it from an automatic guide only if the model enumerates it"
    )
