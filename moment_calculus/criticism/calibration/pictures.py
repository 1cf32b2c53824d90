"""Plot calibration; matplotlib is imported on the first plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from moment_calculus.predictions.site import checked_count

if TYPE_CHECKING:
    from moment_calculus.criticism.calibration.calibration import Calibration
    from moment_calculus.criticism.calibration.classes import ClassCalibration

OBSERVED, EXPECTED = "#0072B2", "#8C8C8C"  # distinct with every kind of colour vision
BAND = 0.95  # probability of the bands of right predictions
MASSES = np.linspace(0.05, 0.95, 19)


def plot_pit(calibration: Calibration, axes: Any = None, *, bins: int | None = None) -> Any:
    """Plot a histogram of the probability integral transform with the band of a uniform one.

    For counts the histogram is the non-randomised one, whose bars vary less than the
    band. Source: Czado, Gneiting and Held 2009, eq. 2 and 3.
    """
    from scipy.stats import binom

    axes, count = axes_or_new(axes), calibration.observed.size
    bins = checked_count(int(np.clip(count // 20, 5, 20)) if bins is None else bins, "bins")
    edges = np.linspace(0, 1, bins + 1)
    low, high = (end / count * bins for end in binom.interval(BAND, count, 1 / bins))
    heights = _pit_heights(calibration, edges)
    _band(axes, np.array([0.0, 1.0]), low, high)
    axes.axhline(1, color=EXPECTED, linewidth=1.2, label="uniform")
    axes.stairs(heights, edges, fill=True, color=OBSERVED, alpha=0.2)
    axes.stairs(heights, edges, color=OBSERVED, linewidth=1.5, label="observed")
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1.2 * max(heights.max(), high)),
        xlabel="probability integral transform, P(Y ≤ y)",
        ylabel="relative frequency",
        title=_title(calibration),
    )
    return _style(axes, loc="upper center", ncols=3)


def _pit_heights(calibration: Calibration, edges: np.ndarray) -> np.ndarray:
    """Return the histogram density; a count is spread over P(Y < y) to P(Y ≤ y)."""
    low, high = calibration.below.ravel(), calibration.up_to.ravel()
    if calibration.is_discrete:
        width = np.maximum(high - low, np.finfo(np.float64).tiny)
        reached = np.clip((edges[:, None] - low) / width, 0, 1).mean(-1)
        return np.diff(reached) * (len(edges) - 1)
    return np.histogram(high, edges, density=True)[0]


def plot_coverage(calibration: Calibration, axes: Any = None) -> Any:
    """Plot shares of observations inside central intervals against predicted probabilities."""
    from scipy.stats import binom

    axes, count = axes_or_new(axes), calibration.observed.size
    found, grid = calibration.coverage(MASSES.tolist()), np.linspace(0, 1, 101)
    _band(axes, grid, *(end / count for end in binom.interval(BAND, count, grid)))
    axes.plot([0, 1], [0, 1], color=EXPECTED, linewidth=1.2, label="as predicted")
    axes.plot(
        found.expected, found.observed, color=OBSERVED, marker="o", markersize=4, label="observed"
    )
    for x, y, side, wrong in ((0.04, 0.93, "left", "wide"), (0.96, 0.04, "right", "narrow")):
        axes.text(x, y, f"too {wrong}", ha=side, color=EXPECTED, style="italic")
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
        xlabel="predictive probability of the intervals",
        ylabel="observations inside",
        title=_title(calibration),
    )
    return _style(axes, loc="center right", bbox_to_anchor=(1.0, 0.26))


def plot_reliability(
    calibration: ClassCalibration, axes: Any = None, *, bins: int = 10, of: int | None = None
) -> Any:
    """Plot observed frequencies against predicted probabilities, with the counts above.

    The bars around the diagonal are two standard errors of right probabilities.
    Source: Guo et al. 2017, figure 1; Bröcker and Smith 2007 for the bars.
    """
    axes, found = axes_or_new(axes), calibration.reliability(bins, of=of)
    full = found.count > 0
    sure, right = found.confidence[full], found.accuracy[full]
    axes.plot([0, 1], [0, 1], color=EXPECTED, linewidth=1.2, label="as predicted")
    chance = 2 * found.standard_error[full]
    low, high = np.clip([sure - chance, sure + chance], 0, 1)
    axes.vlines(sure, low, high, color=EXPECTED, alpha=0.35, linewidth=7, label="95 % by chance")
    axes.plot(sure, right, color=OBSERVED, marker="o", markersize=5, label="observed")
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
        xlabel="confidence" if of is None else f"predicted probability of class {of}",
        ylabel="accuracy" if of is None else f"frequency of class {of}",
    )
    _counts(axes, found.edges, found.count, _title(calibration))
    return _style(axes, loc="upper left")


def _counts(axes: Any, edges: np.ndarray, count: np.ndarray, title: str) -> None:
    """Plot the number of probabilities in each bin above the diagram."""
    above = axes.inset_axes([0, 1.03, 1, 0.16], sharex=axes)
    above.stairs(count, edges, fill=True, color=OBSERVED, alpha=0.75)
    above.set(ylabel="count", title=title, ylim=(0, 1.05 * count.max()))
    above.set_yticks([int(count.max())])
    above.tick_params(labelbottom=False)
    above.spines[["top", "right"]].set_visible(False)


def _band(axes: Any, x: np.ndarray, low: Any, high: Any) -> None:
    label = f"{100 * BAND:.0f} % by chance"
    axes.fill_between(x, low, high, color=EXPECTED, alpha=0.25, linewidth=0, label=label)


def _title(calibration: Calibration | ClassCalibration) -> str:
    return calibration.prediction.name


def _style(axes: Any, **legend: Any) -> Any:
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, **legend)
    return axes


def axes_or_new(axes: Any) -> Any:
    """Return the axes, or new ones for None; raise ImportError without matplotlib."""
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            'pictures need matplotlib: pip install "pyro-moments[diagnostics]"'
        ) from error
    return pyplot.subplots(layout="constrained")[1]
