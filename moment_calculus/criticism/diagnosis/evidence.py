"""Compute and cache the quantities that several checks of a diagnosis need."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.criticism.calibration.replications import predictive_p_values
from moment_calculus.criticism.comparison.subject import REFUSALS, Subject
from moment_calculus.criticism.containers.draws import Approximation, Draws, WithoutDensity
from moment_calculus.criticism.containers.leave_one_out import leave_one_out, posterior_log_ratios
from moment_calculus.hosts.predictions.sampled import SampledSite
from moment_calculus.numerics.pareto import Weights, checked_ratios, smoothed
from moment_calculus.response.response import Response

NUMBERS = 2**26  # largest number of entries of a matrix of log-likelihoods


class Evidence:
    """Draws, weights and predictions of a trained guide, computed once for all checks."""

    def __init__(self, subject: Subject, num_samples: int, statistics: Mapping[str, Any]) -> None:
        self.subject, self._count, self._statistics = subject, num_samples, statistics
        self._containers: dict[str, Any] = {}
        self._draws: dict[str, Draws] = {}
        self._weights: dict[str, Weights | str] = {}

    @property
    def size(self) -> int:
        """Return the number of coordinates of the latent sites."""
        return sum(part.size for part in self.subject.draws(self.subject.source).first.values())

    def draws(self, source: str) -> Draws:
        """Return draws of the guide or linear response, the same ones at each call."""
        if source not in self._draws:
            self._draws[source] = self.subject.draw(source, self._count)
        return self._draws[source]

    def weights(self, source: str) -> Weights | str:
        """Return the importance weights of these draws, or why there are none."""
        if source not in self._weights:
            self._weights[source] = self._weights_of(self.draws(source))
        return self._weights[source]

    def _weights_of(self, draws: Draws) -> Weights | str:
        if isinstance(draws.law, WithoutDensity):
            return draws.law.reason
        assert isinstance(draws.law, Approximation)  # never draws of MCMC
        try:
            ratios = self.subject.log_joint(draws) - draws.law.log_density.ravel()
            return smoothed(checked_ratios(ratios))
        except ValueError as refusal:
            return str(refusal)

    @cached_property
    def best(self) -> str:
        """Return the approximation whose weights are reliable, or else the most even.

        k̂ alone does not decide: a guide that is far too narrow may have the lower one.
        """
        sources = self.subject.sources
        known = {
            each: found for each in sources if isinstance(found := self.weights(each), Weights)
        }
        order = lambda each: (bool(known[each].is_reliable), float(known[each].share))  # noqa: E731
        return max(known, key=order) if known else sources[-1]

    @property
    def trusted(self) -> Weights | None:
        """Return the weights of the best approximation if they are reliable, otherwise None."""
        found = self.weights(self.best)
        return found if isinstance(found, Weights) and found.is_reliable else None

    @property
    def narrower(self) -> dict[str, float]:
        """Return the smallest corrected over guide variance of each site where it is below one."""
        if not isinstance(self.subject.response, Response):
            return {}
        with contextlib.suppress(*REFUSALS):
            found = self.subject.response.narrower()
            return {site: float(np.min(np.asarray(ratios))) for site, ratios in found.items()}
        return {}

    def container(self, source: str) -> Any:
        """Return an ``InferenceData`` of as many draws as fit into memory."""
        if source not in self._containers:
            draws = self.draws(source)
            data = sum(value.size for value in self.subject.observed.values())
            self._containers[source] = self.subject.container(
                draws.thinned(max(2, NUMBERS // max(1, data)))
            )
        return self._containers[source]

    def leave_one_out(self, site: str) -> tuple[str, Any] | str:
        """Return the approximation and its ``ELPDData`` for an observed site, or why there is none.

        Without reliable weights the draws count as draws of the posterior.
        """
        corrected = self.trusted is not None
        source = self.best if corrected else self.subject.sources[-1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the finding reports it
            try:
                found = leave_one_out(self.container(source), site, importance_weights=corrected)
            except ValueError as refusal:
                return str(refusal)
        return source, found

    def is_influential(self, site: str) -> np.ndarray:
        """Return which data have bad weights even if the draws count as posterior draws."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = leave_one_out(self.container(self.best), site, importance_weights=False)
        return found["is_bad"].values

    @cached_property
    def mixtures(self) -> Mapping[str, SampledSite]:
        """Return the prediction of each site by all draws of the guide together."""
        subject = self.subject
        with subject.running():
            size = sum(int(np.prod(site.shape)) for site in subject.tested.sites.values())
            some = subject.draws(subject.source).thinned(max(2, NUMBERS // 4 // max(1, size)))
            return subject.tested.predicted(some.flat)

    def p_values(self, sites: Sequence[str]) -> Any:
        """Return posterior predictive p-values of observed sites as a data frame."""
        whole = self.container(self.best)
        groups = ("posterior_predictive", "observed_data")
        some = {name: whole[name][list(sites)] for name in groups}
        if self.trusted is not None:
            weights = smoothed(posterior_log_ratios(whole))
            # Resampled by their weights, replicated data are those of the posterior.
            places = weights.places(np.random.default_rng(0), weights.log.size)
            some[groups[0]] = some[groups[0]].isel(draw=places)
        return predictive_p_values(some, self._statistics)
