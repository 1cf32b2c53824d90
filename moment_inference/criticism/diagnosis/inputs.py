"""Compute and cache the quantities that several checks of a diagnosis need."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.numerics.pareto import ImportanceWeights, smooth_weights
from moment_calculus.predictions.mixtures import SampledSite
from moment_inference.criticism.arviz_access import (
    Scores,
    leave_one_out,
    posterior_log_ratios,
    replicated,
)
from moment_inference.criticism.calibration.replications import p_values
from moment_inference.criticism.fitted_model import DRAWS, RESPONSE_ERRORS, FittedModel
from moment_inference.response.response import Response

MAX_ENTRIES = 2**26  # largest number of entries of a matrix of log-likelihoods


class DiagnosisInputs:
    """Draws, weights and predictions of a trained guide, computed once for all checks."""

    def __init__(self, fitted_model: FittedModel, num_samples: int) -> None:
        self.fitted_model, fitted_model.draw_count = fitted_model, num_samples
        self.draws = fitted_model.cached_draws
        self.weights = cache(self._weights)
        self.container = cache(self._container)

    @property
    def size(self) -> int:
        """Return the number of coordinates of the latent sites."""
        first = self.draws(self.fitted_model.approximation).first
        return sum(part.size for part in first.values())

    def _weights(self, source: str) -> ImportanceWeights | str:
        """Return the importance weights of these draws, or why there are none."""
        draws = self.draws(source)
        try:
            return draws.without_density or draws.weights(self.fitted_model.log_joint)
        except ValueError as error:
            return str(error)

    @cached_property
    def best_source(self) -> str:
        """Return the approximation whose weights are reliable, or else the most even.

        k̂ alone does not decide: a guide that is far too narrow may have the lower one.
        """
        ranks = {}
        for source in self.fitted_model.approximations:
            weights = self.weights(source)
            if isinstance(weights, ImportanceWeights):
                ranks[source] = bool(weights.is_reliable), float(weights.share)
        return max(
            ranks, key=lambda source: ranks[source], default=self.fitted_model.approximations[-1]
        )

    @property
    def reliable_weights(self) -> ImportanceWeights | None:
        """Return the weights of the best approximation, or None if unreliable."""
        weights = self.weights(self.best_source)
        return weights if isinstance(weights, ImportanceWeights) and weights.is_reliable else None

    @property
    def narrower(self) -> dict[str, float]:
        """Return the smallest corrected over guide variance of sites where it is below one."""
        response = self.fitted_model.response
        if not isinstance(response, Response):
            return {}
        with contextlib.suppress(*RESPONSE_ERRORS):
            ratios = response.narrower()
            return {site: float(np.min(to_numpy(part))) for site, part in ratios.items()}
        return {}

    def _container(self, source: str) -> Any:
        """Return an ``InferenceData`` of as many draws as fit into memory."""
        data = sum(value.size for value in self.fitted_model.observed.values())
        draws = self.draws(source).thinned(max(2, MAX_ENTRIES // max(1, data)))
        return self.fitted_model.inference_data(draws)

    def leave_one_out(self, site: str) -> tuple[str, Scores] | str:
        """Return the approximation and its scores for a site, or why there are none.

        Without reliable weights the draws count as draws of the posterior.
        """
        is_weighted = self.reliable_weights is not None
        source = self.best_source if is_weighted else self.fitted_model.approximations[-1]
        try:
            return source, self._scores(source, site, is_weighted)
        except ValueError as error:
            return str(error)

    def is_influential(self, site: str) -> np.ndarray:
        """Return which data have bad weights even for draws of the posterior."""
        return self._scores(self.best_source, site, is_weighted=False).is_bad

    def _scores(self, source: str, site: str, is_weighted: bool) -> Scores:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the finding reports it
            elpd = leave_one_out(self.container(source), site, importance_weights=is_weighted)
        return Scores.of(elpd)

    @cached_property
    def mixtures(self) -> Mapping[str, SampledSite]:
        """Return the prediction of each site by all draws of the guide together."""
        draws = self.draws(self.fitted_model.approximation).thinned(DRAWS)
        return self.fitted_model.mixtures(draws, MAX_ENTRIES // 4)[1]

    def p_values(self, sites: Sequence[str], statistics: Mapping[str, Any]) -> Any:
        """Return posterior predictive p-values of observed sites as a data frame."""
        container = self.container(self.best_source)
        replications, observed = replicated(container, sites)
        if self.reliable_weights is not None:
            weights = smooth_weights(posterior_log_ratios(container))
            # Resampled by their weights, replicated data are those of the posterior.
            indices = weights.resample_indices(np.random.default_rng(0), weights.log.size)
            replications = {name: part[:, indices] for name, part in replications.items()}
        return p_values({name: (replications[name], observed[name]) for name in sites}, statistics)
