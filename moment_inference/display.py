"""Show results as aligned text, data frames or plots; optional packages load on first use."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from moment_calculus.errors import optional_package
from moment_calculus.predictions.site import checked_count


def data_frame(rows: Sequence[Any], index: Sequence[Any], names: str | list[str]) -> Any:
    """Return a ``pandas.DataFrame`` of rows by column, with the names of its index."""
    pandas = optional_package("pandas", "tables need pandas")
    frame = pandas.DataFrame(rows)
    frame.index = pandas.Index(index).set_names(names)
    return frame


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return one line for each row of cells, with the columns aligned to the left."""
    lines = [list(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(_padded, line, widths)).rstrip() for line in lines]


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    """Return the printed width: a combining accent, as in k̂, takes no column."""
    return sum(not unicodedata.combining(letter) for letter in text)


def numeric_table(formats: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a heading; formats such as ``">8.3f"`` are by column."""
    heading = [format(name, form.partition(".")[0]) for name, form in formats.items()]
    cells = [[format(*cell) for cell in zip(row, formats.values(), strict=True)] for row in rows]
    return "\n".join("  ".join(line) for line in [heading, *cells])


def scores_table(scores: Mapping[str, float]) -> str:
    """Return one line for each score, with four digits."""
    return "\n".join(f"{name:<18}  {score:>10.4g}" for name, score in scores.items())


OBSERVED, EXPECTED = "#0072B2", "#8C8C8C"  # distinct with every kind of colour vision
COLOURS = ("#0072b2", "#d55e00", "#009e73")  # distinct for the colour-blind (Okabe and Ito)
BAND = 0.95  # probability of the bands of right predictions
INTERVALS = np.linspace(0.05, 0.95, 19)  # masses of the intervals whose coverage is shown
MAX_LABELS = 24  # largest number of coordinates that are labelled


def new_axes(axes: Any, columns: int = 1, **options: Any) -> Any:
    """Return axes, or new ones for None; raise ImportError without matplotlib."""
    if axes is not None:
        return axes
    pyplot = optional_package("matplotlib.pyplot", "pictures need matplotlib")
    return pyplot.subplots(1, columns, layout="constrained", **options)[1]


PANELS = 4  # in a row


def new_panels(axes: Any, count: int) -> Any:
    """Return as many axes in a flat array; new ones for None, in rows of four."""
    if axes is not None:
        return np.ravel(axes)
    pyplot = optional_package("matplotlib.pyplot", "pictures need matplotlib")
    columns = min(count, PANELS)
    rows = -(-count // columns)
    size = 3 * columns, 2.4 * rows
    every = pyplot.subplots(rows, columns, layout="constrained", figsize=size, squeeze=False)[1]
    for axis in every.flat[count:]:
        axis.set_visible(False)
    return every.ravel()[:count]


def plot_pit(
    axes: Any, title: str, below: np.ndarray, up_to: np.ndarray, bins: int | None, is_discrete: bool
) -> Any:
    """Plot a histogram of the probability integral transform with the band of a uniform one.

    For counts the histogram is the non-randomised one, whose bars vary less than the
    band. Source: Czado, Gneiting and Held 2009, eq. 2 and 3.
    """
    from scipy.stats import binom

    axes, count = new_axes(axes), up_to.size
    bins = checked_count(int(np.clip(count // 20, 5, 20)) if bins is None else bins, "bins")
    edges = np.linspace(0, 1, bins + 1)
    low, high = (end / count * bins for end in binom.interval(BAND, count, 1 / bins))
    heights = np.histogram(up_to.ravel(), edges, density=True)[0]
    if is_discrete:
        heights = _spread_heights(below.ravel(), up_to.ravel(), edges)
    _band(axes, np.array([0.0, 1.0]), low, high)
    axes.axhline(1, color=EXPECTED, linewidth=1.2, label="uniform")
    axes.stairs(heights, edges, fill=True, color=OBSERVED, alpha=0.2)
    axes.stairs(heights, edges, color=OBSERVED, linewidth=1.5, label="observed")
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1.2 * max(heights.max(), high)),
        xlabel="probability integral transform, P(Y ≤ y)",
        ylabel="relative frequency",
        title=title,
    )
    return _style(axes, loc="upper center", ncols=3)


def _spread_heights(low: np.ndarray, high: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the density of counts, each spread over P(Y < y) to P(Y ≤ y)."""
    width = np.maximum(high - low, np.finfo(np.float64).tiny)
    reached = np.clip((edges[:, None] - low) / width, 0, 1).mean(-1)
    return np.diff(reached) * (len(edges) - 1)


def plot_coverage(
    axes: Any, title: str, count: int, expected: np.ndarray, observed: np.ndarray
) -> Any:
    """Plot shares of observations inside intervals against predicted probabilities."""
    from scipy.stats import binom

    axes, grid = new_axes(axes), np.linspace(0, 1, 101)
    _band(axes, grid, *(end / count for end in binom.interval(BAND, count, grid)))
    _diagonal(axes)
    axes.plot(expected, observed, color=OBSERVED, marker="o", markersize=4, label="observed")
    for x, y, side, wrong in ((0.04, 0.93, "left", "wide"), (0.96, 0.04, "right", "narrow")):
        axes.text(x, y, f"too {wrong}", ha=side, color=EXPECTED, style="italic")
    axes.set(
        xlabel="predictive probability of the intervals",
        ylabel="observations inside",
        title=title,
    )
    return _style(axes, loc="center right", bbox_to_anchor=(1.0, 0.26))


def plot_reliability(
    axes: Any,
    title: str,
    edges: np.ndarray,  # [bins + 1]; the other arrays are [bins]
    count: np.ndarray,
    confidence: np.ndarray,
    accuracy: np.ndarray,
    standard_error: np.ndarray,
    of: int | None,
) -> Any:
    """Plot observed frequencies against predicted probabilities, with the counts above.

    The bars around the diagonal are two standard errors of right probabilities.
    Source: Guo et al. 2017, figure 1; Bröcker and Smith 2007 for the bars.
    """
    axes, full = new_axes(axes), count > 0
    sure, right, chance = confidence[full], accuracy[full], 2 * standard_error[full]
    _diagonal(axes)
    low, high = np.clip([sure - chance, sure + chance], 0, 1)
    axes.vlines(sure, low, high, color=EXPECTED, alpha=0.35, linewidth=7, label="95 % by chance")
    axes.plot(sure, right, color=OBSERVED, marker="o", markersize=5, label="observed")
    axes.set(
        xlabel="confidence" if of is None else f"predicted probability of class {of}",
        ylabel="accuracy" if of is None else f"frequency of class {of}",
    )
    above = axes.inset_axes([0, 1.03, 1, 0.16], sharex=axes)
    above.stairs(count, edges, fill=True, color=OBSERVED, alpha=0.75)
    above.set(ylabel="count", title=title, ylim=(0, 1.05 * count.max()))
    above.set_yticks([int(count.max())])
    above.tick_params(labelbottom=False)
    above.spines[["top", "right"]].set_visible(False)
    return _style(axes, loc="upper left")


def _diagonal(axes: Any) -> None:
    axes.plot([0, 1], [0, 1], color=EXPECTED, linewidth=1.2, label="as predicted")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")


def _band(axes: Any, x: np.ndarray, low: Any, high: Any) -> None:
    label = f"{100 * BAND:.0f} % by chance"
    axes.fill_between(x, low, high, color=EXPECTED, alpha=0.25, linewidth=0, label=label)


def _style(axes: Any, **legend: Any) -> Any:
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, **legend)
    return axes


