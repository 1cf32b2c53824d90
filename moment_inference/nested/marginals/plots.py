"""Pictures of marginals, beside priors and histograms of draws of chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.numerics.arrays import to_numpy
from moment_inference.display import COLOURS, EXPECTED, new_panels
from moment_inference.nested.marginals.site import Marginal

POINTS = 300
TAIL = 1e-3  # probability beyond each end of a picture
BINS = 40


class Panel(NamedTuple):
    """What is drawn of one element of a site."""

    name: str
    x: np.ndarray
    density: np.ndarray
    prior: np.ndarray | None  # None where it depends on other sites
    draws: np.ndarray | None  # of chains


def places_of(marginal: Marginal) -> np.ndarray:
    """Return the values at which the density of a scalar is drawn."""
    low, high = marginal.quantile(np.array([TAIL, 1 - TAIL]))
    return np.linspace(low, high, POINTS)


def draws_of(nuts: Any) -> dict[str, np.ndarray]:
    """Return draws by site of finished chains, or of a mapping."""
    draws = nuts.get_samples() if hasattr(nuts, "get_samples") else nuts
    if not isinstance(draws, Mapping):
        raise TypeError(
            f"nuts is a finished MCMC or a mapping of draws by site, not {type(nuts).__name__}"
        )
    return {name: to_numpy(value) for name, value in draws.items()}


def plot_panels(panels: Sequence[Panel], axes: Any) -> Any:
    """Draw each panel, and return the axes."""
    every = new_panels(axes, len(panels))
    for axis, panel in zip(every, panels, strict=True):
        _plot(axis, panel)
    return every


def _plot(axis: Any, panel: Panel) -> None:
    ends = panel.x[0], panel.x[-1]
    if panel.draws is not None:
        edges = np.linspace(*ends, BINS + 1)
        share = np.diff(edges) * panel.draws.size
        heights = np.histogram(panel.draws, edges)[0] / share
        axis.stairs(heights, edges, fill=True, color=EXPECTED, alpha=0.35, label="NUTS")
    axis.plot(panel.x, panel.density, color=COLOURS[0], linewidth=1.5, label="nested")
    if panel.prior is not None:
        axis.plot(panel.x, panel.prior, color=COLOURS[1], linestyle="--", label="prior")
    axis.set(xlim=ends, title=panel.name, yticks=[])
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)
