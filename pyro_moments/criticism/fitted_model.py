"""A trained Pyro guide with its model and data, as comparisons and diagnoses need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from pyro import poutine

from moment_calculus.criticism.comparison.fitted_model import FittedModel
from moment_calculus.criticism.containers.draws import Draws
from moment_calculus.optimisation.outcome import Fit
from moment_calculus.predictions.site import PredictedSite
from moment_calculus.response.inverse_curvature import TOLERANCE
from moment_calculus.response.problem import Latent
from pyro_moments.criticism.posteriors import GuidePosterior, ResponsePosterior, posterior_of
from pyro_moments.draws.model import PyroModel
from pyro_moments.objectives.base import Program
from pyro_moments.prediction.predict import predict
from pyro_moments.response.evaluation_context import EvaluationContext
from pyro_moments.response.linear_response import LinearResponse, problem_of
from pyro_moments.response.problem import PyroProblem


class PyroFittedModel(FittedModel):
    """A trained guide with its model and data."""

    def __init__(
        self,
        model: Callable,
        guide: Any,
        data: tuple,
        named: dict[str, Any],
        objective: Any,
        test: tuple | None,
    ) -> None:
        self.seconds: dict[str, float | None] = {}
        self._params: dict[str, Any] | None = None
        posterior = posterior_of(guide, model, data, named)
        if isinstance(guide, Fit):
            self.seconds["fit"] = sum(guide.seconds.values())
            self.by_draws = guide.by_draws
            guide, self._params = guide.guide, guide.params
        super().__init__("Pyro", poutine.unwrap(guide), test)
        if not isinstance(posterior, GuidePosterior):
            raise TypeError(f"guide is a trained guide, or what fit returned, not {self.source}")
        self._posterior, self._objective = posterior, objective
        self.data: Program = posterior.program
        self.context: EvaluationContext = posterior.context

    def running(self) -> Any:
        """Return a context in which the model runs with the trained parameters."""
        return self.context()

    @cached_property
    def model(self) -> PyroModel:
        """Return the model with the data."""
        first = self.draws(self.source).first
        args, named = self.context.arguments(self.data.args, self.data.kwargs)
        return PyroModel(self.data.model, args, named, first, self.context.device)

    @cached_property
    def test_model(self) -> PyroModel:
        """Return the model with the arguments for predictions."""
        if self.test is None:
            return self.model
        args, named = self.context.arguments(self.test, {})
        return replace(self.model, args=args, named=named)

    def draw(self, source: str, count: int) -> Draws:
        """Draw ``count`` times from the guide or its linear response, as ``source`` says."""
        if source == self.source:
            return self._posterior.draws(count)
        assert isinstance(self.response, LinearResponse)
        return ResponsePosterior(self.response).draws(count)

    @cached_property
    def _problem(self) -> PyroProblem:
        model, guide, args, named, _ = self.data
        double = self.context.double
        return problem_of(model, guide, (args, named), self._params, self._objective, double)

    def latents(self) -> dict[str, Latent]:
        """Return each latent site as a function of Gaussian coordinates, by name."""
        return {latent.name: latent for latent in self._problem.latents}

    def linear_response(self) -> LinearResponse:
        """Compute the linear response."""
        with self._problem.precision():
            return LinearResponse(self._problem, TOLERANCE)

    def array(self, values: np.ndarray) -> Any:
        """Return values as a tensor."""
        return self._problem.array(values)

    def predict(self) -> dict[str, Any]:
        """Return the guide's predictions by site, with the arguments for predictions."""
        model, guide, args, named, _ = self.data
        if self.test is not None:
            args, named = self.context.arguments(self.test, {})
        with self.running():
            return predict(model, guide, *args, **named)

    def sample(self, prediction: PredictedSite, count: int) -> np.ndarray:
        """Return draws of a prediction."""
        with self.running():
            return prediction.sample(count).cpu().numpy()  # type: ignore[attr-defined]
