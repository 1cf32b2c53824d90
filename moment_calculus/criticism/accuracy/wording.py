"""Docstring templates and errors of ``moment_accuracy``."""

from __future__ import annotations

from collections.abc import Iterable

from moment_calculus.errors import UnsupportedMoments


def too_few_draws(count: object, least: int) -> ValueError:
    """Return the error for too few draws to compute standard errors."""
    return ValueError(
        f"num_samples={count!r} draws have no standard errors: at least {least}, or 1000 to see "
        "deviations of some per cent"
    )


def no_layers() -> ValueError:
    """Return the error for a program without any random result that has moments."""
    return ValueError(
        "no operation of the model has a random result with moments: there is nothing to compare; "
        "are the latent sites used by the model?"
    )


def no_such_row(label: str, labels: Iterable[str]) -> KeyError:
    """Return the error for a label that no row has."""
    return KeyError(f"no row {label!r}; there are {', '.join(dict.fromkeys(labels))}")


def other_path(with_moments: str, with_draws: str, line: str) -> UnsupportedMoments:
    """Return the error for a program that runs other operations with draws than with moments."""
    return UnsupportedMoments(
        f"with moments the program calls {with_moments} where with draws it calls {with_draws}: "
        "layers cannot be compared",
        remedy="let neither the types nor the values of tensors decide what is run",
        operation=with_draws,
        location=line,
    )
