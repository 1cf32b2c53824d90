"""Why a model is no latent Gaussian one, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from moment_calculus import UnsupportedMoments

FIT = 'fit(model, GaussianGuide(), ..., method="newton")'


def not_continuous(name: str, kind: str) -> UnsupportedMoments:
    """Return the error for a latent site that is discrete, or has no unconstrained values."""
    return UnsupportedMoments(
        f"site '{name}' ({kind}) has no data, and its values are no continuous ones",
        sites=[name],
        remedy="observations to come are left out of the model and drawn afterwards from the "
        "posterior's draws; other discrete sites are summed out by hand",
    )


def subsampled(name: str, size: int, count: int) -> UnsupportedMoments:
    """Return the error for a plate that takes some of its rows."""
    return UnsupportedMoments(
        f"plate '{name}' takes {count} of {size} rows, and nested inference all of them at once",
        remedy="give it all rows, without subsample_size",
    )


def moving_support(name: str) -> UnsupportedMoments:
    """Return the error for a site whose support other sites move."""
    return UnsupportedMoments(
        f"the support of site '{name}' depends on other latent sites",
        sites=[name],
        remedy="write it as a function of a site of a support of its own, such as a share "
        "between 0 and 1 of an interval",
    )


def no_number(name: str) -> UnsupportedMoments:
    """Return the error for an observation without a density."""
    return UnsupportedMoments(
        f"the log density of '{name}' is no number at any value of the latent sites: its data, or "
        "those of its parameters, have missing values",
        remedy="mask them by mask(mask=...), with any finite number in their place, or impute them "
        "by latent sites",
    )


def too_many(size: int, most: int, names: Sequence[tuple[str, int]]) -> UnsupportedMoments:
    """Return the error for more hyperparameters than a grid takes."""
    listed = ", ".join(f"'{name}' ({count})" for name, count in names)
    return UnsupportedMoments(
        f"a grid takes at most {most} hyperparameters, and these are {size}: {listed}",
        sites=[name for name, _ in names],
        remedy="fix some of them by condition(model, data=...), let groups have scales in common, "
        f"name fewer real numbers in over=, or use {FIT}",
    )
