"""Show a comparison with chains as text or as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from moment_calculus.criticism.tables import aligned

if TYPE_CHECKING:
    from moment_calculus.criticism.comparison.comparison import Comparison
    from moment_calculus.criticism.comparison.loo import LooComparison
    from moment_calculus.criticism.comparison.predictions import PredictiveComparison
    from moment_calculus.criticism.comparison.sites import SiteComparison


def report(comparison: Comparison) -> str:
    """Return the tables of a comparison with warnings and notes below them."""
    parts = [
        _heading(comparison),
        *_sites(comparison.sites),
        *_predictive(comparison.predictive),
        *_loo(comparison.loo),
        *(f"- {note}" for note in (*comparison.chains.warnings, *comparison.notes)),
    ]
    return "\n".join(parts)


def _heading(comparison: Comparison) -> str:
    chains, (count, draws) = comparison.chains, comparison.chains.shape
    has_count = chains.divergences is not None
    diverged = f", {chains.divergences} divergences" if has_count else ""
    times = ", ".join(
        f"{what} {'not known' if spent is None else f'{spent:.1f} s'}"
        for what, spent in comparison.seconds.items()
    )
    return (
        f"NUTS: {count} × {draws} draws, R-hat ≤ {chains.rhat:.3f}, effective draws ≥ "
        f"{chains.effective:.0f}{diverged}\ntime: {times}"
    )


def _sites(sites: Sequence[SiteComparison]) -> list[str]:
    if not sites:
        return []
    sources = list(sites[0].ratios)
    head = ["site", "size", "Δ mean / sd: rms", "largest ± MC"]
    head += [f"sd / NUTS' sd: {source}" for source in sources]
    rows = [
        [
            site.name,
            f"{site.difference.size}",
            f"{_rms(site.difference):.3f}",
            f"{_at(site.difference, site.largest):+.3f} ± {_at(site.error, site.largest):.3f}",
            *(_spread(ratios) for ratios in site.ratios.values()),
        ]
        for site in sites
    ]
    return ["", "latent sites, on the unconstrained space", *aligned([head, *rows])]


def _predictive(comparisons: Sequence[PredictiveComparison]) -> list[str]:
    if not comparisons:
        return []
    head = ["predictions", "by", "Δ mean / sd: mean", "largest", "± MC", "variance / NUTS'"]
    head += ["distance (noise)"]
    rows = [
        [
            comparison.site,
            comparison.source,
            f"{np.nanmean(np.abs(comparison.difference)):.3f}",
            f"{np.nanmax(np.abs(comparison.difference)):.3f}",
            f"{comparison.error:.3f}",
            _spread(comparison.variance_ratio),
            f"{np.nanmean(comparison.distance):.3f} ({comparison.noise:.3f})",
        ]
        for comparison in comparisons
    ]
    return ["", *aligned([head, *rows])]


def _loo(comparisons: Sequence[LooComparison]) -> list[str]:
    if not comparisons:
        return []
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
    return ["", *aligned([head, *rows])]


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean(values**2)))


def _at(values: np.ndarray, place: int) -> float:
    return float(values.ravel()[place])


def _spread(values: np.ndarray) -> str:
    """Return the median, and the range if there are several values."""
    middle = f"{np.nanmedian(values):.2f}"
    if values.size == 1:
        return middle
    return f"{middle} ({np.nanmin(values):.2f}–{np.nanmax(values):.2f})"


def frame(sites: Iterable[SiteComparison]) -> Any:
    """Return a ``pandas.DataFrame`` with one row for each coordinate of the latent sites."""
    import pandas

    rows = [
        {
            "site": f"{site.name}[{', '.join(map(str, place))}]" if place else site.name,
            "difference": site.difference[place],
            "error": site.error[place],
            **{f"sd ratio, {source}": ratios[place] for source, ratios in site.ratios.items()},
        }
        for site in sites
        for place in np.ndindex(site.difference.shape)
    ]
    return pandas.DataFrame(rows).set_index("site")
