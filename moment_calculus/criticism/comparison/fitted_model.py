"""A trained guide with its model and data: the interface of comparisons and diagnoses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from moment_calculus.criticism.comparison.predictions import Mixture, PredictionDraws
from moment_calculus.criticism.comparison.sites import Coordinates
from moment_calculus.criticism.comparison.wording import (
    BY_DRAWS,
    improper_priors,
    random_density,
    without_prior,
)
from moment_calculus.criticism.containers.draws import Arrays, Draws
from moment_calculus.criticism.containers.groups import (
    BoundModel,
    ConversionOptions,
    build_inference_data,
)
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.predictions.mixtures import SampledSite
from moment_calculus.predictions.site import PredictedSite
from moment_calculus.response.problem import Latent
from moment_calculus.response.response import Response

LINEAR_RESPONSE = "linear response"
DRAWS = 1000  # draws of predictions for distances, and of guides for leave-one-out
MOMENT_DRAWS = 10_000  # draws of guides whose moments are not known
MAX_PREDICTIONS = 2**24  # largest number of predictions of all draws in memory at once
CLOSE = 1e-4  # relative difference up to which coordinates count as the same
REFUSALS = (ValueError, UnsupportedMoments)


class RunnableModel(BoundModel, Protocol):
    """A model of one framework with its data, which MCMC and predictions can run."""

    @property
    def improper(self) -> list[str]:
        """Names of latent sites whose prior is improper."""

    @property
    def masked(self) -> Mapping[str, int]:
        """Number of masked elements by observed site, for the sites that have any."""

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


class FittedModel(ABC):
    """A trained guide with its model and data; each framework derives its own class."""

    by_draws: Any = None  # ``Fit.by_draws`` if the guide was trained by ``fit``

    def __init__(self, framework: str, guide: Any, test: tuple | None) -> None:
        if test is not None and not isinstance(test, tuple):
            raise TypeError(
                f"test takes arguments of the model, a tuple, not {type(test).__name__}: test=(x,)"
            )
        self.framework, self.guide, self.test = framework, guide, test
        self.source, self.notes = type(guide).__name__, list[str]()
        self.refusal: Exception | None = None  # why there is no linear response

    @property
    @abstractmethod
    def model(self) -> RunnableModel:
        """Return the model with the data."""

    @property
    @abstractmethod
    def test_model(self) -> RunnableModel:
        """Return the model with the arguments for predictions."""

    @abstractmethod
    def running(self) -> AbstractContextManager:
        """Return a context in which the model runs with the trained parameters."""

    @abstractmethod
    def draw(self, source: str, count: int) -> Draws:
        """Draw ``count`` times from the guide or its linear response, as ``source`` says."""

    @abstractmethod
    def latents(self) -> Mapping[str, Latent]:
        """Return each latent site as a function of Gaussian coordinates, or raise an error."""

    @abstractmethod
    def linear_response(self) -> Response:
        """Compute the linear response, or raise ValueError or UnsupportedMoments."""

    @abstractmethod
    def predict(self) -> dict[str, Any]:
        """Return the guide's predictions by site, with the arguments for predictions."""

    @abstractmethod
    def sample(self, prediction: PredictedSite, count: int) -> np.ndarray:
        """Draw ``count`` times from the prediction of a site."""

    @cached_property
    def response(self) -> Response | str:
        """Return the linear response, or why there is none."""
        try:
            return self.linear_response()
        except REFUSALS as error:
            self.refusal = error
            return str(error)

    @property
    def sources(self) -> list[str]:
        """Return the names of the approximations: the guide, and linear response if it exists."""
        return [self.source] if isinstance(self.response, str) else [self.source, LINEAR_RESPONSE]

    def check_density(self) -> None:
        """Raise ValueError if the model's density is random; note what NUTS cannot match."""
        first = self.draws(self.source).first
        twice = {name: np.stack([value, value]) for name, value in first.items()}
        with self.running():
            one, other = self.model.log_joint(twice)
            improper = self.model.improper
        if one != other:
            raise random_density(self.framework)
        if reason := getattr(self.guide, "why_no_prior", ""):
            self.notes.append(without_prior(self.source, reason))
        if improper:
            self.notes.append(improper_priors(improper))

    def log_joint(self, draws: Draws) -> np.ndarray:
        """Return log p(latent sites, observations) of draws, [chains · draws]."""
        with self.running():
            return self.model.log_joint(draws.flat)

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Transform draws by site from their supports to the unconstrained space."""
        with self.running():
            return self.model.unconstrained(values)

    @property
    def observed(self) -> Arrays:
        """Return values of the observed sites that have one."""
        with self.running():
            return self.model.observed

    @property
    def held_out(self) -> Arrays:
        """Return values of the observed sites among the arguments for predictions."""
        with self.running():
            return self.test_model.observed

    def masked(self, held_out: bool) -> Mapping[str, int]:
        """Return the number of masked elements by observed site, of the data or held-out data."""
        with self.running():
            return (self.test_model if held_out else self.model).masked

    @cached_property
    def _draws(self) -> dict[str, Draws]:
        return {}

    def draws(self, source: str) -> Draws:
        """Return draws of an approximation, the same ones at each call."""
        if source not in self._draws:
            self._draws[source] = self.draw(source, DRAWS)
        return self._draws[source]

    @property
    def latent(self) -> list[str]:
        """Return the names of the latent sites."""
        return [*self.draws(self.source).values]

    def container(self, draws: Draws) -> Any:
        """Return an ``InferenceData`` of draws, without the prior."""
        with self.running():
            return build_inference_data(self.model, draws, ConversionOptions())

    def coordinates(self, source: str) -> Coordinates:
        """Return moments of an approximation on the chains' unconstrained space."""
        try:
            return self._exact_coordinates(source)
        except REFUSALS as error:
            note = BY_DRAWS.format(source=source, count=MOMENT_DRAWS, reason=error)
            self.notes.append(note)
        values = self.draw(source, MOMENT_DRAWS).values
        return Coordinates.of_draws(self.unconstrained(values))

    def _exact_coordinates(self, source: str) -> Coordinates:
        latents = self.latents()
        self._check_coordinates(latents)
        locs = {name: latent.loc for name, latent in latents.items()}
        if source == self.source:
            return Coordinates(locs, {name: latent.scale for name, latent in latents.items()})
        response = self.response
        assert not isinstance(response, str)
        scales = {name: np.asarray(response.standard_deviation(name)) for name in latents}
        return Coordinates(locs, scales)

    def _check_coordinates(self, latents: Mapping[str, Latent]) -> None:
        """Raise ValueError if the guide is Gaussian on other coordinates than the chains'."""
        draws_on_support = {
            n: np.asarray(one.to_support(self.array(one.loc))) for n, one in latents.items()
        }
        for name, values in self.unconstrained(draws_on_support).items():
            loc = latents[name].loc
            if values.shape != loc.shape or not np.allclose(values, loc, rtol=CLOSE, atol=CLOSE):
                raise ValueError(f"the guide has other coordinates of '{name}' than the chains")

    @abstractmethod
    def array(self, values: np.ndarray) -> Any:
        """Convert a NumPy array to the framework."""

    def prediction_draws(self, source: str) -> dict[str, PredictionDraws]:
        """Return mean, variance and draws of each prediction of an approximation."""
        site_predictions = self.predictions(source)
        return {
            name: PredictionDraws(*_moments(site), self._outcomes(site, DRAWS))
            for name, site in site_predictions.items()
        }

    def predictions(self, source: str) -> dict[str, PredictedSite]:
        """Return the predictions of an approximation by observed site."""
        if source == self.source:
            site_predictions = self.predict()
        else:
            assert not isinstance(self.response, str)
            site_predictions = self.response.predict(*(self.test or ()))
        return {
            name: site for name, site in site_predictions.items() if isinstance(site, PredictedSite)
        }

    def mixtures(self, chains: Draws) -> dict[str, Mixture]:
        """Return the prediction of each site by all draws of the chains."""
        with self.running():
            size = sum(int(np.prod(site.shape)) for site in self.test_model.sites.values())
            thinned = chains.thinned(max(2, MAX_PREDICTIONS // max(1, size)))
            site_predictions = self.test_model.mixtures(thinned.flat)
        return {name: self._mixture(thinned.shape, site) for name, site in site_predictions.items()}

    def _mixture(self, shape: tuple[int, int], site: SampledSite) -> Mixture:
        means = np.asarray(site.parts.mean, np.float64)
        return Mixture(shape, means, *_moments(site), self._outcomes(site, 2 * DRAWS))

    def _outcomes(self, site: PredictedSite, count: int) -> np.ndarray | None:
        """Draw observations; return None where the mean is a vector of class probabilities."""
        draws = self.sample(site, count)
        return draws if draws.shape[1:] == tuple(site.mean.shape) else None


def _moments(site: PredictedSite) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(site.mean, np.float64), np.asarray(site.variance, np.float64)
