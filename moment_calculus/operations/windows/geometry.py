"""Windows that move over the axes of an array: of pools, without padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

Offset = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """Windows over all axes of an array.

    Args:
        sizes: entries of a window along each axis.
        strides: steps between windows.
        dilations: distances of neighbouring entries of a window.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def still(self) -> bool:
        """Whether every window is one entry, and every entry one window."""
        return all(n == 1 for n in (*self.sizes, *self.strides))

    @property
    def disjoint(self) -> bool:
        """Whether no two windows have an entry in common."""
        return all(s >= span for s, span in zip(self.strides, self._spans(), strict=True))

    def _spans(self) -> list[int]:
        return [(n - 1) * r + 1 for n, r in zip(self.sizes, self.dilations, strict=True)]

    def counts(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Number of windows along each axis of an array.

        Args:
            shape: of the array.
        """
        parts = zip(shape, self._spans(), self.strides, strict=True)
        return tuple((n - span) // stride + 1 for n, span, stride in parts)

    def on(self, axes: Sequence[int]) -> Windows:
        """The same windows on some of the axes, single entries on the others.

        Args:
            axes: non-negative axes.
        """

        def kept(parts: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(n if axis in axes else 1 for axis, n in enumerate(parts))

        return Windows(kept(self.sizes), kept(self.strides), kept(self.dilations))

    def along(self, order: Sequence[int | None]) -> Windows:
        """The same windows on an array with other axes.

        Args:
            order: for each axis of that array which axis it is; None for one without windows.
        """

        def placed(parts: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(1 if axis is None else parts[axis] for axis in order)

        return Windows(placed(self.sizes), placed(self.strides), placed(self.dilations))

    def places(self) -> list[Offset]:
        """Places of the entries in a window, row by row."""
        return list(itertools.product(*(range(n) for n in self.sizes)))

    def entry(self, place: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
        """Which entries of an array are at one place of their windows.

        Args:
            place: in the window.
            shape: of the array.
        """
        starts = [r * i for r, i in zip(self.dilations, place, strict=True)]
        return self.strided(starts, self.counts(shape))

    def strided(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[slice, ...]:
        """Slices with the strides of the windows.

        Args:
            starts: first entry along each axis.
            counts: how many entries.
        """
        parts = zip(starts, counts, self.strides, strict=True)
        return tuple(slice(a, a + (n - 1) * stride + 1, stride) for a, n, stride in parts)

    def meeting(
        self, offset: Sequence[int], first: Sequence[int], second: Sequence[int]
    ) -> tuple[Offset, Offset]:
        """How far apart two entries of windows are, and where the first such pair is.

        Args:
            offset: from the window of the one to the window of the other.
            first: place of the one in its window.
            second: place of the other.

        Returns:
            The distance of the entries, and the place in the array of all pairs at this distance.
        """
        axes = list(zip(offset, first, second, self.strides, self.dilations, strict=True))
        lag = tuple(s * o + r * (j - i) for o, i, j, s, r in axes)
        starts = tuple(
            s * max(0, -o) + r * i + min(0, d) for (o, i, _, s, r), d in zip(axes, lag, strict=True)
        )
        return lag, starts

    def differences(self) -> Iterator[Offset]:
        """Differences between two places of a window, each of which occurs."""
        return itertools.product(*(range(1 - n, n) for n in self.sizes))

    def shrunk(self, difference: Sequence[int]) -> Windows:
        """The places of a window that have a partner at a difference.

        Args:
            difference: one of :meth:`differences`.
        """
        sizes = tuple(n - abs(e) for n, e in zip(self.sizes, difference, strict=True))
        return replace(self, sizes=sizes)

    def covered(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[slice, ...]:
        """What a number of windows cover.

        Args:
            starts: first entry along each axis.
            counts: how many windows.
        """
        parts = zip(starts, counts, self.strides, self._spans(), strict=True)
        return tuple(slice(a, a + (n - 1) * stride + span) for a, n, stride, span in parts)

    @property
    def pairs(self) -> int:
        """Number of differences between places of a window, up to the sign."""
        return (math.prod(2 * n - 1 for n in self.sizes) - 1) // 2
