"""Geometry of windows that move over the axes of an array without padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

Offset = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """Windows over all axes of an array."""

    sizes: tuple[int, ...]  # entries of a window along each axis
    strides: tuple[int, ...]  # steps between windows
    dilations: tuple[int, ...]  # distances between neighbouring entries of a window

    @property
    def is_trivial(self) -> bool:
        """Whether every window is one entry, and every entry is one window."""
        return all(n == 1 for n in (*self.sizes, *self.strides))

    @property
    def disjoint(self) -> bool:
        """Whether no two windows have an entry in common."""
        return all(s >= span for s, span in zip(self.strides, self._spans(), strict=True))

    def _spans(self) -> list[int]:
        return [(n - 1) * r + 1 for n, r in zip(self.sizes, self.dilations, strict=True)]

    def counts(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the number of windows along each axis of an array of a given shape."""
        parts = zip(shape, self._spans(), self.strides, strict=True)
        return tuple((n - span) // stride + 1 for n, span, stride in parts)

    def restricted_to(self, axes: Sequence[int]) -> Windows:
        """Return the same windows on some non-negative axes, single entries on the others."""

        def on_axes(parts: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(n if axis in axes else 1 for axis, n in enumerate(parts))

        return Windows(on_axes(self.sizes), on_axes(self.strides), on_axes(self.dilations))

    def with_axes(self, order: Sequence[int | None]) -> Windows:
        """Return the windows of an array with other axes, each an old axis or None (no windows)."""

        def on_order(parts: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(1 if axis is None else parts[axis] for axis in order)

        return Windows(on_order(self.sizes), on_order(self.strides), on_order(self.dilations))

    def places(self) -> list[Offset]:
        """Return the places of the entries in a window, row by row."""
        return list(itertools.product(*(range(n) for n in self.sizes)))

    def slices_at(self, place: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
        """Return slices of an array for the entries at one place of their windows."""
        starts = [r * i for r, i in zip(self.dilations, place, strict=True)]
        return self.strided(starts, self.counts(shape))

    def strided(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[slice, ...]:
        """Return slices of ``counts`` entries with the strides of the windows."""
        parts = zip(starts, counts, self.strides, strict=True)
        return tuple(slice(a, a + (n - 1) * stride + 1, stride) for a, n, stride in parts)

    def pair_lag(
        self, offset: Sequence[int], first: Sequence[int], second: Sequence[int]
    ) -> tuple[Offset, Offset]:
        """Return the distance of two entries of windows, and the place of the first such pair.

        ``first`` and ``second`` are places in windows that are an offset apart. The place
        is an index of the covariances at this distance, see :func:`.lags.lag_covariance`.
        """
        axes = list(zip(offset, first, second, self.strides, self.dilations, strict=True))
        lag = tuple(s * o + r * (j - i) for o, i, j, s, r in axes)
        starts = tuple(
            s * max(0, -o) + r * i + min(0, d) for (o, i, _, s, r), d in zip(axes, lag, strict=True)
        )
        return lag, starts

    def differences(self) -> Iterator[Offset]:
        """Return all differences between two places of a window."""
        return itertools.product(*(range(1 - n, n) for n in self.sizes))

    def with_partner(self, difference: Sequence[int]) -> Windows:
        """Return windows of the places that have a partner at a difference."""
        sizes = tuple(n - abs(e) for n, e in zip(self.sizes, difference, strict=True))
        return replace(self, sizes=sizes)

    def covered_slices(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[slice, ...]:
        """Return slices of all entries that ``counts`` windows from ``starts`` cover."""
        parts = zip(starts, counts, self.strides, self._spans(), strict=True)
        return tuple(slice(a, a + (n - 1) * stride + span) for a, n, stride, span in parts)

    @property
    def pairs(self) -> int:
        """The number of nonzero differences between places of a window, up to the sign."""
        return (math.prod(2 * n - 1 for n in self.sizes) - 1) // 2
