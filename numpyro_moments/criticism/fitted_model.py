"""A trained NumPyro guide with its model and data, as comparisons and diagnoses need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpyro.infer.elbo import ELBO

from moment_calculus.criticism.comparison.fitted_model import FittedModel
from moment_calculus.criticism.containers.draws import Draws
from moment_calculus.optimisation.outcome import Fit
from moment_calculus.predictions.site import PredictedSite
from moment_calculus.response.inverse_curvature import TOLERANCE
from moment_calculus.response.problem import Latent
from numpyro_moments.criticism.posteriors import (
    GuidePosterior,
    ResponsePosterior,
    posterior_of,
)
from numpyro_moments.draws.model import NumPyroModel
from numpyro_moments.draws.sites import Whole
from numpyro_moments.evaluation.arguments import Precision
from numpyro_moments.objectives.base import Program
from numpyro_moments.prediction.predict import predict
from numpyro_moments.response.linear_response import LinearResponse, problem_of
from numpyro_moments.response.problem import NumPyroProblem


class NumPyroFittedModel(FittedModel):
    """A trained guide with its model and data."""

    def __init__(
        self,
        model: Callable,
        guide: Any,
        data: tuple,
        named: dict[str, Any],
        params: dict[str, Any] | None,
        objective: ELBO | None,
        test: tuple | None,
        key: Any,
    ) -> None:
        self.seconds: dict[str, float | None] = {}
        if isinstance(guide, Fit):
            self.seconds["fit"] = sum(guide.seconds.values())
            self.by_draws = guide.by_draws
            guide, params = guide.guide, guide.params
        super().__init__("NumPyro", guide, test)
        posterior = posterior_of(guide, model, data, named, params)
        if not isinstance(posterior, GuidePosterior):
            raise TypeError(f"guide is a trained guide, or what fit returned, not {self.source}")
        self._posterior, self._objective, self._key = posterior, objective, key
        self.data: Program = posterior.program

    def running(self) -> Any:
        """Return a context with the precision of the trained parameters."""
        return self._precision()

    @property
    def _precision(self) -> Precision:
        return self._posterior.precision

    @cached_property
    def model(self) -> NumPyroModel:
        """Return the model with the data."""
        model, _, args, named, params = self.data
        first = self.draws(self.source).first
        return NumPyroModel(model, args, named, params, first, self._precision, self._keys(1))

    @cached_property
    def test_model(self) -> NumPyroModel:
        """Return the model with the arguments for predictions."""
        if self.test is None:
            return self.model
        return replace(self.model, args=self.test, named={})

    def _keys(self, place: int) -> Any:
        return jax.random.fold_in(self._key, place)

    def draw(self, source: str, count: int) -> Draws:
        """Draw ``count`` times from the guide or its linear response, as ``source`` says."""
        if source == self.source:
            return self._posterior.draws(count, self._keys(2))
        assert isinstance(self.response, LinearResponse)
        return ResponsePosterior(self.response).draws(count, self._keys(3))

    @cached_property
    def _problem(self) -> NumPyroProblem:
        model, guide, args, named, params = self.data
        return problem_of(model, guide, (args, named), params, self._objective)

    def latents(self) -> dict[str, Latent]:
        """Return each latent site as a function of Gaussian coordinates, by name."""
        return {latent.name: latent for latent in self._problem.latents}

    def linear_response(self) -> LinearResponse:
        """Compute the linear response."""
        return LinearResponse(self._problem, TOLERANCE)

    def array(self, values: np.ndarray) -> Any:
        """Return values as a JAX array."""
        return self._problem.array(values)

    def predict(self) -> dict[str, Any]:
        """Return the guide's predictions by site, with the arguments for predictions."""
        model, guide, args, named, params = self.data
        if self.test is not None:
            args, named = self.test, {}
        with Whole():
            return predict(model, guide, params, *args, **named)

    def sample(self, prediction: PredictedSite, count: int) -> np.ndarray:
        """Return draws of a prediction."""
        return np.asarray(prediction.sample(count, self._keys(count)))  # type: ignore[attr-defined]
