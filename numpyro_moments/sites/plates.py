"""The plates around a site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moment_calculus.objectives.data import Plate


class Part(NamedTuple):
    """NumPyro's frame of a plate around a site, of a plate that is a part of a larger one.

    Args:
        name: of the plate.
        dim: its axis among those of the batch, negative.
        size: its elements.
        full_size: elements of the larger one.
    """

    name: str
    dim: int
    size: int
    full_size: int


def plates_of(site: dict, sizes: Mapping[str, int]) -> tuple[Plate, ...]:
    """The plates around a site.

    Args:
        site: of a trace.
        sizes: full sizes of the plates that the trace knows, by name.
    """
    plates = []
    for frame in site.get("cond_indep_stack", ()):
        full = frame.full_size if isinstance(frame, Part) else sizes.get(frame.name, frame.size)
        plates.append(Plate(frame.name, frame.dim, frame.size, full))
    return tuple(plates)
