"""The result of ``compare_with_nuts``, and its computation."""

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
    """An approximation compared with chains of the same model.

    Args:
        chains: convergence diagnostics of the chains.
        sites: latent sites on the unconstrained space, one ``SiteComparison`` each.
        predictive: observed sites, by approximation.
        loo: leave-one-out log predictive densities, by observed site and approximation.
        seconds: wall-clock time of each step; None where it is not known.
        notes: in words, what was not possible and what limits the comparison.
        inference_data: ``InferenceData`` of each approximation and of the chains.
        reference: the framework's ``MCMC``, to be reused for another comparison.
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
        """Return the latent sites as a ``pandas.DataFrame`` with one row for each coordinate."""
        return frame(self.sites)

    def plot(self, axes: Any = None) -> Any:
        """Plot means, standard deviations and predictions against those of the chains.

        Args:
            axes: three ``matplotlib`` axes; by default new ones.

        Returns:
            The three axes.
        """
        return plot_comparison(self, axes)

    def __str__(self) -> str:
        """Return the tables and notes as text."""
        return report(self)


class Sampler(Protocol):
    """MCMC chains of one framework."""

    @property
    def chains(self) -> Any:
        """The framework's ``MCMC``."""

    @property
    def is_finished(self) -> bool:
        """Whether the chains were run before."""

    def run(self) -> Draws:
        """Return the draws; run the chains first unless they are finished."""


def compared(subject: Subject, sampler: Sampler, seconds: Mapping[str, float | None]) -> Comparison:
    """Compare a guide and its linear response with chains; ``seconds`` holds times so far."""
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
            warnings.simplefilter("ignore", UserWarning)  # the table shows the number of bad k̂
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
