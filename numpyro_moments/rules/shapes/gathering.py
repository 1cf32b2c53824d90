"""Read the dimension numbers of a gather: where its elements come from and go to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Layout:
    """The axes of a gather."""

    shape: tuple[int, ...]  # of the operand
    batch: tuple[int, ...]  # shape of the indices, without their last axis
    sizes: tuple[int, ...]  # of the slice at every index, along each axis of the operand
    starts: Mapping[int, int]  # by axis of the operand: component of an index where a slice starts
    batching: Mapping[int, int]  # by axis of the operand: batch axis that is iterated with it
    collapsed: tuple[int, ...]  # axes of the operand that the slices, of size one there, leave out
    offsets: tuple[int, ...]  # positions of the axes of the slices in the result

    @classmethod
    def of(cls, numbers: Any, shape: tuple, indices: tuple, sizes: tuple) -> Layout:
        """Read the ``GatherDimensionNumbers``; the other arguments are shapes."""
        pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
        return cls(
            tuple(shape),
            indices[:-1],
            sizes,
            {int(axis): i for i, axis in enumerate(numbers.start_index_map)},
            {int(axis): int(place) for axis, place in pairs},
            tuple(map(int, numbers.collapsed_slice_dims)),
            tuple(map(int, numbers.offset_dims)),
        )

    @property
    def sliced(self) -> list[int]:
        """Return the axes of the operand that the slices have, in order."""
        left_out = (*self.collapsed, *self.batching)
        return [axis for axis in range(len(self.shape)) if axis not in left_out]

    @property
    def whole(self) -> list[int]:
        """Return the axes that the slices have from one end to the other."""
        return [axis for axis in self.sliced if self.sizes[axis] == self.shape[axis]]

    @property
    def windows(self) -> list[int]:
        """Return the axes that the slices have a part of."""
        return [axis for axis in self.sliced if self.sizes[axis] != self.shape[axis]]

    def places(self, indices: Any) -> tuple[dict[int, Any], Any]:
        """Return index arrays ``batch + windows`` of all axes but the whole ones, within bounds.

        The indices are integers ``batch + [components]``. Booleans ``batch`` that are
        also returned tell whether an index was within bounds.
        """
        wide = self.batch + tuple(self.sizes[axis] for axis in self.windows)
        xp = np if isinstance(indices, np.ndarray) else jnp
        inside, found = xp.ones(self.batch, bool), {}
        for axis in range(len(self.shape)):
            if axis in self.batching:
                found[axis] = self._count(len(wide), self.batching[axis], wide)
                continue
            start = indices[..., self.starts[axis]] if axis in self.starts else np.zeros((), int)
            last = self.shape[axis] - self.sizes[axis]
            inside = inside & (start >= 0) & (start <= last)
            if axis not in self.whole:
                place = self._wide(xp.clip(start, 0, last))
                if axis in self.windows:
                    dimension = len(self.batch) + self.windows.index(axis)
                    place = place + self._count(len(wide), dimension, wide)
                found[axis] = xp.broadcast_to(place, wide)
        return found, inside

    def _wide(self, start: Any) -> Any:
        return start.reshape(start.shape + (1,) * (len(self.windows) if start.ndim else 0))

    @staticmethod
    def _count(rank: int, axis: int, shape: tuple[int, ...]) -> Any:
        line = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(rank)])
        return np.broadcast_to(line, shape)

    def order(self) -> list[int]:
        """Return where each axis of the result is among ``batch + windows + whole``."""
        lead = len(self.batch)
        kept = [*self.windows, *self.whole]
        return self._placed(range(lead), [lead + kept.index(axis) for axis in self.sliced])

    def _placed(self, batch: Any, sliced: Any) -> list[int]:
        of_batch, of_slices = iter(batch), iter(sliced)
        rank = len(self.batch) + len(self.offsets)
        return [next(of_slices if i in self.offsets else of_batch) for i in range(rank)]

    def aligned(self, inside: Any) -> Any:
        """Return booleans ``batch``, with axes of size one for those of the slices."""
        return jnp.reshape(inside, self._placed(self.batch, [1] * len(self.offsets)))

    def lines(self, place: Any, axis: int) -> tuple[Any, tuple[int, ...]]:
        """Return the index array of one axis if all others are whole or iterated with the batch.

        Its axes are the operand's other axes (of size one for whole ones), then the free
        axes of the batch and the window, whose sizes are also returned.
        """
        others = [other for other in range(len(self.shape)) if other != axis]
        bound = [self.batching[other] for other in others if other in self.batching]
        free = [i for i in range(place.ndim) if i not in bound]
        sizes = tuple(place.shape[i] for i in free)
        ordered = place.transpose(*bound, *free)
        lead = [self.shape[other] if other in self.batching else 1 for other in others]
        return ordered.reshape((*lead, *sizes)), sizes

    def order_along(self, axis: int) -> list[int]:
        """Return where each axis of the result is, if free axes replace an axis of the operand."""
        inverse = {place: other for other, place in self.batching.items()}
        free = [i for i in range(len(self.batch)) if i not in inverse]
        count = len(free) + len(self.windows)
        moved = lambda other: other if other < axis else other - 1 + count  # noqa: E731
        batch = [
            moved(inverse[i]) if i in inverse else axis + free.index(i)
            for i in range(len(self.batch))
        ]
        sliced = [axis + len(free) if other == axis else moved(other) for other in self.sliced]
        return self._placed(batch, sliced)
