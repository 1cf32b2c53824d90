"""Docstring templates and errors of ``to_inference_data`` and ``loo``, for both frameworks."""

from __future__ import annotations

from collections.abc import Iterable


def other_latent_sites(missing: Iterable[str], draws: Iterable[str]) -> ValueError:
    """Return the error for draws whose sites are not the model's latent sites."""
    parts = [
        f"{what} {', '.join(map(repr, names))}"
        for what, names in (("the model has no site", missing), ("there are no draws of", draws))
        if names
    ]
    return ValueError(
        f"these are no draws of this model's latent sites: {'; '.join(parts)}. Pass the model that "
        "was trained, with its observations; discrete sites that were summed out have no draws"
    )


def part_of_plate(plate: str, part: int, size: int, where: str) -> ValueError:
    """Return the error for ``part`` rows of data where all ``size`` of a plate are needed."""
    return ValueError(
        f"the model takes {part} of the {size} elements of the plate '{plate}', which count whole "
        f"here, and its arguments are not of that length ({where}): pass all rows of the data"
    )


def chains_not_run() -> ValueError:
    """Return the error for an MCMC object that has no draws yet."""
    return ValueError("the MCMC has no draws: call its run(...) first")


def no_prior_draws(reason: str) -> str:
    """Return the text that says why the prior cannot be drawn."""
    return "a prior is improper, or has no draws" + (f" ({reason})" if reason else "")


def no_posterior(posterior: object, framework: str) -> TypeError:
    """Return the error for an object of which no posterior draws can be made."""
    return TypeError(
        f"posterior is a trained guide, what fit returned, a LinearResponse or an MCMC of "
        f"{framework}, not {type(posterior).__name__}"
    )
