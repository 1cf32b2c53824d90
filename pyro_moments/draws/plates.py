"""Plates with all their elements, where the model takes a subsample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from pyro.poutine.subsample_messenger import SubsampleMessenger

from moment_calculus.criticism.containers.wording import part_of_plate

Enlarged = dict[str, tuple[int, int]]  # how many elements of how many, by name of the plate


@contextlib.contextmanager
def whole_plates() -> Iterator[Enlarged]:
    """A context in which plates have all their elements; tells which took a part of them.

    Pyro asks its handlers which elements a subsample has, but not how many: what decides that is
    exchanged for the time of the context.
    """
    enlarged: Enlarged = {}
    subsample = SubsampleMessenger._subsample

    def whole(
        name: str,
        size: int | None = None,
        subsample_size: int | None = None,
        part: Any = None,
        *device: Any,
    ) -> tuple:
        if size is None:
            return subsample(name, size, subsample_size, part, *device)
        count = subsample_size if part is None else len(part)
        if count is not None and count != size:
            enlarged[name] = int(count), int(size)
        return subsample(name, size, None, None, *device)

    with mock.patch.object(SubsampleMessenger, "_subsample", staticmethod(whole)):
        yield enlarged


def check_whole(enlarged: Enlarged, sites: Mapping[str, Any]) -> None:
    """Refuse observations of a part of a plate.

    Args:
        enlarged: plates of which the model took a part.
        sites: observed ones, by name.

    Raises:
        ValueError: naming plate and site.
    """
    for name, site in sites.items():
        value, event = site["value"], site["fn"].event_dim
        for frame in site["cond_indep_stack"]:
            if frame.vectorized and frame.name in enlarged:
                axis = frame.dim - event
                if value.dim() < -axis or value.shape[axis] != frame.size:
                    raise part_of_plate(frame.name, *enlarged[frame.name], f"in site '{name}'")
