"""Posteriors as the frameworks give them, and a trained guide with its model and data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.criticism.comparison.differences import Coordinates, PredictionDraws
from moment_calculus.criticism.draws import Arrays, Draws, proposal_count, resample
from moment_calculus.criticism.inference_data import (
    ConversionOptions,
    build_inference_data,
    split_arguments,
)
from moment_calculus.criticism.model_with_draws import ModelWithDraws
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.optimisation.outcome import Fit
from moment_calculus.predictions.mixtures import SampledSite
from moment_calculus.predictions.site import PredictedSite, checked_count
from moment_calculus.response.inverse_curvature import TOLERANCE
from moment_calculus.response.problem import Latent, Problem
from moment_calculus.response.response import Response

LINEAR_RESPONSE = "linear response"
DRAWS = 1000  # draws of predictions for distances, and of guides for leave-one-out
MOMENT_DRAWS = 10_000  # draws of guides whose moments are not known
MAX_PREDICTIONS = 2**24  # largest number of predictions of all draws in memory at once
CLOSE = 1e-4  # relative difference up to which coordinates count as the same
REFUSALS = (ValueError, UnsupportedMoments)


class Posterior(ABC):
    """A guide, a linear response or finished chains, with a model and its arguments."""

    framework: str
    guide: Any  # None unless it is a guide

    @abstractmethod
    def running(self) -> AbstractContextManager:
        """Return a context in which the model runs with the trained parameters."""

    @abstractmethod
    def draws(self, count: int) -> Draws:
        """Draw ``count`` times, the same at each call if random keys are explicit."""

    @abstractmethod
    def generator(self) -> np.random.Generator:
        """Return a random generator for resampling."""

    @abstractmethod
    def model(self, first: Arrays, batch_size: int | None = None) -> ModelWithDraws:
        """Return the model; ``first`` is one draw of each latent site."""

    @abstractmethod
    def with_arguments(self, model: Any, args: tuple, named: Mapping[str, Any]) -> ModelWithDraws:
        """Return a model of :meth:`model` with other arguments."""

    @abstractmethod
    def problem(self, objective: Any) -> Problem:
        """Return a guide and its model at the trained parameters, for linear response."""

    @abstractmethod
    def linear_response(self, problem: Any, tolerance: float) -> Response:
        """Compute the linear response, or raise ValueError or UnsupportedMoments."""

    @abstractmethod
    def same_for(self, other: Any) -> Posterior:
        """Return a linear response, or chains, with the same model and arguments."""

    @abstractmethod
    def predict(self, test: tuple | None) -> dict[str, Any]:
        """Return a guide's predictions by site; for the data if ``test`` is None."""

    @abstractmethod
    def sample(self, prediction: Any, count: int) -> np.ndarray:
        """Draw ``count`` times from the prediction of a site."""


def no_posterior(posterior: object, framework: str) -> TypeError:
    """Return the error for an object of which no posterior draws can be made."""
    return TypeError(
        f"posterior is a trained guide, what fit returned, a LinearResponse or an MCMC of "
        f"{framework}, not {type(posterior).__name__}"
    )


def chains_not_run() -> ValueError:
    """Return the error for an MCMC object that has no draws yet."""
    return ValueError("the MCMC has no draws: call its run(...) first")


def convert(
    posterior: Posterior,
    num_samples: int,
    importance_weights: bool,
    num_prior_samples: int,
    predictions: tuple | Mapping[str, Any] | None,
    names: tuple[Mapping | None, Mapping | None],  # the options ``dims`` and ``coords``
    batch_size: int | None,
) -> Any:
    """Return an ``InferenceData``; arguments as of ``to_inference_data``."""
    count = checked_count(num_samples)
    draws = posterior.draws(proposal_count(count) if importance_weights else count)
    generator = posterior.generator() if importance_weights else None
    with posterior.running():
        model = posterior.model(draws.first, batch_size)
        if generator is not None:
            draws = resample(draws, model.log_joint, generator, count)
        other = None
        if predictions is not None:
            other = posterior.with_arguments(model, *split_arguments(predictions))
        dims, coords = (part or {} for part in names)
        options = ConversionOptions(num_prior_samples, other, dims, coords)
        return build_inference_data(model, draws, options)


