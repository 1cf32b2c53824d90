"""Docstring templates, notes and errors of ``compare_with_nuts``, for both frameworks."""

from __future__ import annotations

from collections.abc import Iterable

BY_DRAWS = "moments of {source} are those of {count} draws: {reason}"


def random_density(framework: str) -> ValueError:
    """Return the error for a model whose log density is random."""
    return ValueError(
        "two evaluations of the model's log density at one draw differ: it draws random numbers "
        f"that belong to no site, such as masks of dropout. {framework}'s NUTS would keep those of "
        "one draw, and sample another model; make them sites, or switch the layers to evaluation"
    )


def without_prior(guide: str, reason: str) -> str:
    """Return the note on a guide whose weights have no counterpart in NUTS, such as dropout."""
    return (
        f"{guide} {reason}: what it says of single weights has no counterpart in NUTS, which draws "
        "no masks and has the model's own priors; compare predictions"
    )


def improper_priors(sites: Iterable[str]) -> str:
    """Return the note on sites whose prior is improper."""
    return (
        f"the priors of {', '.join(map(repr, sites))} are improper: NUTS is a reference only if "
        "the posterior is proper, of which divergences and R-hat tell"
    )


def no_chains(reference: object, framework: str) -> TypeError:
    """Return the error for a ``reference`` that is no finished chains."""
    return TypeError(
        f"reference is a finished MCMC of {framework} or an InferenceData of ArviZ, not "
        f"{type(reference).__name__}; without one, NUTS runs now"
    )
