"""Sums over moving windows, with the known dependence between positions, and largest entries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from moment_calculus.errors import DependenceWarning, warn_user
from moment_calculus.numerics.arrays import Array, constants, namespace, positive_part
from moment_calculus.numerics.derivatives import transposed_each
from moment_calculus.operations.linear.maps import map_features
from moment_calculus.operations.shapes.moves import warn_dropped
from moment_calculus.values import Gaussian, Spread, Ties, Value
from moment_calculus.values.lags import Pairs, lag_covariance, remaining
from moment_calculus.values.protocols import KnowsLags
from moment_calculus.values.spread import batch_shape

__all__ = ["Windows", "window_sum"]

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

    def keeps(self, axis: int) -> bool:
        """Whether every entry along an axis is one window."""
        return self.sizes[axis] == self.strides[axis] == 1

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
        return self.with_axes([a if a in axes else None for a in range(len(self.sizes))])

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
        is an index of the covariances at this distance, see :func:`.lag_covariance`.
        """
        axes = list(zip(offset, first, second, self.strides, self.dilations, strict=True))
        lag = tuple(s * o + r * (j - i) for o, i, j, s, r in axes)
        starts = tuple(
            s * max(0, -o) + r * i + min(0, d) for (o, i, _, s, r), d in zip(axes, lag, strict=True)
        )
        return lag, starts

    def pairs(self, shape: Sequence[int]) -> Pairs:
        """Return all pairs of two entries of one window, for an array of a shape."""
        starts = self._starts((0,) * len(shape))
        kinds = tuple(itertools.combinations(range(len(starts)), 2))
        return Pairs(starts, kinds, self.strides, self.counts(shape))

    def pairs_apart(self, offset: Offset, shape: Sequence[int]) -> Pairs:
        """Return all pairs of an entry of one window and one of the window an offset from it."""
        first, second = Pairs.at(offset, self.counts(shape)).starts
        starts = (*self._starts(first), *self._starts(second))
        size = len(starts) // 2
        kinds = tuple(itertools.product(range(size), range(size, 2 * size)))
        return Pairs(starts, kinds, self.strides, remaining(self.counts(shape), offset))

    def _starts(self, window: Offset) -> tuple[Offset, ...]:
        """Return where the entries of a window are."""
        axes = list(zip(self.strides, window, self.dilations, strict=True))
        entries = (zip(axes, place, strict=True) for place in self.places())
        return tuple(tuple(s * o + r * i for (s, o, r), i in entry) for entry in entries)

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
    def distances(self) -> int:
        """The number of nonzero differences between places of a window, up to the sign."""
        return (math.prod(2 * n - 1 for n in self.sizes) - 1) // 2


WindowKernel = Callable[[Array, Windows], Array]  # sums an array of any rank over windows
MOST_DISTANCES = 256  # most distances between positions for a sum over whole axes
FEW = 9  # entries of a window whose pairs are taken at once, not by their distances


def window_sum(value: Value, windows: Windows, kernel: WindowKernel) -> Gaussian:
    """Return the sums over windows; pad with zeros before, and divide by the size for a mean.

    Exact for independent components, a known covariance of features, and where
    :func:`.lag_covariance` knows the positions: after the first convolution, with
    activations, scales and biases between. In diagonal mode features enter as
    independent.
    """
    value = value.gaussian()
    if value.independent and windows.disjoint:
        spread = Spread(kernel(value.variance, windows))
        return _window_value(value, value, windows, kernel, spread, Ties.NONE)
    result = value
    feature_axis = None if value.axis is None else len(value.shape) + value.axis
    features = windows.restricted_to([] if feature_axis is None else [feature_axis])
    if feature_axis is not None and not features.is_trivial:
        mapped = map_features(value, _matrix(value, feature_axis, features))
        spread = Spread(mapped.variance, mapped.joint_covariance, mapped.has_covariance)
        result = _window_value(value, mapped, features, kernel, spread)
    others = windows.restricted_to(
        [axis for axis in range(len(value.shape)) if axis != feature_axis]
    )
    if others.is_trivial:
        return result
    pooled = _pool_batch(result, others, kernel, independent=value.batch_independent)
    return _as_independent(result, others, kernel) if pooled is None else pooled


def sum_of_dependent(value: Gaussian, axes: Sequence[int]) -> Gaussian | None:
    """Sum over axes of the batch, which stay with size one; None if the covariance is unknown."""
    still = (1,) * len(value.shape)
    windows = Windows(value.shape, still, still).restricted_to(axes)
    if windows.distances > MOST_DISTANCES:
        return None
    return _pool_batch(value, windows, _whole, independent=False)


def _whole(array: Array, windows: Windows) -> Array:
    axes = tuple(axis for axis, n in enumerate(windows.sizes) if n > 1)
    return namespace(array).sum(array, axis=axes, keepdims=True)


def _matrix(value: Gaussian, feature_axis: int, windows: Windows) -> Array:
    """Return the sums over windows of one axis as a matrix."""
    size = value.shape[feature_axis]
    count = windows.counts(value.shape)[feature_axis]
    entries = windows.strides[feature_axis] * np.arange(count)[:, None]
    entries = entries + windows.dilations[feature_axis] * np.arange(windows.sizes[feature_axis])
    return constants(np.eye(size)[entries].sum(axis=1), value.mean)


