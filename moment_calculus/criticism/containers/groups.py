"""The groups of an ``InferenceData``: what draws, a model and its arguments tell together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from moment_calculus.criticism.containers import arviz_line
from moment_calculus.criticism.containers.draws import (
    Approximation,
    Arrays,
    Draws,
    Evaluation,
    PriorDraws,
    Resampled,
    WithoutDensity,
)
from moment_calculus.criticism.containers.leave_one_out import REASON
from moment_calculus.criticism.containers.sites import Dimensions, SiteAxes, named_axes
from moment_calculus.refusals.notices import warn_user


class HostModel(Protocol):
    """A model of a host with its arguments."""

    @property
    def sites(self) -> Mapping[str, SiteAxes]:
        """Its latent, deterministic and observed sites; what may be observed counts as observed."""

    @property
    def observed(self) -> Arrays:
        """Values of the observed sites that have one."""

    @property
    def constants(self) -> Arrays:
        """The other arrays that it is called with, by name."""

    def evaluate(self, values: Arrays) -> Evaluation:
        """What it says of draws of its latent sites.

        Args:
            values: by site, [draws, ...].
        """

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Log density of draws of its latent sites and the observations together, [draws].

        Args:
            values: by site, [draws, ...].
        """

    def replicate(self, values: Arrays) -> Arrays:
        """Draws of the sites that may be observed, and deterministic ones, given latent sites.

        Args:
            values: by site, [draws, ...].
        """

    def prior(self, count: int) -> PriorDraws | str:
        """Draws of the prior, or why there are none.

        Args:
            count: how many.
        """


@dataclass(frozen=True)
class Wanted:
    """What is wanted of a conversion besides the posterior.

    Args:
        prior: how many draws of the prior.
        predicted: the model with other arguments, whose observations are drawn; None for none.
        dims: names of axes by site, or by name of an argument.
        coords: along axes.
    """

    prior: int = 0
    predicted: HostModel | None = None
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Any] = field(default_factory=dict)


def converted(model: HostModel, draws: Draws, wanted: Wanted) -> Any:
    """An ``InferenceData`` of draws and all that a model says of them.

    Args:
        model: with the data.
        draws: of its latent sites.
        wanted: what besides.
    """
    groups = _Groups(Dimensions(model.sites, model.constants, wanted.dims, wanted.coords), draws)
    groups.dimensions.check_known()
    found = groups.of_posterior(model.evaluate(draws.flat))
    found |= groups.of_data(model, "observed_data", "constant_data")
    if wanted.prior:
        found |= groups.of_prior(model.prior(wanted.prior))
    if wanted.predicted is not None:
        found |= _predictions(wanted.predicted, draws, wanted)
    return arviz_line.inference_data(found)


def _predictions(model: HostModel, draws: Draws, wanted: Wanted) -> dict[str, Any]:
    known = Dimensions(model.sites, model.constants, wanted.dims, {})
    groups = _Groups(replace(known, coords=known.fitting(wanted.coords)), draws)
    shape = draws.shape
    arrays = {
        name: value.reshape(*shape, *value.shape[1:])
        for name, value in model.replicate(draws.flat).items()
    }
    found = {"predictions": groups.made(arrays)}
    constants = groups.of_data(model, None, "predictions_constant_data")
    return found | constants


@dataclass(frozen=True)
class _Groups:
    dimensions: Dimensions
    draws: Draws

    def of_posterior(self, found: Evaluation) -> dict[str, Any]:
        """Those that have an axis of draws."""
        law, wide = self.draws.law, self._by_chain
        reason = {REASON: law.reason} if isinstance(law, WithoutDensity) else {}
        if isinstance(law, Resampled):
            reason = {"importance_weights": law.weights}
        densities = {"lp": wide(found.log_joint)}
        if isinstance(law, Approximation):
            densities["log_q"] = law.log_density
        sites = {**self.draws.values, **_each(wide, found.deterministic)}
        likelihood = _each(wide, found.log_likelihood)
        groups = {
            "posterior": self.made(sites, attributes=reason),
            "sample_stats": self.made({**densities, **self.draws.statistics}, named=False),
            "posterior_predictive": self.made(_each(wide, found.predictive)),
            "log_likelihood": self.made(likelihood, event=False),
        }
        return {name: group for name, group in groups.items() if group.data_vars}

    def of_prior(self, found: PriorDraws | str) -> dict[str, Any]:
        """Prior and prior predictive."""
        if isinstance(found, str):
            warn_user(f"there is no group 'prior': {found}", UserWarning)
            return {}
        alone = lambda value: value[None]  # noqa: E731
        groups = {
            "prior": self.made(_each(alone, found.sites)),
            "prior_predictive": self.made(_each(alone, found.predictive)),
        }
        return {name: group for name, group in groups.items() if group.data_vars}

    def of_data(self, model: HostModel, observed: str | None, constant: str) -> dict[str, Any]:
        """What a model is called with."""
        found = {}
        if observed and model.observed:
            found[observed] = self.made(model.observed, drawn=False)
        if model.constants:
            dims = {name: self._of_argument(name, part) for name, part in model.constants.items()}
            coords = self.dimensions.coordinates(
                {name for names in dims.values() for name in names}
            )
            found[constant] = arviz_line.dataset(
                model.constants, dims, coords, self._attributes, drawn=False
            )
        return found

    def _of_argument(self, name: str, value: np.ndarray) -> list[str]:
        if (given := self.dimensions.given.get(name)) is not None:
            return named_axes(f"argument '{name}'", given, value.shape)
        found = [f"{name}_dim_{axis}" for axis in range(value.ndim)]
        plate = self.dimensions.data_plate
        if value.ndim and plate is not None and plate[1] == len(value):
            found[0] = plate[0]
        return found

    def made(
        self,
        arrays: Arrays,
        *,
        event: bool = True,
        named: bool = True,
        drawn: bool = True,
        attributes: Mapping[str, str] | None = None,
    ) -> Any:
        """A group of sites, whose axes have names."""
        dims = {name: self.dimensions.of(name, event) for name in arrays} if named else {}
        coords = self.dimensions.coordinates({name for part in dims.values() for name in part})
        attributes = {**self._attributes, **(attributes or {})}
        return arviz_line.dataset(arrays, dims, coords, attributes, drawn=drawn)

    @property
    def _attributes(self) -> dict[str, str]:
        return {"inference_library": "pyro-moments", "source": self.draws.source}

    def _by_chain(self, value: np.ndarray) -> np.ndarray:
        return value.reshape(*self.draws.shape, *value.shape[1:])


def _each(function: Any, arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: function(value) for name, value in arrays.items()}
