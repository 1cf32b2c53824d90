"""Docstring templates, notes and errors of ``compare_with_nuts``, for both frameworks."""

from __future__ import annotations

from collections.abc import Iterable

ARGUMENTS = """
The latent sites are compared on the unconstrained space, where a guide is Gaussian: differences of
means in standard deviations of the chains, ratios of standard deviations of the guide and of its
linear response. Predictions are those in closed form, and of the chains the mixture over all draws.

Args:
    model: {host} model, unmodified: NUTS takes it as it is.
    guide: trained guide, or what ``fit`` returned, whose time is then told.
    *data: what it was trained on, arguments of the model.
"""

OPTIONS = """
reference: finished chains of the same model and data: a {host} ``MCMC``, or an ``InferenceData``
    with the group ``posterior``, as of another program; by default NUTS runs now.
test: other arguments of the model for which predictions are compared, a tuple, as new inputs
    without observations; by default the data.
objective: the loss that the guide was trained by; by default ``DeterministicELBO()``.
num_warmup: steps of each chain before its draws.
num_samples: draws of each chain.
num_chains: chains.
kernel: options of {host}'s ``NUTS``, such as the target acceptance.
progress_bar: whether NUTS shows how far it is.
"""

RESULT = """
Returns:
    The numbers: a ``Comparison``, which prints as tables; ``table()`` is a data frame of all
    coordinates, ``plot()`` draws them, ``inference_data`` has the containers of ArviZ by source.
    Where linear response or leave-one-out is not possible, ``notes`` say why.

Raises:
    ImportError: if ArviZ is not there.
    ValueError: if the model draws random numbers that belong to no site, as masks of dropout: NUTS
        would take those of one draw for ever.
    TypeError: if ``reference`` is something else.
"""

BY_DRAWS = "moments of {source} are those of {count} draws: {reason}"


def random_density(host: str) -> ValueError:
    """Return the error for a model whose log density is random."""
    return ValueError(
        "two evaluations of the model's log density at one draw differ: it draws random numbers "
        f"that belong to no site, such as masks of dropout. {host}'s NUTS would keep those of one "
        "draw, and sample another model; make them sites, or switch the layers to evaluation"
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


def no_chains(found: object, host: str) -> TypeError:
    """Return the error for a ``reference`` that is no finished chains."""
    return TypeError(
        f"reference is a finished MCMC of {host} or an InferenceData of ArviZ, not "
        f"{type(found).__name__}; without one, NUTS runs now"
    )
