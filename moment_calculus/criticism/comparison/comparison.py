"""The result of ``compare_with_nuts``, and its computation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from moment_calculus.criticism.comparison.chains import Chains
from moment_calculus.criticism.comparison.fitted_model import LINEAR_RESPONSE, REFUSALS, FittedModel
from moment_calculus.criticism.comparison.loo import LooComparison, compare_loo
from moment_calculus.criticism.comparison.pictures import plot_comparison
from moment_calculus.criticism.comparison.predictions import (
    PredictiveComparison,
    compare_predictions,
)
from moment_calculus.criticism.comparison.report import frame, report
from moment_calculus.criticism.comparison.sites import SiteComparison, compare_sites
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


def compare(
    fitted_model: FittedModel, sampler: Sampler, seconds: Mapping[str, float | None]
) -> Comparison:
    """Compare a guide and its linear response with chains; ``seconds`` holds times so far."""
    clock = dict(seconds)
    fitted_model.check_density()
    with _timed(clock, CHAINS):
        chains = sampler.run()
    if sampler.is_finished:
        clock[CHAINS] = None
    with _timed(clock, LINEAR_RESPONSE):
        if isinstance(fitted_model.response, str):
            fitted_model.notes.append(f"no linear response: {fitted_model.response}")
    if LINEAR_RESPONSE not in fitted_model.sources:
        del clock[LINEAR_RESPONSE]
    sources = fitted_model.sources
    places = {source: fitted_model.coordinates(source) for source in sources}
    scales = {source: coordinates.scale for source, coordinates in places.items()}
    draws_by_source = {**{source: fitted_model.draws(source) for source in sources}, CHAINS: chains}
    containers = {
        source: fitted_model.container(draws) for source, draws in draws_by_source.items()
    }
    unconstrained = fitted_model.unconstrained(chains.values)
    return Comparison(
        Chains.of(chains.values, chains.statistics),
        compare_sites(unconstrained, places[fitted_model.source], scales),
        _predictive(fitted_model, chains),
        _leave_one_out(containers, sources, fitted_model.notes),
        clock,
        tuple(fitted_model.notes),
        containers,
        sampler.chains,
    )


def _predictive(fitted_model: FittedModel, chains: Draws) -> tuple[PredictiveComparison, ...]:
    try:
        predictions = {
            source: fitted_model.prediction_draws(source) for source in fitted_model.sources
        }
    except REFUSALS as error:
        fitted_model.notes.append(f"no predictions: {error}")
        return ()
    return compare_predictions(fitted_model.mixtures(chains), predictions)


def _leave_one_out(
    containers: Mapping[str, Any], sources: Sequence[str], notes: list[str]
) -> tuple[LooComparison, ...]:
    chains, comparisons = containers[CHAINS], list[LooComparison]()
    for site in chains.log_likelihood.data_vars if hasattr(chains, "log_likelihood") else ():
        others = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the table shows the number of bad k̂
            reference = leave_one_out(chains, site)
            for source in sources:
                try:
                    others[source] = leave_one_out(containers[source], site)
                except ValueError as error:
                    notes.append(f"no leave-one-out of {source}: {error}")
        comparisons += compare_loo(str(site), reference, others)
    return tuple(comparisons)


@contextmanager
def _timed(clock: dict[str, float | None], what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    clock[what] = time.perf_counter() - start
