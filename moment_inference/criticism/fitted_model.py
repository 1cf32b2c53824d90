"""Adapters of posteriors, and a fitted model for comparisons with chains and diagnoses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.predictions.mixtures import SampledSite
from moment_calculus.predictions.site import PredictedSite, checked_count
from moment_inference.criticism.comparison.differences import Coordinates, PredictionDraws
from moment_inference.criticism.draws import Arrays, Draws, proposal_count, resample
from moment_inference.criticism.model_with_draws import (
    ConversionOptions,
    ModelWithDraws,
    build_inference_data,
    split_arguments,
)
from moment_inference.objectives.remembered import described, objective_of
from moment_inference.optimisation.outcome import Dependence, Fit
from moment_inference.response.inverse_curvature import TOLERANCE
from moment_inference.response.problem import Latent, Problem
from moment_inference.response.response import Response

LINEAR_RESPONSE = "linear response"
DRAWS = 1000  # draws of predictions for distances, and of guides for leave-one-out
MOMENT_DRAWS = 10_000  # draws of guides whose moments are not known
MAX_PREDICTIONS = 2**24  # largest number of predictions of all draws in memory at once
COORDINATE_TOLERANCE = 1e-4  # relative difference up to which coordinates count as the same
RESPONSE_ERRORS = (ValueError, UnsupportedMoments)


class Posterior(ABC):
    """A guide, a linear response or finished chains, with a model and its arguments."""

    framework: ClassVar[str]
    response_type: ClassVar[type[Response]]  # raises ValueError or UnsupportedMoments
    guide: Any  # or what ``nested`` returned; None for chains and linear responses

    @abstractmethod
    def model_context(self) -> AbstractContextManager:
        """Return a context in which the model runs with the trained parameters."""

    @abstractmethod
    def draws(self, count: int) -> Draws:
        """Draw ``count`` times, the same at each call if random keys are explicit."""

    @abstractmethod
    def generator(self) -> np.random.Generator:
        """Return a random generator for resampling."""

    @abstractmethod
    def model(self, example_draw: Arrays, batch_size: int | None = None) -> ModelWithDraws:
        """Return the model; ``example_draw`` is one draw of each latent site."""

    @abstractmethod
    def with_arguments(self, model: Any, args: tuple, named: Mapping[str, Any]) -> ModelWithDraws:
        """Return the model with other arguments."""

    @abstractmethod
    def problem(self, objective: Any) -> Problem:
        """Return a guide and its model at the trained parameters, for linear response."""

    @abstractmethod
    def with_approximation(self, other: Any) -> Posterior:
        """Return a linear response, or chains, with the same model and arguments."""

    @abstractmethod
    def predict(self, test: tuple | None, objective: Any) -> dict[str, Any]:
        """Return a guide's predictions as of an objective; for the data if ``test`` is None."""

    @abstractmethod
    def sample(self, prediction: Any, count: int) -> np.ndarray:
        """Draw ``count`` times from the prediction of a site."""


def posterior_type_error(posterior: object, framework: str) -> TypeError:
    """Return the error for an object of which no posterior draws can be made."""
    return TypeError(
        f"posterior is a trained guide, what fit or nested returned, a LinearResponse or an MCMC "
        f"of {framework}, not {type(posterior).__name__}"
    )


def missing_chains_error() -> ValueError:
    """Return the error for an MCMC object that has no draws yet."""
    return ValueError("the MCMC has no draws: call its run(...) first")


def convert(
    posterior: Posterior,
    num_samples: int,
    importance_weights: bool,
    num_prior_samples: int,
    predictions: tuple | Mapping[str, Any] | None,
    dims: Mapping | None,
    coords: Mapping | None,
    batch_size: int | None,
) -> Any:
    """Return an ``InferenceData``; arguments as of ``to_inference_data``."""
    count = checked_count(num_samples)
    draws = posterior.draws(proposal_count(count) if importance_weights else count)
    generator = posterior.generator() if importance_weights else None
    with posterior.model_context():
        model = posterior.model(draws.first, batch_size)
        if generator is not None:
            draws = resample(draws, model.log_joint, generator, count)
        prediction_model = None
        if predictions is not None:
            prediction_model = posterior.with_arguments(model, *split_arguments(predictions))
        options = ConversionOptions(num_prior_samples, prediction_model, dims or {}, coords or {})
        return build_inference_data(model, draws, options)


