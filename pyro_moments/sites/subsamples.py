"""Run plates that a model subsamples with all their elements."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any
from unittest import mock

from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import SubsampleMessenger
from pyro.poutine.util import site_is_subsample

SubsampledPlates = dict[str, tuple[int, int]]  # sizes of subsample and plate, by the plate's name


class DrawnSubsamples(Messenger):
    """Collects the plates that draw a subsample; a context."""

    def __init__(self) -> None:
        super().__init__()
        self.plates: SubsampledPlates = {}

    def _process_message(self, msg: Any) -> None:
        if msg["value"] is not None or not site_is_subsample(msg):
            return
        size, part = msg["fn"].size, msg["fn"].subsample_size
        if part is not None and part < size:
            self.plates[msg["name"]] = part, size


@contextlib.contextmanager
def without_subsampling(
    sizes: Collection[int] | None = None,  # of plates that draw a subsample; None: of all
) -> Iterator[SubsampledPlates]:
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
        if size is None or (sizes is not None and (size not in sizes or indices is not None)):
            return subsample(name, size, subsample_size, indices, *device)
        count = subsample_size if indices is None else len(indices)
        if count is not None and count != size:
            subsampled[name] = int(count), int(size)
        return subsample(name, size, None, None, *device)

    with mock.patch.object(SubsampleMessenger, "_subsample", staticmethod(without_subsample)):
        yield subsampled