class FittedModel:
    """A trained guide with its model and data, for comparisons and diagnoses."""

    def __init__(self, posterior: Posterior, fit: Any, objective: Any, test: tuple | None) -> None:
        # fit: the guide, or what ``fit`` returned.
        if test is not None and not isinstance(test, tuple):
            raise TypeError(
                f"test takes arguments of the model, a tuple, not {type(test).__name__}: test=(x,)"
            )
        if posterior.guide is None:
            raise TypeError(
                f"guide is a trained guide, or what fit returned, not {type(fit).__name__}"
            )
        self.seconds: dict[str, float | None] = {}
        self.by_draws = None  # ``Fit.by_draws`` if the guide was trained by ``fit``
        if isinstance(fit, Fit):
            self.seconds["fit"], self.by_draws = sum(fit.seconds.values()), fit.by_draws
        self.posterior, self.test, self._objective = posterior, test, objective
        self.framework, self.source = posterior.framework, type(posterior.guide).__name__
        self.notes: list[str] = []
        self.refusal: Exception | None = None  # why there is no linear response
        self._draws: dict[str, Draws] = {}

    @cached_property
    def model(self) -> ModelWithDraws:
        """Return the model with the data."""
        return self.posterior.model(self.draws(self.source).first)

    @cached_property
    def test_model(self) -> ModelWithDraws:
        """Return the model with the arguments for predictions."""
        if self.test is None:
            return self.model
        return self.posterior.with_arguments(self.model, self.test, {})

    @cached_property
    def _problem(self) -> Problem:
        return self.posterior.problem(self._objective)

    @cached_property
    def response(self) -> Response | str:
        """Return the linear response, or why there is none."""
        try:
            return self.posterior.linear_response(self._problem, TOLERANCE)
        except REFUSALS as error:
            self.refusal = error
            return str(error)

    @property
    def sources(self) -> list[str]:
        """Return the names of the approximations: guide, and linear response if any."""
        return [self.source] if isinstance(self.response, str) else [self.source, LINEAR_RESPONSE]

    def draw(self, source: str, count: int) -> Draws:
        """Draw ``count`` times from the guide or from its linear response."""
        if source == self.source:
            return self.posterior.draws(count)
        return self.posterior.same_for(self.response).draws(count)

    def draws(self, source: str) -> Draws:
        """Return draws of an approximation, the same ones at each call."""
        if source not in self._draws:
            self._draws[source] = self.draw(source, DRAWS)
        return self._draws[source]

    @property
    def latent(self) -> list[str]:
        """Return the names of the latent sites."""
        return [*self.draws(self.source).values]

    def check_density(self) -> None:
        """Raise ValueError if the density is random; note what NUTS cannot match."""
        first = self.draws(self.source).first
        twice = {name: np.stack([value, value]) for name, value in first.items()}
        with self.posterior.running():
            one, other = self.model.log_joint(twice)
            improper = self.model.improper
        if one != other:
            raise ValueError(
                "two evaluations of the model's log density at one draw differ: it draws random "
                f"numbers that belong to no site, such as masks of dropout. {self.framework}'s "
                "NUTS would keep those of one draw, and sample another model; make them sites, or "
                "switch the layers to evaluation"
            )
        if reason := getattr(self.posterior.guide, "why_no_prior", ""):
            self.notes.append(
                f"{self.source} {reason}: what it says of single weights has no counterpart in "
                "NUTS, which draws no masks and has the model's own priors; compare predictions"
            )
        if improper:
            self.notes.append(
                f"the priors of {', '.join(map(repr, improper))} are improper: NUTS is a reference "
                "only if the posterior is proper, of which divergences and R-hat tell"
            )

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Return log p(latent sites, observations) of flat draws, [draws]."""
        with self.posterior.running():
            return self.model.log_joint(values)

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Transform draws by site from their supports to the unconstrained space."""
        with self.posterior.running():
            return self.model.unconstrained(values)

    @property
    def observed(self) -> Arrays:
        """Return values of the observed sites that have one."""
        with self.posterior.running():
            return self.model.observed

    @property
    def held_out(self) -> Arrays:
        """Return values of the observed sites among the arguments for predictions."""
        with self.posterior.running():
            return self.test_model.observed

    def masked(self, held_out: bool) -> Mapping[str, int]:
        """Return the number of masked elements by observed site."""
        with self.posterior.running():
            return (self.test_model if held_out else self.model).masked

    def container(self, draws: Draws) -> Any:
        """Return an ``InferenceData`` of draws, without the prior."""
        with self.posterior.running():
            return build_inference_data(self.model, draws, ConversionOptions())

    def coordinates(self, source: str) -> Coordinates:
        """Return moments of an approximation on the chains' unconstrained space."""
        try:
            return self._exact_coordinates(source)
        except REFUSALS as error:
            note = f"moments of {source} are those of {MOMENT_DRAWS} draws: {error}"
            self.notes.append(note)
        values = self.draw(source, MOMENT_DRAWS).values
        return Coordinates.of_draws(self.unconstrained(values))

    def _exact_coordinates(self, source: str) -> Coordinates:
        latents = {latent.name: latent for latent in self._problem.latents}
        self._check_coordinates(latents)
        locs = {name: latent.loc for name, latent in latents.items()}
        if source == self.source:
            return Coordinates(locs, {name: latent.scale for name, latent in latents.items()})
        response = self.response
        assert not isinstance(response, str)
        scales = {name: np.asarray(response.standard_deviation(name)) for name in latents}
        return Coordinates(locs, scales)

    def _check_coordinates(self, latents: Mapping[str, Latent]) -> None:
        """Raise ValueError if the guide's coordinates are not those of the chains."""
        on_support = {
            name: np.asarray(latent.to_support(self._problem.array(latent.loc)))
            for name, latent in latents.items()
        }
        for name, values in self.unconstrained(on_support).items():
            loc = latents[name].loc
            if values.shape != loc.shape or not np.allclose(values, loc, rtol=CLOSE, atol=CLOSE):
                raise ValueError(f"the guide has other coordinates of '{name}' than the chains")

    def predictions(self, source: str) -> dict[str, PredictedSite]:
        """Return the predictions of an approximation by observed site."""
        if source == self.source:
            sites = self.posterior.predict(self.test)
        else:
            assert not isinstance(self.response, str)
            sites = self.response.predict(*(self.test or ()))
        return {name: site for name, site in sites.items() if isinstance(site, PredictedSite)}

    def prediction_draws(self, source: str) -> dict[str, PredictionDraws]:
        """Return mean, variance and draws of each prediction of an approximation."""
        predictions = self.predictions(source)
        return {name: self._prediction(site, DRAWS) for name, site in predictions.items()}

    def mixtures(self, draws: Draws, most: int) -> tuple[Draws, Mapping[str, SampledSite]]:
        """Return predictions by all draws, thinned to ``most`` numbers in all."""
        with self.posterior.running():
            size = sum(int(np.prod(site.shape)) for site in self.test_model.sites.values())
            thinned = draws.thinned(max(2, most // max(1, size)))
            return thinned, self.test_model.mixtures(thinned.flat)

    def prediction_of_chains(self, chains: Draws) -> dict[str, PredictionDraws]:
        """Return the prediction of each site by all draws of the chains."""
        thinned, sites = self.mixtures(chains, MAX_PREDICTIONS)
        means = {name: np.asarray(site.parts.mean, np.float64) for name, site in sites.items()}
        by_chain = thinned.by_chain(means)
        return {
            name: self._prediction(site, 2 * DRAWS, by_chain[name]) for name, site in sites.items()
        }

    def _prediction(
        self, site: PredictedSite, count: int, each_mean: np.ndarray | None = None
    ) -> PredictionDraws:
        mean, variance = (np.asarray(part, np.float64) for part in (site.mean, site.variance))
        draws = self.posterior.sample(site, count)
        # The mean of classes is a vector of probabilities, of which draws are none.
        outcomes = draws if draws.shape[1:] == tuple(site.mean.shape) else None
        return PredictionDraws(mean, variance, outcomes, each_mean)
