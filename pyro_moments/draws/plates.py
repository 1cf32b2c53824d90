"""Run a model with all elements of its plates, also where it takes a subsample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from pyro.poutine.subsample_messenger import SubsampleMessenger

from moment_calculus.criticism.model_with_draws import part_of_plate

SubsampledPlates = dict[str, tuple[int, int]]  # sizes of subsample and plate, by the plate's name


@contextlib.contextmanager
def without_subsampling() -> Iterator[SubsampledPlates]:
    """Give plates all their elements in a context, which yields those that took a subsample.

    Pyro's handlers can choose the elements of a subsample but not their number, so the
    method that decides both is replaced.
    """
    subsampled: SubsampledPlates = {}
    subsample = SubsampleMessenger._subsample

    def without_subsample(
        name: str,
        size: int | None = None,
        subsample_size: int | None = None,
        indices: Any = None,
        *device: Any,
    ) -> tuple:
        if size is None:
            return subsample(name, size, subsample_size, indices, *device)
        count = subsample_size if indices is None else len(indices)
        if count is not None and count != size:
            subsampled[name] = int(count), int(size)
        return subsample(name, size, None, None, *device)

    with mock.patch.object(SubsampleMessenger, "_subsample", staticmethod(without_subsample)):
        yield subsampled


def check_observed_whole(subsampled: SubsampledPlates, sites: Mapping[str, Any]) -> None:
    """Raise ValueError if sites are observed only at a subsample of an enlarged plate."""
    for name, site in sites.items():
        value, event = site["value"], site["fn"].event_dim
        for frame in site["cond_indep_stack"]:
            if frame.vectorized and frame.name in subsampled:
                axis = frame.dim - event
                if value.dim() < -axis or value.shape[axis] != frame.size:
                    raise part_of_plate(frame.name, *subsampled[frame.name], f"in site '{name}'")
