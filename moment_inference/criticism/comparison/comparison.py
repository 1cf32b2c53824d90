"""The result of ``compare_with_nuts``, and its computation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moment_inference.criticism.arviz_access import (
    Scores,
    chains_of,
    is_inference_data,
    leave_one_out,
    observed_sites,
)
from moment_inference.criticism.comparison.differences import (
    Chains,
    LooComparison,
    PredictiveComparison,
    SiteComparison,
    compare_sites,
)
from moment_inference.criticism.draws import Draws
from moment_inference.criticism.fitted_model import LINEAR_RESPONSE, RESPONSE_ERRORS, FittedModel
from moment_inference.display import aligned, data_frame, plot_comparison

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
        rows = [
            {
                "difference": site.difference[index],
                "error": site.error[index],
                **{f"sd ratio, {source}": ratios[index] for source, ratios in site.ratios.items()},
            }
            for site in self.sites
            for index in np.ndindex(site.difference.shape)
        ]
        return data_frame(rows, self._labels(), "site")

    def _labels(self) -> list[str]:
        """Return the names of all coordinates."""
        return [
            f"{site.name}[{', '.join(map(str, index))}]" if index else site.name
            for site in self.sites
            for index in np.ndindex(site.difference.shape)
        ]

    def plot(self, axes: Any = None) -> Any:
        """Plot means, standard deviations and predictions against those of the chains.

        Args:
            axes: three ``matplotlib`` axes; by default new ones.

        Returns:
            The three axes.
        """
        sources = dict.fromkeys(part.source for part in self.predictive)
        return plot_comparison(
            axes,
            labels=self._labels(),
            sizes={site.name: site.difference.size for site in self.sites},
            means=(_flat(self.sites, "difference"), _flat(self.sites, "error")),
            scales={
                source: np.concatenate([site.ratios[source].ravel() for site in self.sites])
                for source in self.sites[0].ratios
            },
            predictions={source: self._predictions(source) for source in sources},
        )

    def _predictions(self, source: str) -> tuple[np.ndarray, np.ndarray]:
        """Return differences of predictive means, and ratios of variances."""
        parts = [part for part in self.predictive if part.source == source]
        return _flat(parts, "difference"), _flat(parts, "variance_ratio")

    def __str__(self) -> str:
        """Return the tables and notes as text."""
        notes = [f"- {note}" for note in (*self.chains.warnings, *self.notes)]
        tables = [
            _rows_of_sites(self.sites),
            _rows_of_predictions(self.predictive),
            _rows_of_loo(self.loo),
        ]
        return "\n".join([self._heading(), *(line for lines in tables for line in lines), *notes])

    def _heading(self) -> str:
        chains, (count, draws) = self.chains, self.chains.shape
        has_count = chains.divergences is not None
        diverged = f", {chains.divergences} divergences" if has_count else ""
        times = ", ".join(
            f"{what} {'not known' if spent is None else f'{spent:.1f} s'}"
            for what, spent in self.seconds.items()
        )
        return (
            f"NUTS: {count} × {draws} draws, R-hat ≤ {chains.rhat:.3f}, effective draws ≥ "
            f"{chains.effective:.0f}{diverged}\ntime: {times}"
        )


def _flat(parts: Sequence[Any], name: str) -> np.ndarray:
    return np.concatenate([getattr(part, name).ravel() for part in parts])


def _rows_of_sites(sites: Sequence[SiteComparison]) -> list[str]:
    if not sites:
        return []
    head = ["site", "size", "Δ mean / sd: rms", "largest ± MC"]
    head += [f"sd / NUTS' sd: {source}" for source in sites[0].ratios]
    rows = [
        [
            site.name,
            f"{site.difference.size}",
            f"{np.sqrt(np.nanmean(site.difference**2)):.3f}",
            f"{site.difference.flat[site.largest]:+.3f} ± {site.error.flat[site.largest]:.3f}",
            *map(_range, site.ratios.values()),
        ]
        for site in sites
    ]
    return ["", "latent sites, on the unconstrained space", *aligned([head, *rows])]


def _rows_of_predictions(comparisons: Sequence[PredictiveComparison]) -> list[str]:
    head = ["predictions", "by", "Δ mean / sd: mean", "largest", "± MC", "variance / NUTS'"]
    head += ["distance (noise)"]
    rows = [
        [
            comparison.site,
            comparison.source,
            f"{np.nanmean(np.abs(comparison.difference)):.3f}",
            f"{np.nanmax(np.abs(comparison.difference)):.3f}",
            f"{comparison.error:.3f}",
            _range(comparison.variance_ratio),
            f"{np.nanmean(comparison.distance):.3f} ({comparison.noise:.3f})",
        ]
        for comparison in comparisons
    ]
    return ["", *aligned([head, *rows])] if rows else []


def _rows_of_loo(comparisons: Sequence[LooComparison]) -> list[str]:
    head = ["leave one out", "by", "elpd", "NUTS'", "difference ± se", "k̂", "k̂ bad, of data"]
    rows = [
        [
            comparison.site,
            comparison.source,
            f"{comparison.elpd:.2f}",
            f"{comparison.chains:.2f}",
            f"{comparison.difference:+.2f} ± {comparison.error:.2f}",
            f"{comparison.joint_shape:.2f}",
            f"{comparison.bad}",
        ]
        for comparison in comparisons
    ]
    return ["", *aligned([head, *rows])] if rows else []


def _range(values: np.ndarray) -> str:
    """Return the median, and the range if there are several values."""
    middle = f"{np.nanmedian(values):.2f}"
    if values.size == 1:
        return middle
    return f"{middle} ({np.nanmin(values):.2f}–{np.nanmax(values):.2f})"


def compare(
    fitted_model: FittedModel,
    reference: Any,  # finished chains, or an ``InferenceData``; None for new chains
    mcmc: type,  # the framework's class of chains
    run: Callable[[], Any],  # runs new chains, and returns them
) -> Comparison:
    """Compare a guide and its linear response with chains."""
    is_contained = is_inference_data(reference)
    if not (reference is None or is_contained or isinstance(reference, mcmc)):
        raise TypeError(
            f"reference is a finished MCMC of {fitted_model.framework} or an InferenceData of "
            f"ArviZ, not {type(reference).__name__}; without one, NUTS runs now"
        )
    fitted_model.check_observed()
    latent = fitted_model.latent if is_contained else []
    fitted_model.check_density()
    clock = fitted_model.seconds
    with _timed(clock, CHAINS):
        sampler = run() if reference is None else reference
        if is_contained:
            chains = chains_of(sampler, latent)
        else:
            chains = fitted_model.posterior.with_approximation(sampler).draws(0)
    if reference is not None:
        clock[CHAINS] = None
    with _timed(clock, LINEAR_RESPONSE):
        fitted_model.note_response()
    if LINEAR_RESPONSE not in fitted_model.approximations:
        del clock[LINEAR_RESPONSE]
    return _compared(fitted_model, chains, sampler)


def _compared(fitted_model: FittedModel, chains: Draws, sampler: Any) -> Comparison:
    sources, notes = fitted_model.approximations, fitted_model.notes
    units = {source: fitted_model.coordinates(source) for source in sources}
    draws = {**{source: fitted_model.cached_draws(source) for source in sources}, CHAINS: chains}
    containers = {source: fitted_model.inference_data(part) for source, part in draws.items()}
    return Comparison(
        Chains.of(chains),
        compare_sites(
            fitted_model.unconstrained(chains.values),
            units[fitted_model.approximation].loc,
            {source: coordinates.scale for source, coordinates in units.items()},
        ),
        _predictive(fitted_model, chains),
        _leave_one_out(containers, sources, notes),
        fitted_model.seconds,
        tuple(notes),
        containers,
        sampler,
    )


def _predictive(fitted_model: FittedModel, chains: Draws) -> tuple[PredictiveComparison, ...]:
    try:
        predictions = {
            source: fitted_model.prediction_draws(source) for source in fitted_model.approximations
        }
    except RESPONSE_ERRORS as error:
        fitted_model.notes.append(f"no predictions: {error}")
        return ()
    return tuple(
        PredictiveComparison.of(site, source, reference, by_site[site])
        for site, reference in fitted_model.prediction_of_chains(chains).items()
        for source, by_site in predictions.items()
    )


def _leave_one_out(
    containers: Mapping[str, Any], sources: Sequence[str], notes: list[str]
) -> tuple[LooComparison, ...]:
    comparisons = []
    for site in observed_sites(containers[CHAINS]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the table shows the number of bad k̂
            reference = Scores.of(leave_one_out(containers[CHAINS], site))
            for source in sources:
                try:
                    scores = Scores.of(leave_one_out(containers[source], site))
                except ValueError as error:
                    notes.append(f"no leave-one-out of {source}: {error}")
                    continue
                comparisons.append(LooComparison.of(site, source, reference, scores))
    return tuple(comparisons)


@contextmanager
def _timed(clock: dict[str, float | None], what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    clock[what] = time.perf_counter() - start
