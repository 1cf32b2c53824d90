"""A posterior by nested inference with its model and data, for comparisons and diagnoses."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.numerics.pareto import ImportanceWeights, check_ratios, smooth_weights
from moment_calculus.predictions.site import PredictedSite
from moment_inference.criticism.comparison.differences import Coordinates
from moment_inference.criticism.fitted_model import (
    DRAWS,
    MAX_PREDICTIONS,
    FittedModel,
    Posterior,
)
from moment_inference.nested.posterior import NestedPosterior
from moment_inference.response.response import Response

MAX_NUMBERS = 2**26  # of draws of a field, in memory at once


class FittedNested(FittedModel):
    """What ``nested`` returned, with its model and data; it has no guide and no objective."""

    draws_posterior = True

    def __init__(
        self, posterior: Posterior, nested: NestedPosterior, objective: Any, test: tuple | None
    ) -> None:
        if objective is not None:
            raise ValueError("objective is the loss of a guide, and nested inference has none")
        super().__init__(posterior, nested, None, test)
        self.nested = nested

    @cached_property
    def response(self) -> Response | str:
        """Return why there is no linear response."""
        return "nested inference has all covariances already"

    def note_response(self) -> None:
        """Note nothing: a linear response would add nothing."""

    def coordinates(self, approximation: str) -> Coordinates:
        """Return moments of the marginals in the chains' unconstrained coordinates."""
        first = self.unconstrained(self.cached_draws(approximation).first)
        loc, scale = dict[str, np.ndarray](), dict[str, np.ndarray]()
        for name, value in first.items():
            moments = self.nested.unconstrained_moments(name)
            loc[name], scale[name] = (part.reshape(value.shape) for part in moments)
        return Coordinates(loc, scale)

    def predictions(self, approximation: str) -> dict[str, PredictedSite]:
        """Return the predictions by draws together, by observed site."""
        draws = self.cached_draws(approximation).thinned(DRAWS)
        return {**self.mixtures(draws, MAX_PREDICTIONS)[1]}

    def weights_at_centre(self) -> ImportanceWeights | str:
        """Return weights of draws of the field given the best hyperparameters, or why none."""
        size = sum(self.nested.unconstrained_moments(name)[0].size for name in self.nested.field)
        count = max(1, min(self.draw_count, MAX_NUMBERS // max(1, size)))
        values, density = self.nested.draws_at_centre(self.posterior.generator(), count)
        try:
            return smooth_weights(check_ratios(self.log_joint(values) - density))
        except ValueError as error:
            return str(error)


def fitted(posterior: Posterior, result: Any, objective: Any, test: tuple | None) -> FittedModel:
    """Return what ``fit`` or ``nested`` returned, or a guide, with its model and data."""
    kind = FittedNested if isinstance(result, NestedPosterior) else FittedModel
    return kind(posterior, result, objective, test)
