"""Format corrected moments as a text table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from moment_calculus.response.latents import Latent

MOST = 20  # most elements of one site that are shown
HEADINGS = ("location", "guide's sd", "corrected sd", "ratio")


def table(
    latents: Mapping[str, Latent],
    deviations: Mapping[str, np.ndarray],  # corrected, unconstrained
    ends: Mapping[str, tuple[np.ndarray, np.ndarray]],  # ends of intervals on the supports
    mass: float,  # probability inside the intervals
) -> str:
    """Return a table of all latent sites, with the first elements of large ones."""
    tails = (1 - mass) / 2, (1 + mass) / 2
    headings = [*HEADINGS, *(f"{100 * tail:.3g}%" for tail in tails)]
    rows = [
        row
        for name, latent in latents.items()
        for row in _rows(name, latent, deviations[name], *ends[name])
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{'':{width}s} " + " ".join(f"{heading:>12s}" for heading in headings)]
    for name, numbers in rows:
        lines.append(f"{name:{width}s} " + " ".join(f"{number:12.4g}" for number in numbers))
    return "\n".join(lines)


def _rows(
    name: str, latent: Latent, deviation: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Iterator[tuple[str, list[float]]]:
    for place in list(np.ndindex(latent.loc.shape))[:MOST]:
        guide, corrected = latent.scale[place], deviation[place]
        ratio = corrected / guide if guide > 0 else np.inf
        parts = [latent.loc[place], guide, corrected, ratio, low[place], high[place]]
        yield f"{name}{list(place) if place else ''}", [float(part) for part in parts]
    if latent.loc.size > MOST:
        yield f"{name}, {latent.loc.size - MOST} more", []
