"""Read the plates around a site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moment_calculus.objectives.data import Plate


class Part(NamedTuple):
    """A frame like NumPyro's of a plate around a site, which is part of a larger plate."""

    name: str
    dim: int  # axis among those of the batch, negative
    size: int
    full_size: int  # of the larger plate


def plates_of(site: dict, sizes: Mapping[str, int]) -> tuple[Plate, ...]:
    """Return the plates around a site of a trace; ``sizes`` are full sizes by name."""
    plates = []
    for frame in site.get("cond_indep_stack", ()):
        full = frame.full_size if isinstance(frame, Part) else sizes.get(frame.name, frame.size)
        plates.append(Plate(frame.name, frame.dim, frame.size, full))
    return tuple(plates)
