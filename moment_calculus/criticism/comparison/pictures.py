"""Plot a comparison with chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from moment_calculus.criticism.comparison.comparison import Comparison

NAMED = 24  # largest number of coordinates that are labelled
COLOURS = ("#0072b2", "#d55e00", "#009e73")  # distinct for the colour-blind (Okabe and Ito)


def plot_comparison(comparison: Comparison, axes: Any = None) -> Any:
    """Plot means, standard deviations and predictions against the chains; return three axes."""
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")[1]
    means, scales, predictions = axes
    _draw_means(means, comparison)
    _draw_scales(scales, comparison)
    _draw_predictions(predictions, comparison)
    return axes


def _draw_means(axes: Any, comparison: Comparison) -> None:
    difference = np.concatenate([site.difference.ravel() for site in comparison.sites])
    error = np.concatenate([site.error.ravel() for site in comparison.sites])
    places = np.arange(len(difference))
    axes.axhspan(-0.05, 0.05, color="0.9", label="± 0.05")
    axes.errorbar(places, difference, 2 * error, fmt=".", color=COLOURS[0], ecolor="0.6")
    axes.set_title("Posterior means")
    axes.set_ylabel("difference to NUTS, in its sd (± 2 MC errors)")
    axes.legend(loc="upper left", frameon=False)
    _name_coordinates(axes, comparison)


def _draw_scales(axes: Any, comparison: Comparison) -> None:
    sources = list(comparison.sites[0].ratios)
    axes.axhline(1.0, color="0.7", lw=1)
    for source, colour in zip(sources, COLOURS, strict=False):
        ratios = np.concatenate([site.ratios[source].ravel() for site in comparison.sites])
        axes.plot(ratios, ".", color=colour, label=source)
    _log_ratios(axes)
    axes.set_ylabel("standard deviation / NUTS'")
    axes.set_title("Posterior standard deviations")
    axes.legend(loc="best", frameon=False)
    _name_coordinates(axes, comparison)


def _name_coordinates(axes: Any, comparison: Comparison) -> None:
    """Label the coordinates if they are few, otherwise the sites where labels have room."""
    sizes = [site.difference.size for site in comparison.sites]
    total = sum(sizes)
    if total <= NAMED:
        axes.set_xticks(range(total), comparison.table().index, rotation=90)
        return
    named: dict[float, str] = {}
    for site, end in zip(comparison.sites, np.cumsum(sizes), strict=True):
        centre = end - site.difference.size / 2 - 0.5
        if not named or centre - max(named) > total / NAMED:
            named[centre] = site.name
    axes.set_xticks(list(named), named.values(), rotation=90)


def _log_ratios(axes: Any) -> None:
    """Give ratios a logarithmic axis with plain numbers, from 0.8 or less to 1.25 or more."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.8), max(high, 1.25))
    is_wide = max(high, 1.25) / min(low, 0.8) > 10
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_wide else range(1, 10)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_predictions(axes: Any, comparison: Comparison) -> None:
    sources = dict.fromkeys(part.source for part in comparison.predictive)
    axes.axhline(1.0, color="0.7", lw=1)
    axes.axvline(0.0, color="0.7", lw=1)
    for source, colour in zip(sources, COLOURS, strict=False):
        parts = [part for part in comparison.predictive if part.source == source]
        differences, ratios = (
            np.concatenate([getattr(part, name).ravel() for part in parts])
            for name in ("difference", "variance_ratio")
        )
        axes.plot(differences, ratios, ".", ms=4, alpha=0.6, color=colour, label=source)
    _log_ratios(axes)
    axes.set_xlabel("difference of predictive means, in NUTS' sd")
    axes.set_ylabel("predictive variance / NUTS'")
    axes.set_title("Predictions")
    axes.legend(loc="best", frameon=False)
