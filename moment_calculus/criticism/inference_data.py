"""Convert draws, with all that a model computes from them, to an ``InferenceData``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moment_calculus.criticism import arviz_access
from moment_calculus.criticism.draws import Arrays, Draws
from moment_calculus.criticism.model_with_draws import ModelWithDraws, PriorDraws
from moment_calculus.errors import warn_user

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
    if model is None:
        raise TypeError("loo takes an InferenceData, or a posterior, its model and the data")
    return convert(posterior, model, *data, **{"num_prior_samples": 0, **options})


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
