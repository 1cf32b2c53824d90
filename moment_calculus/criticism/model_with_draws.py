"""A model with draws of its latent sites: the protocol that both frameworks implement."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from moment_calculus.criticism.draws import Arrays
from moment_calculus.predictions.mixtures import SampledSite
from moment_calculus.response.data import count_masked


@dataclass(frozen=True)
class SiteAxes:
    """A site of a model, with the plate of each of its axes."""

    name: str
    kind: str  # "latent", "deterministic" or "observed"
    shape: tuple[int, ...]
    plates: Mapping[str, tuple[int, int]]  # negative axis and size of each vectorised plate
    event: int = 0  # number of trailing axes that belong to one event


@dataclass(frozen=True)
class Evaluation:
    """The values of a model at draws of its latent sites; the first axis is [draws]."""

    log_joint: np.ndarray  # log p(latent sites, observations) with scales and masks, [draws]
    log_likelihood: Arrays  # of each batch element of an observed site, without scales
    deterministic: Arrays  # values of the deterministic sites
    predictive: Arrays  # replicated observations by site


@dataclass(frozen=True)
class PriorDraws:
    """Draws from the prior; the first axis of each array is [draws]."""

    sites: Arrays  # latent and deterministic sites
    predictive: Arrays  # observed sites


class ModelWithDraws(Protocol):
    """A model of a framework with arguments, which runs with draws of latent sites."""

    @property
    def sites(self) -> Mapping[str, SiteAxes]:
        """Latent, deterministic and observed (or observable) sites by name."""

    @property
    def observed(self) -> Arrays:
        """Values of the observed sites that have a value."""

    @property
    def constants(self) -> Arrays:
        """The other arrays that the model is called with, by name."""

    @property
    def improper(self) -> list[str]:
        """Names of latent sites whose prior is improper."""

    @property
    def masked(self) -> Mapping[str, int]:
        """Number of masked elements by observed site, for the sites that have any."""

    def evaluate(self, values: Arrays) -> Evaluation:
        """Evaluate the model at draws of its latent sites.

        Args:
            values: by latent site, [draws, ...].
        """

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Return log p(latent sites, observations) of every draw, [draws].

        Args:
            values: by latent site, [draws, ...].
        """

    def replicate(self, values: Arrays) -> Arrays:
        """Draw the observable and the deterministic sites, given latent sites.

        Args:
            values: by latent site, [draws, ...].
        """

    def prior(self, count: int) -> PriorDraws | str:
        """Draw from the prior, or return the reason why that is not possible.

        Args:
            count: number of draws.
        """

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Transform draws to the unconstrained space.

        Args:
            values: by latent site, on the supports.
        """

    def mixtures(self, values: Arrays) -> Mapping[str, SampledSite]:
        """Return the mixture of the predictions of all draws, by observed site.

        Args:
            values: by latent site, [draws, ...].
        """


class SitesOfFirstRun:
    """What a model tells of its sites after a run with one draw of each latent site."""

    latent: Arrays  # the draw

    @property
    def first_sites(self) -> Mapping[str, Any]:
        """Return the sites of the run, without factors."""
        raise NotImplementedError

    @property
    def observed(self) -> Arrays:
        """Return the values of the observed sites."""
        raise NotImplementedError

    @cached_property
    def sites(self) -> dict[str, SiteAxes]:
        """Return the sites by name, with the plates of their axes."""
        missing = [name for name in self.latent if name not in self.first_sites]
        samples = {n: site for n, site in self.first_sites.items() if site["type"] == "sample"}
        latent = [name for name, site in samples.items() if not site["is_observed"]]
        undrawn = [name for name in latent if name not in self.latent]
        if missing or (undrawn and self.observed):
            raise other_latent_sites(missing, undrawn)
        return {name: self.axes(name, site) for name, site in self.first_sites.items()}

    @property
    def masked(self) -> dict[str, int]:
        """Return how many elements a mask hides, for each observed site that has such."""
        sites = {name: self.first_sites[name] for name in self.observed}
        counts = {name: count_masked(s["fn"], s.get("mask")) for name, s in sites.items()}
        return {name: count for name, count in counts.items() if count}

    def prior(self, count: int) -> PriorDraws | str:
        """Return ``count`` draws of the prior, or the reason why there are none."""
        try:
            draws = self.draws_of_prior(count)
        except NotImplementedError as error:
            return no_prior_draws(str(error))
        return PriorDraws(
            {name: value for name, value in draws.items() if name not in self.observed},
            {name: value for name, value in draws.items() if name in self.observed},
        )

    def axes(self, name: str, site: Any) -> SiteAxes:
        """Return the axes of a site."""
        raise NotImplementedError

    def draws_of_prior(self, count: int) -> Arrays:
        """Return the values of all sites in runs without observations, [count, ...] by name."""
        raise NotImplementedError


def constant_data(
    model: Callable,
    args: tuple,
    named: Mapping[str, Any],
    observed: Iterable[np.ndarray],
    as_array: Callable[[Any], np.ndarray | None],
) -> dict[str, np.ndarray]:
    """Return the arrays among a model's arguments, without observations."""
    values = [np.asarray(value) for value in observed]
    arrays = {name: as_array(value) for name, value in _by_name(model, args, named).items()}
    return {
        name: array
        for name, array in arrays.items()
        if array is not None and array.size and not any(_is_same(array, value) for value in values)
    }


def as_array(value: Any) -> np.ndarray | None:
    """Return an argument as an array of numbers, or None if it is not numeric."""
    kinds = np.ndarray | list | tuple | int | float
    if not (isinstance(value, kinds) or hasattr(value, "__array__")):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged lists, random keys of JAX
        return None
    return array if array.dtype.kind in "biuf" else None


def _by_name(model: Callable, args: tuple, named: Mapping[str, Any]) -> dict[str, Any]:
    called = getattr(model, "forward", model)  # a torch.nn.Module is called by its forward
    try:
        bound = inspect.signature(called).bind(*args, **named)
    except (TypeError, ValueError):  # no signature, or it does not fit the arguments
        return {**{f"argument_{at}": arg for at, arg in enumerate(args)}, **named}
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            arguments |= {f"{name}_{at}": part for at, part in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        else:
            arguments[name] = value
    return arguments


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype.kind not in "biuf":
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


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
    """Return the error for ``part`` of the ``size`` rows of a plate."""
    return ValueError(
        f"the model takes {part} of the {size} elements of the plate '{plate}', which count whole "
        f"here, and its arguments are not of that length ({where}): pass all rows of the data"
    )


def no_prior_draws(reason: str) -> str:
    """Return the text that says why the prior cannot be drawn."""
    return "a prior is improper, or has no draws" + (f" ({reason})" if reason else "")