def plot_comparison(
    axes: Any,
    labels: Sequence[str],  # of the coordinates
    sizes: Mapping[str, int],  # number of coordinates by site
    means: tuple[np.ndarray, np.ndarray],  # differences of all coordinates, and their errors
    scales: Mapping[str, np.ndarray],  # ratios of all coordinates, by approximation
    predictions: Mapping[str, tuple[np.ndarray, np.ndarray]],  # differences, variance ratios
) -> Any:
    """Plot means, deviations and predictions against chains; return three axes."""
    axes = new_axes(axes, 3, figsize=(13, 3.8))
    of_means, of_scales, of_predictions = axes
    of_means.axhspan(-0.05, 0.05, color="0.9", label="± 0.05")
    positions, (difference, error) = np.arange(len(labels)), means
    of_means.errorbar(positions, difference, 2 * error, fmt=".", color=COLOURS[0], ecolor="0.6")
    of_means.set_title("Posterior means")
    of_means.set_ylabel("difference to NUTS, in its sd (± 2 MC errors)")
    of_means.legend(loc="upper left", frameon=False)
    _name_coordinates(of_means, labels, sizes)
    of_scales.axhline(1.0, color="0.7", lw=1)
    for (source, ratios), colour in zip(scales.items(), COLOURS, strict=False):
        of_scales.plot(ratios, ".", color=colour, label=source)
    of_scales.set_ylabel("standard deviation / NUTS'")
    _finish_ratios(of_scales, "Posterior standard deviations")
    _name_coordinates(of_scales, labels, sizes)
    of_predictions.axhline(1.0, color="0.7", lw=1)
    of_predictions.axvline(0.0, color="0.7", lw=1)
    for (source, pair), colour in zip(predictions.items(), COLOURS, strict=False):
        of_predictions.plot(*pair, ".", ms=4, alpha=0.6, color=colour, label=source)
    of_predictions.set_xlabel("difference of predictive means, in NUTS' sd")
    of_predictions.set_ylabel("predictive variance / NUTS'")
    _finish_ratios(of_predictions, "Predictions")
    return axes