@dataclass(frozen=True, eq=False)
class _WindowSums(KnowsLags):
    """Step of sums over windows."""

    inputs: tuple[Gaussian] = field()  # the source, or its sums as a linear map of features
    source: Gaussian
    windows: Windows
    kernel: WindowKernel
    drops_covariance: bool = False

    @property
    def identity(self) -> bool:  # type: ignore[override]
        return self.inputs[0] is not self.source

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        if self.identity:
            return cotangent
        sums = lambda array: self.kernel(array, self.windows)  # noqa: E731
        like = namespace(cotangent).zeros_like(self.source.mean)
        return transposed_each(sums, like, cotangent)

    def factors(self, value: Gaussian) -> tuple[int, ...]:
        return ()

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        return axis if self.identity or self.windows.keeps(axis) else None

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        return _lag_of_sums(self.source, self.windows, self.kernel, offset)


def _window_value(
    value: Gaussian,
    derived_from: Gaussian,
    windows: Windows,
    kernel: WindowKernel,
    spread: Spread,
    ties: Ties = Ties.ALL,
    drops_covariance: bool = False,
) -> Gaussian:
    """Make the value of window sums; ``derived_from`` is the value that the result comes from."""
    plain = derived_from is value
    return Gaussian(
        kernel(value.mean, windows) if plain else derived_from.mean,
        spread,
        _WindowSums((derived_from,), value, windows, kernel, drops_covariance),
        axis=value.axis,
        ties=ties,
        propagation=value.propagation,
    )


def _pool_batch(
    value: Gaussian, windows: Windows, kernel: WindowKernel, *, independent: bool
) -> Gaussian | None:
    """Sum over windows of batch axes; None if the covariance of positions is unknown."""
    if independent:
        variance = kernel(value.variance, windows)
    else:
        variance = _variance_of_sums(value, windows, kernel)
    if variance is None:
        return None
    covariance = None
    if value.has_covariance and independent:
        covariance = lambda: kernel(value.covariance, _covariance_windows(value, windows))  # noqa: E731
    elif value.has_covariance and value.propagation.has_full_covariance:
        warn_dropped(value, "a sum over windows of positions")
    ties = Ties.FEATURES if independent and windows.disjoint else Ties.ALL
    spread = Spread(positive_part(variance), covariance)
    dropped = value.has_covariance and not independent
    return _window_value(value, value, windows, kernel, spread, ties, dropped)


def _as_independent(value: Gaussian, windows: Windows, kernel: WindowKernel) -> Gaussian:
    # The standard deviation is too small: for n fully correlated entries by a factor of
    # √n.
    if not value.propagation.is_backward:
        _warn_of_independence(value)
    spread = Spread(kernel(value.variance, windows))
    return _window_value(value, value, windows, kernel, spread, drops_covariance=True)


def _warn_of_independence(value: Gaussian) -> None:
    warn_user(
        "the positions of a window depend on latent site(s) "
        f"{', '.join(sorted(value.sites))} and their covariance is not known: it is taken as "
        "zero; pool before a sum of dependent terms, a product or a normalisation, or draw the "
        "sites by naming them in sample_sites=",
        DependenceWarning,
    )


def _covariance_windows(value: Gaussian, windows: Windows) -> Windows:
    """Return the windows on the axes of a covariance."""
    axes = tuple(range(len(value.shape)))
    return windows.with_axes((*batch_shape(axes, value.axis), None, None))


def _variance_of_sums(value: Gaussian, windows: Windows, kernel: WindowKernel) -> Array | None:
    """Return the variance of sums over windows; None if the covariance of positions is unknown."""
    if math.prod(windows.sizes) > FEW or not windows.disjoint:
        return _lag_of_sums(value, windows, kernel, (0,) * len(value.shape))
    between = windows.pairs(value.shape).covariances(value)
    if between is None:
        return None
    return kernel(value.variance, windows) + 2 * namespace(between).sum(between, axis=0)


def _lag_of_sums(
    value: Gaussian, windows: Windows, kernel: WindowKernel, offset: Offset
) -> Array | None:
    """Return the covariance of sums whose windows are an offset apart, over pairs of entries."""
    halved = not any(offset)
    total: Any = 0.0
    for difference in windows.differences():
        if halved and difference < (0,) * len(difference):
            continue  # the pair in the other order
        part = _lag_of_pairs(value, windows, kernel, offset, difference)
        if part is None:
            return None
        total = total + (2 * part if halved and any(difference) else part)
    return total


def _lag_of_pairs(
    value: Gaussian, windows: Windows, kernel: WindowKernel, offset: Offset, difference: Offset
) -> Array | None:
    """Return the part of pairs of entries of which the second is at a difference from the first."""
    first = tuple(max(0, -e) for e in difference)
    second = tuple(max(0, e) for e in difference)
    lag, starts = windows.pair_lag(offset, first, second)
    covariance = lag_covariance(value, lag)
    if covariance is None:
        return None
    counts = [n - abs(o) for n, o in zip(windows.counts(value.shape), offset, strict=True)]
    smaller = windows.with_partner(difference)
    return kernel(covariance[smaller.covered_slices(starts, counts)], smaller)
