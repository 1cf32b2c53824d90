"""Run a model with all elements of its plates, also where it takes a subsample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from pyro.poutine.subsample_messenger import SubsampleMessenger

from moment_calculus.criticism.containers.wording import part_of_plate

Enlarged = dict[str, tuple[int, int]]  # sizes of subsample and plate, by the plate's name


@contextlib.contextmanager
def whole_plates() -> Iterator[Enlarged]:
    """Give plates all their elements in a context, which yields those that took a subsample.

    Pyro's handlers can choose the elements of a subsample but not their number, so the method
    that decides both is replaced.
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
    """Raise ValueError if sites are observed only at a subsample of an enlarged plate."""
    for name, site in sites.items():
        value, event = site["value"], site["fn"].event_dim
        for frame in site["cond_indep_stack"]:
            if frame.vectorized and frame.name in enlarged:
                axis = frame.dim - event
                if value.dim() < -axis or value.shape[axis] != frame.size:
                    raise part_of_plate(frame.name, *enlarged[frame.name], f"in site '{name}'")
