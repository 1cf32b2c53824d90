"""Build all groups of an ``InferenceData`` from draws, a model and its arguments."""

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
class Wanted:
    """Options of a conversion: which groups to add to the posterior, and names of axes."""

    prior: int = 0  # number of prior draws
    predicted: HostModel | None = None  # the model with the arguments of the option ``predictions``
    # names of axes by site or by argument
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Any] = field(default_factory=dict)  # coordinates by name of an axis


def converted(model: HostModel, draws: Draws, wanted: Wanted) -> Any:
    """Return an ``InferenceData`` of draws and of everything that the model computes from them."""
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
        """Return the groups that have an axis of draws."""
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
        """Return the groups ``prior`` and ``prior_predictive``; warn if there is no prior."""
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
        """Return the groups of the observations and of the constant data."""
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
        """Return one group of sites whose axes have names."""
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
