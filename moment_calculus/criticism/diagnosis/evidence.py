"""What checks ask for, computed once."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.criticism.calibration.replications import predictive_p_values
from moment_calculus.criticism.comparison.subject import REFUSALS, Subject
from moment_calculus.criticism.containers.arviz_line import smoothed
from moment_calculus.criticism.containers.draws import Approximation, WithoutDensity
from moment_calculus.criticism.containers.leave_one_out import leave_one_out
from moment_calculus.hosts.predictions.sampled import SampledSite
from moment_calculus.response.response import Response

NUMBERS = 2**26  # of a matrix of log-likelihoods


class Evidence:
    """What is known of a fit.

    Args:
        subject: the fit.
        num_samples: draws that importance weights are of.
        statistics: of replicated data.
    """

    def __init__(self, subject: Subject, num_samples: int, statistics: Mapping[str, Any]) -> None:
        self.subject, self._count, self._statistics = subject, num_samples, statistics
        self._containers: dict[str, Any] = {}
        self._shapes: dict[str, float | str] = {}
        self._effective: dict[str, float] = {}

    @property
    def size(self) -> int:
        """Number of coordinates of the latent sites."""
        return sum(part.size for part in self.subject.draws(self.subject.source).first.values())

    def shape(self, source: str) -> float | str:
        """k̂ of the weights of an approximation, or why there are none.

        Args:
            source: the guide, or linear response.
        """
        if source not in self._shapes:
            self._shapes[source] = self._shape(source)
        return self._shapes[source]

    def _shape(self, source: str) -> float | str:
        draws = self.subject.draw(source, self._count)
        if isinstance(draws.law, WithoutDensity):
            return draws.law.reason
        assert isinstance(draws.law, Approximation)  # a guide's draws are none of chains
        log_ratios = self.subject.log_joint(draws) - draws.law.log_density.ravel()
        weights, shape = smoothed(log_ratios)
        self._effective[source] = float(1 / np.exp(2 * weights).sum() / weights.size)
        return float(shape)

    def effective(self, source: str) -> float:
        """Share of the draws that weighted ones are worth, where :meth:`shape` is a number.

        Args:
            source: the guide, or linear response.

        Source: Kish 1965; Vehtari et al. 2024, eq. 6, of smoothed weights.
        """
        self.shape(source)
        return self._effective[source]

    @cached_property
    def scale_ratios(self) -> dict[str, np.ndarray] | str:
        """The guide's standard deviations over corrected ones by site, or why there are none."""
        subject = self.subject
        if isinstance(subject.response, str):
            return subject.response
        try:
            guide, corrected = (subject.coordinates(each).scale for each in subject.sources)
        except REFUSALS as refusal:
            return str(refusal)
        return {site: guide[site] / corrected[site] for site in guide}

    @property
    def narrower(self) -> dict[str, float]:
        """The smallest ratio of corrected to the guide's variances, by site."""
        if not isinstance(self.subject.response, Response):
            return {}
        with contextlib.suppress(*REFUSALS):
            found = self.subject.response.narrower()
            return {site: float(np.min(np.asarray(ratios))) for site, ratios in found.items()}
        return {}

    def container(self, source: str) -> Any:
        """An ``InferenceData`` of as many draws as fit into memory.

        Args:
            source: the guide, or linear response.
        """
        if source not in self._containers:
            draws = self.subject.draw(source, self._count)
            data = sum(value.size for value in self.subject.observed.values())
            self._containers[source] = self.subject.container(
                draws.thinned(max(2, NUMBERS // max(1, data)))
            )
        return self._containers[source]

    @cached_property
    def best(self) -> str:
        """The approximation with the lowest k̂; linear response where none has one."""
        sources = self.subject.sources
        known = {each: shape for each in sources if isinstance(shape := self.shape(each), float)}
        return min(known, key=lambda each: known[each]) if known else sources[-1]

    def leave_one_out(self, site: str) -> tuple[str, Any] | str:
        """By which approximation, and ArviZ's ``ELPDData``; or why there is none.

        Args:
            site: what is observed.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the finding says so
            try:
                return self.best, leave_one_out(self.container(self.best), site)
            except ValueError as refusal:
                return str(refusal)

    @cached_property
    def mixtures(self) -> Mapping[str, SampledSite]:
        """What draws of the guide predict together, by site, with the arguments for predictions."""
        subject = self.subject
        with subject.running():
            size = sum(int(np.prod(site.shape)) for site in subject.tested.sites.values())
            some = subject.draws(subject.source).thinned(max(2, NUMBERS // 4 // max(1, size)))
            return subject.tested.predicted(some.flat)

    def p_values(self, sites: Sequence[str]) -> Any:
        """Posterior predictive p-values, a data frame.

        Args:
            sites: observed ones.
        """
        whole = self.container(self.best)
        groups = ("posterior_predictive", "observed_data")
        some = {name: whole[name][list(sites)] for name in groups}
        return predictive_p_values(some, self._statistics)
