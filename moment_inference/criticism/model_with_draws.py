"""A model with draws of its latent sites, and all it computes from them as an InferenceData."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from moment_calculus.errors import warn_user
from moment_calculus.predictions.mixtures import SampledSite
from moment_inference.criticism import arviz_access
from moment_inference.criticism.draws import Arrays, Draws
from moment_inference.response.data import count_masked


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
    def deterministic(self) -> list[str]:
        """Return the names of the deterministic sites."""
        return [name for name, site in self.sites.items() if site.kind == "deterministic"]

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


def part_of_plate(plate: str, rows: int, size: int, where: str) -> ValueError:
    """Return the error for ``rows`` of the ``size`` rows of a plate."""
    return ValueError(
        f"the model takes {rows} of the {size} elements of the plate '{plate}', which count whole "
        f"here, and its arguments are not of that length ({where}): pass all rows of the data"
    )


def no_prior_draws(reason: str) -> str:
    """Return the text that says why the prior cannot be drawn."""
    return "a prior is improper, or has no draws" + (f" ({reason})" if reason else "")


RESERVED = ("chain", "draw")


@dataclass(frozen=True)
class ConversionOptions:
    """Options of a conversion: additional groups, and names of axes."""

    prior: int = 0  # number of prior draws
    # the model with the arguments of the option ``predictions``
    prediction_model: ModelWithDraws | None = None
    # names of axes by site or by argument
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Any] = field(default_factory=dict)  # coordinates by name of an axis


def build_inference_data(model: ModelWithDraws, draws: Draws, options: ConversionOptions) -> Any:
    """Return an ``InferenceData`` of draws and of what the model computes of them."""
    groups = _Groups(model, draws, options.dims, options.coords)
    groups.check_names()
    by_group = groups.of_posterior() | groups.of_data("observed_data", "constant_data")
    if options.prior:
        by_group |= groups.of_prior(model.prior(options.prior))
    if options.prediction_model is not None:
        predictions = _Groups(options.prediction_model, draws, options.dims, options.coords)
        by_group |= predictions.of_predictions()
    return arviz_access.inference_data(by_group)


def as_inference_data(
    posterior: Any, model: Any, data: tuple, options: dict[str, Any], convert: Callable[..., Any]
) -> Any:
    """Return ``posterior`` if it is an ``InferenceData``, otherwise convert it to one."""
    if arviz_access.is_inference_data(posterior):
        return posterior
    if model is None or posterior is None:
        raise TypeError("pass an InferenceData, or a model, its posterior and the data")
    return convert(model, posterior, *data, **{"num_prior_samples": 0, **options})


def split_arguments(given: tuple | Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Split the option ``predictions`` into positional and keyword arguments."""
    if isinstance(given, Mapping):
        return (), dict(given)
    if not isinstance(given, tuple):
        raise TypeError(
            "predictions takes the model's arguments, a tuple or a dictionary by name, not "
            f"{type(given).__name__}"
        )
    return given, {}


