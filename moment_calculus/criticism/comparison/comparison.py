"""The result of a comparison with chains, and how it comes about."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from moment_calculus.criticism.comparison.chains import Chains
from moment_calculus.criticism.comparison.leaving_out import LooComparison, compared_loo
from moment_calculus.criticism.comparison.pictures import plot_comparison
from moment_calculus.criticism.comparison.predictions import (
    PredictiveComparison,
    compared_predictions,
)
from moment_calculus.criticism.comparison.report import frame, report
from moment_calculus.criticism.comparison.sites import SiteComparison, compared_sites
from moment_calculus.criticism.comparison.subject import REFUSALS, RESPONSE, Subject
from moment_calculus.criticism.containers.draws import Draws
from moment_calculus.criticism.containers.leave_one_out import leave_one_out

CHAINS = "NUTS"


@dataclass(frozen=True)
class Comparison:
    """An approximation beside chains of the same model.

    Args:
        chains: whether they can be a reference.
        sites: the latent sites on the unconstrained space.
        predictive: what is observed.
        loo: leave-one-out densities.
        seconds: wall-clock time by what took it; None where it is not known.
        notes: what the numbers do not say.
        inference_data: ``InferenceData`` by approximation, and of the chains.
        reference: the host's ``MCMC``, for another comparison with it.
    """

    chains: Chains
    sites: tuple[SiteComparison, ...]
    predictive: tuple[PredictiveComparison, ...]
    loo: tuple[LooComparison, ...]
    seconds: Mapping[str, float | None]
    notes: tuple[str, ...]
    inference_data: Mapping[str, Any] = field(repr=False)
    reference: Any = field(repr=False)

    def table(self) -> Any:
        """Latent sites as a ``pandas.DataFrame``, one row for each of their coordinates."""
        return frame(self.sites)

    def plot(self, axes: Any = None) -> Any:
        """Draw means, standard deviations and predictions against the chains'.

        Args:
            axes: three ``matplotlib`` axes; by default new ones.

        Returns:
            The three axes.
        """
        return plot_comparison(self, axes)

    def __str__(self) -> str:
        """Tables in words."""
        return report(self)


class Sampler(Protocol):
    """Chains of a host."""

    @property
    def chains(self) -> Any:
        """The host's ``MCMC``."""

    @property
    def is_finished(self) -> bool:
        """Whether they were run before."""

    def run(self) -> Draws:
        """Their draws; they run now unless they are finished."""


def compared(subject: Subject, sampler: Sampler, seconds: Mapping[str, float | None]) -> Comparison:
    """Compare a guide and its linear response with chains.

    Args:
        subject: the guide.
        sampler: the chains.
        seconds: of what was done before.
    """
    clock = dict(seconds)
    subject.check_density()
    with _timed(clock, CHAINS):
        chains = sampler.run()
    if sampler.is_finished:
        clock[CHAINS] = None
    with _timed(clock, RESPONSE):
        if isinstance(subject.response, str):
            subject.notes.append(f"no linear response: {subject.response}")
    if RESPONSE not in subject.sources:
        del clock[RESPONSE]
    sources = subject.sources
    places = {source: subject.coordinates(source) for source in sources}
    scales = {source: found.scale for source, found in places.items()}
    drawn = {**{source: subject.draws(source) for source in sources}, CHAINS: chains}
    containers = {source: subject.container(draws) for source, draws in drawn.items()}
    unconstrained = subject.unconstrained(chains.values)
    return Comparison(
        Chains.of(chains.values, chains.statistics),
        compared_sites(unconstrained, places[subject.source], scales),
        _predictive(subject, chains),
        _leave_one_out(containers, sources, subject.notes),
        clock,
        tuple(subject.notes),
        containers,
        sampler.chains,
    )


def _predictive(subject: Subject, chains: Draws) -> tuple[PredictiveComparison, ...]:
    try:
        predicted = {source: subject.predicted(source) for source in subject.sources}
    except REFUSALS as refusal:
        subject.notes.append(f"no predictions: {refusal}")
        return ()
    return compared_predictions(subject.mixtures(chains), predicted)


def _leave_one_out(
    containers: Mapping[str, Any], sources: Sequence[str], notes: list[str]
) -> tuple[LooComparison, ...]:
    chains, found = containers[CHAINS], list[LooComparison]()
    for site in chains.log_likelihood.data_vars if hasattr(chains, "log_likelihood") else ():
        others = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it stands in the table
            reference = leave_one_out(chains, site)
            for source in sources:
                try:
                    others[source] = leave_one_out(containers[source], site)
                except ValueError as refusal:
                    notes.append(f"no leave-one-out of {source}: {refusal}")
        found += compared_loo(str(site), reference, others)
    return tuple(found)


@contextmanager
def _timed(clock: dict[str, float | None], what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    clock[what] = time.perf_counter() - start