class FittedModel:
    """A trained guide with its model and data, for comparisons and diagnoses."""

    draws_posterior: ClassVar[bool] = False  # whether draws count as those of the posterior

    def __init__(self, posterior: Posterior, fit: Any, objective: Any, test: tuple | None) -> None:
        # fit: the guide, or what ``fit`` returned.
        if test is not None and not isinstance(test, tuple):
            raise TypeError(
                f"test takes arguments of the model, a tuple, not {type(test).__name__}: test=(x,)"
            )
        if posterior.guide is None:
            raise TypeError(
                "guide is a trained guide, or what fit or nested returned, not "
                f"{type(fit).__name__}"
            )
        self.seconds: dict[str, float | None] = {}
        self.by_draws = None  # ``Fit.by_draws`` if the guide was trained by ``fit``
        self.fit = fit if isinstance(fit, Fit) else None
        if self.fit is not None:
            self.seconds["fit"], self.by_draws = sum(fit.seconds.values()), fit.by_draws
        self.posterior, self.test = posterior, test
        self._objective = objective_of(fit, objective)
        self.framework, self.approximation = posterior.framework, type(posterior.guide).__name__
        self.notes: list[str] = []
        self.response_error: Exception | None = None  # why there is no linear response
        self.draw_count = DRAWS  # of each approximation
        self._draws: dict[str, Draws] = {}

    @property
    def dependence(self) -> Dependence:
        """Return whether means of the fit lean on each other; not known without a fit."""
        return Dependence() if self.fit is None else self.fit.dependence

    @cached_property
    def model(self) -> ModelWithDraws:
        """Return the model with the data."""
        return self.posterior.model(self.cached_draws(self.approximation).first)

    @cached_property
    def test_model(self) -> ModelWithDraws:
        """Return the model with the arguments for predictions."""
        if self.test is None:
            return self.model
        return self.posterior.with_arguments(self.model, self.test, {})

    @property
    def loss_name(self) -> str:
        """Return the objective in words."""
        is_elbo = not getattr(self._objective, "alpha", 0.0)
        return "the ELBO" if is_elbo else described(self._objective)

    @cached_property
    def _problem(self) -> Problem:
        return self.posterior.problem(self._objective)

    @cached_property
    def response(self) -> Response | str:
        """Return the linear response, or why there is none."""
        try:
            return self.posterior.response_type(self._problem, TOLERANCE)
        except RESPONSE_ERRORS as error:
            self.response_error = error
            return str(error)

    def note_response(self) -> None:
        """Note why there is no linear response, if there is none."""
        if isinstance(self.response, str):
            self.notes.append(f"no linear response: {self.response}")

    @property
    def approximations(self) -> list[str]:
        """Return the names of the approximations: guide, and linear response if any."""
        has_response = not isinstance(self.response, str)
        return [self.approximation, LINEAR_RESPONSE] if has_response else [self.approximation]

    def new_draws(self, approximation: str, count: int) -> Draws:
        """Draw ``count`` times from the guide or from its linear response."""
        if approximation == self.approximation:
            return self.posterior.draws(count)
        return self.posterior.with_approximation(self.response).draws(count)

    def cached_draws(self, approximation: str) -> Draws:
        """Return draws of an approximation, the same ones at each call."""
        if approximation not in self._draws:
            self._draws[approximation] = self.new_draws(approximation, self.draw_count)
        return self._draws[approximation]

    @property
    def latent(self) -> list[str]:
        """Return the names of the latent sites."""
        return [*self.cached_draws(self.approximation).values]

    def check_density(self) -> None:
        """Raise ValueError if the density is random; note what NUTS cannot match."""
        example_draw = self.cached_draws(self.approximation).first
        twice = {name: np.stack([value, value]) for name, value in example_draw.items()}
        with self.posterior.model_context():
            first, second = self.model.log_joint(twice)
            improper = self.model.improper
        if first != second:
            raise ValueError(
                "two evaluations of the model's log density at one draw differ: it draws random "
                f"numbers that belong to no site, such as masks of dropout. {self.framework}'s "
                "NUTS would keep those of one draw, and sample another model; make them sites, or "
                "switch the layers to evaluation"
            )
        self._note_dropout_prior()
        self._note_improper_priors(improper)

    def _note_dropout_prior(self) -> None:
        if reason := getattr(self.posterior.guide, "why_no_prior", ""):
            self.notes.append(
                f"{self.approximation} {reason}: what it says of single weights has no counterpart "
                "in NUTS, which draws no masks and has the model's own priors; compare predictions"
            )

    def _note_improper_priors(self, improper: Collection[str]) -> None:
        if improper:
            self.notes.append(
                f"the priors of {', '.join(map(repr, improper))} are improper: NUTS is a reference "
                "only if the posterior is proper, of which divergences and R-hat tell"
            )

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Return log p(latent sites, observations) of flat draws, [draws]."""
        with self.posterior.model_context():
            return self.model.log_joint(values)

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Transform draws by site from their supports to the unconstrained space."""
        with self.posterior.model_context():
            return self.model.unconstrained(values)

    @property
    def observed(self) -> Arrays:
        """Return values of the observed sites that have one."""
        with self.posterior.model_context():
            return self.model.observed

    def check_observed(self) -> None:
        """Raise ValueError for a site that has neither draws nor observations."""
        with self.posterior.model_context():
            sites, observed = self.model.sites, self.model.observed
        for name, site in sites.items():
            if site.kind == "observed" and name not in observed:
                raise ValueError(
                    f"site '{name}' is not observed: pass y, the argument that the model gives to "
                    "obs=, with the data that the guide was trained on"
                )

    @property
    def held_out(self) -> Arrays:
        """Return values of the observed sites among the arguments for predictions."""
        with self.posterior.model_context():
            return self.test_model.observed

    def masked(self, held_out: bool) -> Mapping[str, int]:
        """Return the number of masked elements by observed site."""
        with self.posterior.model_context():
            return (self.test_model if held_out else self.model).masked

    def inference_data(self, draws: Draws) -> Any:
        """Return an ``InferenceData`` of draws, without the prior."""
        with self.posterior.model_context():
            return build_inference_data(self.model, draws, ConversionOptions())

    def coordinates(self, approximation: str) -> Coordinates:
        """Return an approximation's moments in the chains' unconstrained coordinates."""
        try:
            return self._exact_coordinates(approximation)
        except RESPONSE_ERRORS as error:
            note = f"moments of {approximation} are those of {MOMENT_DRAWS} draws: {error}"
            if note not in self.notes:
                self.notes.append(note)
        values = self.new_draws(approximation, MOMENT_DRAWS).values
        return Coordinates.of_draws(self.unconstrained(values))

    def _exact_coordinates(self, approximation: str) -> Coordinates:
        latents = {latent.name: latent for latent in self._problem.latents}
        self._check_coordinates(latents)
        locs = {name: latent.loc for name, latent in latents.items()}
        if approximation == self.approximation:
            return Coordinates(locs, {name: latent.scale for name, latent in latents.items()})
        response = self.response
        assert not isinstance(response, str)
        scales = {name: to_numpy(response.standard_deviation(name)) for name in latents}
        return Coordinates(locs, scales)

    def _check_coordinates(self, latents: Mapping[str, Latent]) -> None:
        """Raise ValueError if the guide's coordinates are not those of the chains."""
        on_support = {
            name: to_numpy(latent.to_support(self._problem.array(latent.loc)))
            for name, latent in latents.items()
        }
        for name, values in self.unconstrained(on_support).items():
            loc = latents[name].loc
            tolerance = COORDINATE_TOLERANCE
            if values.shape != loc.shape or not np.allclose(values, loc, tolerance, tolerance):
                raise ValueError(f"the guide has other coordinates of '{name}' than the chains")

    def predictions(self, approximation: str) -> dict[str, PredictedSite]:
        """Return the predictions of an approximation by observed site."""
        if approximation == self.approximation:
            sites = self.posterior.predict(self.test, self._objective)
        else:
            assert not isinstance(self.response, str)
            sites = self.response.predict(*(self.test or ()))
        return {name: site for name, site in sites.items() if isinstance(site, PredictedSite)}

    def prediction_draws(self, approximation: str) -> dict[str, PredictionDraws]:
        """Return mean, variance and draws of each prediction of an approximation."""
        predictions = self.predictions(approximation)
        return {name: self._prediction(site, DRAWS) for name, site in predictions.items()}

    def mixtures(self, draws: Draws, most: int) -> tuple[Draws, Mapping[str, SampledSite]]:
        """Return predictions by all draws, thinned to ``most`` numbers in all."""
        with self.posterior.model_context():
            size = sum(int(np.prod(site.shape)) for site in self.test_model.sites.values())
            thinned = draws.thinned(max(2, most // max(1, size)))
            return thinned, self.test_model.mixtures(thinned.flat)

    def prediction_of_chains(self, chains: Draws) -> dict[str, PredictionDraws]:
        """Return the prediction of each site by all draws of the chains."""
        thinned, sites = self.mixtures(chains, MAX_PREDICTIONS)
        means = {name: to_numpy(site.parts.mean, np.float64) for name, site in sites.items()}
        by_chain = thinned.by_chain(means)
        # Twice the draws: the distance between their halves shows the Monte Carlo error.
        return {
            name: self._prediction(site, 2 * DRAWS, by_chain[name]) for name, site in sites.items()
        }

    def _prediction(
        self, site: PredictedSite, count: int, means_by_chain: np.ndarray | None = None
    ) -> PredictionDraws:
        mean, variance = (to_numpy(part, np.float64) for part in (site.mean, site.variance))
        draws = self.posterior.sample(site, count)
        # The mean of a class is a probability vector, which single draws are not.
        outcomes = draws if draws.shape[1:] == tuple(site.mean.shape) else None
        return PredictionDraws(mean, variance, outcomes, means_by_chain)