@dataclass(frozen=True)
class _Groups:
    """The groups of one model and draws, with names and coordinates of their axes."""

    model: ModelWithDraws
    draws: Draws
    dims: Mapping[str, Sequence[str]]  # the user's names of axes by site or argument
    coords: Mapping[str, Any]  # the user's coordinates by name of an axis

    def of_posterior(self) -> dict[str, Any]:
        """Return the groups that have an axis of draws."""
        draws = self.draws
        evaluation = self.model.evaluate(draws.flat)
        attributes = {
            arviz_access.NO_DENSITY: draws.without_density,
            "importance_weights": draws.resampled_by,
        }
        densities = draws.by_chain({"lp": evaluation.log_joint})
        if draws.log_density is not None:
            densities["log_q"] = draws.log_density
        sites = {**draws.values, **draws.by_chain(evaluation.deterministic)}
        likelihood = draws.by_chain(evaluation.log_likelihood)
        return {
            **self._sites("posterior", sites, {n: text for n, text in attributes.items() if text}),
            **self._group("sample_stats", {**densities, **draws.statistics}, {}),
            **self._sites("posterior_predictive", draws.by_chain(evaluation.predictive)),
            **self._sites("log_likelihood", likelihood, event=False),
        }

    def of_prior(self, prior: PriorDraws | str) -> dict[str, Any]:
        """Return ``prior`` and ``prior_predictive``; warn if there is no prior."""
        if isinstance(prior, str):
            warn_user(f"there is no group 'prior': {prior}", UserWarning)
            return {}
        groups: dict[str, Any] = {}
        for group, arrays in (("prior", prior.sites), ("prior_predictive", prior.predictive)):
            groups |= self._sites(group, {name: value[None] for name, value in arrays.items()})
        return groups

    def of_predictions(self) -> dict[str, Any]:
        """Return the predictions, without coordinates of other rows."""
        sizes = {
            axis: size
            for name, site in self.model.sites.items()
            for axis, size in zip(self._axes(name), site.shape, strict=True)
        }
        fitting = {name: part for name, part in self.coords.items() if len(part) == sizes.get(name)}
        groups = _Groups(self.model, self.draws, self.dims, fitting)
        arrays = self.draws.by_chain(self.model.replicate(self.draws.flat))
        predictions = groups._sites("predictions", arrays)
        return predictions | groups.of_data(None, "predictions_constant_data")

    def of_data(self, observed: str | None, constant: str) -> dict[str, Any]:
        """Return the groups of the observations and of the constant data."""
        arrays, groups = self.model.constants, {}
        if observed:
            groups = self._sites(observed, self.model.observed, has_draws=False)
        dims = {name: self._axes_of_argument(name, value) for name, value in arrays.items()}
        return groups | self._group(constant, arrays, dims, has_draws=False)

    def _sites(
        self,
        group: str,
        arrays: Arrays,
        attributes: Mapping[str, str] | None = None,
        *,
        event: bool = True,  # whether the arrays have the axes of events
        has_draws: bool = True,
    ) -> dict[str, Any]:
        dims = {name: self._axes(name, event) for name in arrays}
        return self._group(group, arrays, dims, attributes, has_draws=has_draws)

    def _group(
        self,
        group: str,
        arrays: Arrays,
        dims: Mapping[str, list[str]],
        attributes: Mapping[str, str] | None = None,
        *,
        has_draws: bool = True,
    ) -> dict[str, Any]:
        """Return one group by its name; nothing if it has no arrays."""
        if not arrays:
            return {}
        names = {name for axes in dims.values() for name in axes}
        coords = {**self._plate_coordinates(), **self.coords}
        ours = {"inference_library": "pyro-moments", "source": self.draws.source}
        data_set = arviz_access.dataset(
            arrays,
            dims,
            {name: values for name, values in coords.items() if name in names},
            {**ours, **(attributes or {})},
            has_draws=has_draws,
        )
        return {group: data_set}

    def check_names(self) -> None:
        """Raise ValueError if the user names axes of ArviZ, or of what does not exist."""
        if clash := {name for dims in self.dims.values() for name in dims} & {*RESERVED}:
            raise ValueError(f"dims must not have the names {sorted(clash)}: ArviZ's own axes")
        names = [*self.model.sites, *self.model.constants]
        if unknown := [name for name in self.dims if name not in names]:
            raise ValueError(
                f"dims names {', '.join(map(repr, unknown))}; there are "
                f"{', '.join(map(repr, names))}"
            )

    def _axes(self, name: str, event: bool = True) -> list[str]:
        """Return names of the axes of a site, with or without those of its events."""
        site = self.model.sites[name]
        rank = len(site.shape)
        names = [f"{name}_dim_{axis}" for axis in range(rank)]
        for plate, (axis, size) in site.plates.items():
            if rank + axis >= 0 and site.shape[axis] == size:
                names[axis] = self._axis_of(plate)
        names = self._of_user(f"site '{name}'", name, site.shape) or names
        return names if event or not site.event else names[: -site.event]

    def _axes_of_argument(self, name: str, value: np.ndarray) -> list[str]:
        names = [f"{name}_dim_{axis}" for axis in range(value.ndim)]
        plates = [site.plates for site in self.model.sites.values() if site.kind == "observed"]
        common = set.intersection(*map(set, plates)) if plates else set()
        if len(common) == 1 and value.ndim:  # rows of the plate that all observations share
            (plate,) = common
            if plates[0][plate][1] == len(value):
                names[0] = self._axis_of(plate)
        return self._of_user(f"argument '{name}'", name, value.shape) or names

    def _of_user(self, what: str, name: str, shape: tuple[int, ...]) -> list[str]:
        """Return the user's names of axes; raise ValueError if their number is wrong."""
        if (dims := self.dims.get(name)) is None:
            return []
        if len(dims) != len(shape):
            raise ValueError(
                f"dims names {len(dims)} axes of {what} ({', '.join(dims)}), which has "
                f"{len(shape)}: its shape is {shape}"
            )
        return list(dims)

    def _axis_of(self, plate: str) -> str:
        """Return the name of a plate's axis: the plate's, unless that is taken."""
        taken: Iterable[str] = {*self.model.sites, *self.model.constants, *RESERVED}
        return f"{plate}_plate" if plate in taken else plate

    def _plate_coordinates(self) -> dict[str, np.ndarray]:
        return {
            self._axis_of(plate): np.arange(size)
            for site in self.model.sites.values()
            for plate, (_, size) in site.plates.items()
        }
