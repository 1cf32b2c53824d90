"""Errors and warnings of inference: parameters, optima, importance weights, names of sites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.pareto import EVEN, FEW, ImportanceWeights, largest_reliable_shape


class NotAnOptimum(ValueError):
    """The parameters are no optimum of the loss, so that its curvature there says nothing."""


class NarrowerVarianceWarning(UserWarning):
    """Corrected variances are smaller than the guide's, which is rare for a mean-field guide."""


class FlatDirection(ValueError):
    """A quantity depends on a direction that neither priors nor data determine."""


class Indefinite(Exception):
    """A matrix has a direction [n] of negative curvature."""

    def __init__(self, eigenvalue: float, direction: np.ndarray) -> None:
        super().__init__(eigenvalue)
        self.eigenvalue, self.direction = eigenvalue, direction


class Undetermined(Exception):
    """A quantity depends on a direction [n] along which the loss is flat."""

    def __init__(self, direction: np.ndarray) -> None:
        super().__init__()
        self.direction = direction


WITHOUT_NOISE = (
    "linear response takes all data at once, and an objective without draws, such as "
    "objective=DeterministicELBO()"
)


def check_parameters(
    given: Mapping[str, Any], known: Mapping[str, Any], further: bool = False
) -> None:
    """Raise ValueError for parameters with other names or shapes than in model and guide."""
    if not (known.keys() <= given.keys() if further else known.keys() == given.keys()):
        listed = [", ".join(map(repr, sorted(names))) or "nothing" for names in (given, known)]
        raise ValueError(
            f"params has {listed[0]}; model and guide have {listed[1]}: pass what "
            "fit(model, guide, ...).params is"
        )
    for name, part in known.items():
        if np.shape(given[name]) != np.shape(part):
            raise ValueError(
                f"parameter '{name}' has the shape {tuple(np.shape(given[name]))} in params, and "
                f"{tuple(np.shape(part))} in model and guide"
            )


def not_gaussian(site: str) -> UnsupportedMoments:
    """Return the error for a site that is no elementwise function of a Gaussian."""
    return UnsupportedMoments(
        f"the guide's site '{site}' is no elementwise function of a Gaussian: it has no "
        "unconstrained coordinates",
        sites=[site],
        remedy="use DVIGuide, or another guide whose sites are Gaussian on the unconstrained space",
    )


def check_reliable(weights: ImportanceWeights, source: str, sites: Iterable[str]) -> None:
    """Raise UnsupportedMoments if weights of draws of ``source`` are unreliable."""
    if weights.is_reliable:
        return
    limit = largest_reliable_shape(weights.log.shape[-1])
    raise UnsupportedMoments(
        f"the importance weights of draws of {source} cannot be trusted: their k̂ is {weights}; "
        f"they can with k̂ up to {limit:.2f} and {FEW:.0%} effective, or more than {EVEN:.0%} "
        "effective",
        sites=sites,
        remedy="leave importance_weights out for what the approximation itself says, or use other "
        "coordinates (centred where data are many, else not), a guide with covariances, or NUTS",
    )


def unknown_site(name: str, sites: Iterable[str]) -> ValueError:
    """Return the error for a name that is no site of the model."""
    return ValueError(f"{name!r} is no site of the model; there are {', '.join(map(repr, sites))}")
