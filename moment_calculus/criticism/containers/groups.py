"""Build all groups of an ``InferenceData`` from draws, a model and its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from moment_calculus.criticism.containers import arviz_access
from moment_calculus.criticism.containers.draws import (
    Arrays,
    Draws,
    Evaluation,
    FromApproximation,
    FromResampling,
    NoDensity,
    PriorDraws,
)
from moment_calculus.criticism.containers.leave_one_out import NO_DENSITY_ATTRIBUTE
from moment_calculus.criticism.containers.sites import Dimensions, SiteAxes, named_axes
from moment_calculus.errors import warn_user


class BoundModel(Protocol):
    """A model of one framework together with its arguments."""

    @property
    def sites(self) -> Mapping[str, SiteAxes]:
        """Latent, deterministic and observed sites by name; "observed" are all that could be."""

    @property
    def observed(self) -> Arrays:
        """Values of the observed sites that have a value."""

    @property
    def constants(self) -> Arrays:
        """The other arrays that the model is called with, by name."""

    def evaluate(self, values: Arrays) -> Evaluation:
        """Evaluate the model at draws of its latent sites.

        Args:
            values: by site, [draws, ...].
        """

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Return log p(latent sites, observations) of every draw, [draws].

        Args:
            values: by latent site, [draws, ...].
        """

    def replicate(self, values: Arrays) -> Arrays:
        """Draw the sites that can be observed, and the deterministic ones, given latent sites.

        Args:
            values: by latent site, [draws, ...].
        """

    def prior(self, count: int) -> PriorDraws | str:
        """Draw from the prior, or return the reason why that is not possible.

        Args:
            count: number of draws.
        """


@dataclass(frozen=True)
class ConversionOptions:
    """Options of a conversion: which groups to add to the posterior, and names of axes."""

    prior: int = 0  # number of prior draws
    prediction_model: BoundModel | None = (
        None  # the model with the arguments of the option ``predictions``
    )
    # names of axes by site or by argument
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Any] = field(default_factory=dict)  # coordinates by name of an axis


def build_inference_data(model: BoundModel, draws: Draws, options: ConversionOptions) -> Any:
    """Return an ``InferenceData`` of draws and of everything that the model computes from them."""
    groups = _Groups(Dimensions(model.sites, model.constants, options.dims, options.coords), draws)
    groups.dimensions.check_known()
    by_group = groups.of_posterior(model.evaluate(draws.flat))
    by_group |= groups.of_data(model, "observed_data", "constant_data")
    if options.prior:
        by_group |= groups.of_prior(model.prior(options.prior))
    if options.prediction_model is not None:
        by_group |= _predictions(options.prediction_model, draws, options)
    return arviz_access.inference_data(by_group)


def _predictions(model: BoundModel, draws: Draws, options: ConversionOptions) -> dict[str, Any]:
    dimensions = Dimensions(model.sites, model.constants, options.dims, {})
    groups = _Groups(
        replace(dimensions, coords=dimensions.matching_coordinates(options.coords)), draws
    )
    shape = draws.shape
    arrays = {
        name: value.reshape(*shape, *value.shape[1:])
        for name, value in model.replicate(draws.flat).items()
    }
    predictions = {"predictions": groups.to_group(arrays)}
    constants = groups.of_data(model, None, "predictions_constant_data")
    return predictions | constants


@dataclass(frozen=True)
class _Groups:
    dimensions: Dimensions
    draws: Draws

    def of_posterior(self, evaluation: Evaluation) -> dict[str, Any]:
        """Return the groups that have an axis of draws."""
        origin, by_chain = self.draws.origin, self._by_chain
        reason = {NO_DENSITY_ATTRIBUTE: origin.reason} if isinstance(origin, NoDensity) else {}
        if isinstance(origin, FromResampling):
            reason = {"importance_weights": origin.weights}
        densities = {"lp": by_chain(evaluation.log_joint)}
        if isinstance(origin, FromApproximation):
            densities["log_q"] = origin.log_density
        sites = {**self.draws.values, **_map_arrays(by_chain, evaluation.deterministic)}
        likelihood = _map_arrays(by_chain, evaluation.log_likelihood)
        groups = {
            "posterior": self.to_group(sites, attributes=reason),
            "sample_stats": self.to_group({**densities, **self.draws.statistics}, named=False),
            "posterior_predictive": self.to_group(_map_arrays(by_chain, evaluation.predictive)),
            "log_likelihood": self.to_group(likelihood, event=False),
        }
        return {name: group for name, group in groups.items() if group.data_vars}

    def of_prior(self, prior: PriorDraws | str) -> dict[str, Any]:
        """Return the groups ``prior`` and ``prior_predictive``; warn if there is no prior."""
        if isinstance(prior, str):
            warn_user(f"there is no group 'prior': {prior}", UserWarning)
            return {}
        one_chain = lambda value: value[None]  # noqa: E731
        groups = {
            "prior": self.to_group(_map_arrays(one_chain, prior.sites)),
            "prior_predictive": self.to_group(_map_arrays(one_chain, prior.predictive)),
        }
        return {name: group for name, group in groups.items() if group.data_vars}

    def of_data(self, model: BoundModel, observed: str | None, constant: str) -> dict[str, Any]:
        """Return the groups of the observations and of the constant data."""
        groups = {}
        if observed and model.observed:
            groups[observed] = self.to_group(model.observed, has_draws=False)
        if model.constants:
            dims = {name: self._of_argument(name, part) for name, part in model.constants.items()}
            coords = self.dimensions.coordinates(
                {name for names in dims.values() for name in names}
            )
            groups[constant] = arviz_access.dataset(
                model.constants, dims, coords, self._attributes, has_draws=False
            )
        return groups

    def _of_argument(self, name: str, value: np.ndarray) -> list[str]:
        if (user_dims := self.dimensions.user_dims.get(name)) is not None:
            return named_axes(f"argument '{name}'", user_dims, value.shape)
        names = [f"{name}_dim_{axis}" for axis in range(value.ndim)]
        plate = self.dimensions.data_plate
        if value.ndim and plate is not None and plate[1] == len(value):
            names[0] = plate[0]
        return names

    def to_group(
        self,
        arrays: Arrays,
        *,
        event: bool = True,
        named: bool = True,
        has_draws: bool = True,
        attributes: Mapping[str, str] | None = None,
    ) -> Any:
        """Return one group of sites whose axes have names."""
        dims = {name: self.dimensions.of(name, event) for name in arrays} if named else {}
        coords = self.dimensions.coordinates({name for part in dims.values() for name in part})
        attributes = {**self._attributes, **(attributes or {})}
        return arviz_access.dataset(arrays, dims, coords, attributes, has_draws=has_draws)

    @property
    def _attributes(self) -> dict[str, str]:
        return {"inference_library": "pyro-moments", "source": self.draws.source}

    def _by_chain(self, value: np.ndarray) -> np.ndarray:
        return value.reshape(*self.draws.shape, *value.shape[1:])


def _map_arrays(function: Any, arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: function(value) for name, value in arrays.items()}
