"""Compute and cache the quantities that several checks of a diagnosis need."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.criticism.calibration.replications import predictive_p_values
from moment_calculus.criticism.comparison.fitted_model import REFUSALS, FittedModel
from moment_calculus.criticism.containers.draws import Draws, FromApproximation, NoDensity
from moment_calculus.criticism.containers.leave_one_out import leave_one_out, posterior_log_ratios
from moment_calculus.numerics.pareto import ImportanceWeights, check_ratios, smooth_weights
from moment_calculus.predictions.mixtures import SampledSite
from moment_calculus.response.response import Response

MAX_ENTRIES = 2**26  # largest number of entries of a matrix of log-likelihoods


class DiagnosisInputs:
    """Draws, weights and predictions of a trained guide, computed once for all checks."""

    def __init__(
        self, fitted_model: FittedModel, num_samples: int, statistics: Mapping[str, Any]
    ) -> None:
        self.fitted_model, self._count, self._statistics = fitted_model, num_samples, statistics
        self._containers: dict[str, Any] = {}
        self._draws: dict[str, Draws] = {}
        self._weights: dict[str, ImportanceWeights | str] = {}

    @property
    def size(self) -> int:
        """Return the number of coordinates of the latent sites."""
        return sum(
            part.size for part in self.fitted_model.draws(self.fitted_model.source).first.values()
        )

    def draws(self, source: str) -> Draws:
        """Return draws of the guide or linear response, the same ones at each call."""
        if source not in self._draws:
            self._draws[source] = self.fitted_model.draw(source, self._count)
        return self._draws[source]

    def weights(self, source: str) -> ImportanceWeights | str:
        """Return the importance weights of these draws, or why there are none."""
        if source not in self._weights:
            self._weights[source] = self._weights_of(self.draws(source))
        return self._weights[source]

    def _weights_of(self, draws: Draws) -> ImportanceWeights | str:
        if isinstance(draws.origin, NoDensity):
            return draws.origin.reason
        assert isinstance(draws.origin, FromApproximation)  # never draws of MCMC
        try:
            ratios = self.fitted_model.log_joint(draws) - draws.origin.log_density.ravel()
            return smooth_weights(check_ratios(ratios))
        except ValueError as error:
            return str(error)

    @cached_property
    def best_source(self) -> str:
        """Return the approximation whose weights are reliable, or else the most even.

        k̂ alone does not decide: a guide that is far too narrow may have the lower one.
        """
        sources = self.fitted_model.sources
        by_source = {
            source: weights
            for source in sources
            if isinstance(weights := self.weights(source), ImportanceWeights)
        }
        order = lambda source: (bool(by_source[source].is_reliable), float(by_source[source].share))  # noqa: E731
        return max(by_source, key=order) if by_source else sources[-1]

    @property
    def reliable_weights(self) -> ImportanceWeights | None:
        """Return the weights of the best approximation if they are reliable, otherwise None."""
        weights = self.weights(self.best_source)
        return weights if isinstance(weights, ImportanceWeights) and weights.is_reliable else None

    @property
    def narrower(self) -> dict[str, float]:
        """Return the smallest corrected over guide variance of each site where it is below one."""
        if not isinstance(self.fitted_model.response, Response):
            return {}
        with contextlib.suppress(*REFUSALS):
            ratios_by_site = self.fitted_model.response.narrower()
            return {
                site: float(np.min(np.asarray(ratios))) for site, ratios in ratios_by_site.items()
            }
        return {}

    def container(self, source: str) -> Any:
        """Return an ``InferenceData`` of as many draws as fit into memory."""
        if source not in self._containers:
            draws = self.draws(source)
            data = sum(value.size for value in self.fitted_model.observed.values())
            self._containers[source] = self.fitted_model.container(
                draws.thinned(max(2, MAX_ENTRIES // max(1, data)))
            )
        return self._containers[source]

    def leave_one_out(self, site: str) -> tuple[str, Any] | str:
        """Return the approximation and its ``ELPDData`` for an observed site, or why there is none.

        Without reliable weights the draws count as draws of the posterior.
        """
        is_weighted = self.reliable_weights is not None
        source = self.best_source if is_weighted else self.fitted_model.sources[-1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the finding reports it
            try:
                elpd = leave_one_out(self.container(source), site, importance_weights=is_weighted)
            except ValueError as error:
                return str(error)
        return source, elpd

    def is_influential(self, site: str) -> np.ndarray:
        """Return which data have bad weights even if the draws count as posterior draws."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            elpd = leave_one_out(self.container(self.best_source), site, importance_weights=False)
        return elpd["is_bad"].values

    @cached_property
    def mixtures(self) -> Mapping[str, SampledSite]:
        """Return the prediction of each site by all draws of the guide together."""
        fitted_model = self.fitted_model
        with fitted_model.running():
            size = sum(int(np.prod(site.shape)) for site in fitted_model.test_model.sites.values())
            thinned = fitted_model.draws(fitted_model.source).thinned(
                max(2, MAX_ENTRIES // 4 // max(1, size))
            )
            return fitted_model.test_model.mixtures(thinned.flat)

    def p_values(self, sites: Sequence[str]) -> Any:
        """Return posterior predictive p-values of observed sites as a data frame."""
        whole = self.container(self.best_source)
        groups = ("posterior_predictive", "observed_data")
        some = {name: whole[name][list(sites)] for name in groups}
        if self.reliable_weights is not None:
            weights = smooth_weights(posterior_log_ratios(whole))
            # Resampled by their weights, replicated data are those of the posterior.
            places = weights.resample_indices(np.random.default_rng(0), weights.log.size)
            some[groups[0]] = some[groups[0]].isel(draw=places)
        return predictive_p_values(some, self._statistics)