def _name_coordinates(axes: Any, labels: Sequence[str], sizes: Mapping[str, int]) -> None:
    """Label the coordinates if they are few, otherwise the sites."""
    if len(labels) <= MAX_LABELS:
        axes.set_xticks(range(len(labels)), labels, rotation=90)
        return
    by_centre: dict[float, str] = {}
    for (name, size), end in zip(sizes.items(), np.cumsum([*sizes.values()]), strict=True):
        centre = end - size / 2 - 0.5
        if not by_centre or centre - max(by_centre) > len(labels) / MAX_LABELS:
            by_centre[centre] = name
    axes.set_xticks(list(by_centre), by_centre.values(), rotation=90)


def _finish_ratios(axes: Any, title: str) -> None:
    """Give ratios a logarithmic axis with plain numbers, at least 0.8 to 1.25."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.8), max(high, 1.25))
    is_wide = max(high, 1.25) / min(low, 0.8) > 10
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_wide else range(1, 10)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title)
    axes.legend(loc="best", frameon=False)


def plot_accuracy(
    axes: Any,
    labels: Mapping[int, str],  # by number of the row
    mean_errors: np.ndarray,  # ε_μ and its standard errors, [rows, 2]
    deviation_ratios: np.ndarray,  # ε_σ and its standard errors, [rows, 2]
    noise: float,  # ε_μ of exact moments
) -> Any:
    """Plot ε_μ and ε_σ along the program, with three standard errors; return two axes."""
    axes = new_axes(axes, 2, sharey=True, figsize=(9, 1.5 + 0.25 * len(labels)))
    upper, lower = np.ravel(axes)
    for axis, estimates in ((upper, mean_errors), (lower, deviation_ratios)):
        errors = 3 * estimates[:, 1]
        axis.errorbar(estimates[:, 0], [*labels], xerr=errors, fmt="o-", capsize=3)
    upper.axvline(noise, color="grey", linestyle=":")
    lower.axvline(1.0, color="grey", linestyle=":")
    lower.set_xscale("log")
    upper.set_yticks([*labels], [*labels.values()])
    upper.invert_yaxis()
    upper.set_xlabel("ε_μ (dotted: exact moments)")
    lower.set_xlabel("ε_σ")
    return axes
