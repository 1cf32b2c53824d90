"""Sums over moving windows, with the known dependence between positions, and largest entries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.errors import DependenceWarning, UnsupportedMoments, warn_user
from moment_calculus.functions.table import ReLU, is_increasing
from moment_calculus.numerics.arrays import Array, constants, namespace, positive_part
from moment_calculus.operations.dropout.noise import warn_of_masks
from moment_calculus.operations.elementwise.choices import maximum, where
from moment_calculus.operations.elementwise.sums import subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import map_features
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.moves import warn_dropped
from moment_calculus.values import Gaussian, Opaque, Spread, Step, Ties, Value
from moment_calculus.values.covariances import lag_covariance, shifted
from moment_calculus.values.spread import batch_shape

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


WindowKernel = Callable[[Array, Windows], Array]  # sums an array of any rank over windows
MOST_PAIRS = 256  # most distances between positions for a sum over whole axes


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
    place = None if value.axis is None else len(value.shape) + value.axis
    features = windows.restricted_to([] if place is None else [place])
    if place is not None and not features.is_trivial:
        mapped = map_features(value, _matrix(value, place, features))
        spread = Spread(mapped.variance, mapped.joint_covariance, mapped.has_covariance)
        result = _window_value(value, mapped, features, kernel, spread)
    others = windows.restricted_to([axis for axis in range(len(value.shape)) if axis != place])
    if others.is_trivial:
        return result
    pooled = _over_batch(result, others, kernel, independent=value.batch_independent)
    return _as_independent(result, others, kernel) if pooled is None else pooled


def sum_of_dependent(value: Gaussian, axes: Sequence[int]) -> Gaussian | None:
    """Sum over axes of the batch, which stay with size one; None if the covariance is unknown."""
    still = (1,) * len(value.shape)
    windows = Windows(value.shape, still, still).restricted_to(axes)
    if windows.pairs > MOST_PAIRS:
        return None
    return _over_batch(value, windows, _whole, independent=False)


def _whole(array: Array, windows: Windows) -> Array:
    axes = tuple(axis for axis, n in enumerate(windows.sizes) if n > 1)
    return namespace(array).sum(array, axis=axes, keepdims=True)


def _matrix(value: Gaussian, place: int, windows: Windows) -> Array:
    """Return the sums over windows of one axis as a matrix."""
    size = value.shape[place]
    count = windows.counts(value.shape)[place]
    entries = windows.strides[place] * np.arange(count)[:, None]
    entries = entries + windows.dilations[place] * np.arange(windows.sizes[place])
    return constants(np.eye(size)[entries].sum(axis=1), value.mean)


@dataclass(frozen=True, eq=False)
class _WindowSums(Step):
    """Step of sums over windows."""

    inputs: tuple[Gaussian] = field()  # the source, or its sums as a linear map of features
    source: Gaussian
    windows: Windows
    kernel: WindowKernel

    @property
    def identity(self) -> bool:  # type: ignore[override]
        return self.inputs[0] is not self.source

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        return _lag_of_sums(self.source, self.windows, self.kernel, offset)


def _window_value(
    value: Gaussian,
    derived_from: Gaussian,
    windows: Windows,
    kernel: WindowKernel,
    spread: Spread,
    ties: Ties = Ties.ALL,
) -> Gaussian:
    """Make the value of window sums; ``derived_from`` is the value that the result comes from."""
    plain = derived_from is value
    return Gaussian(
        kernel(value.mean, windows) if plain else derived_from.mean,
        spread,
        _WindowSums((derived_from,), value, windows, kernel),
        axis=value.axis,
        ties=ties,
        propagation=value.propagation,
    )


def _over_batch(
    value: Gaussian, windows: Windows, kernel: WindowKernel, *, independent: bool
) -> Gaussian | None:
    """Sum over windows of batch axes; None if the covariance of positions is unknown."""
    if independent:
        variance = kernel(value.variance, windows)
    else:
        variance = _lag_of_sums(value, windows, kernel, (0,) * len(value.shape))
    if variance is None:
        return None
    covariance = None
    if value.has_covariance and independent:
        covariance = lambda: kernel(value.covariance, _covariance_windows(value, windows))  # noqa: E731
    elif value.has_covariance and value.propagation.has_full_covariance:
        warn_dropped(value, "a sum over windows of positions")
    ties = Ties.FEATURES if independent and windows.disjoint else Ties.ALL
    spread = Spread(positive_part(variance), covariance)
    return _window_value(value, value, windows, kernel, spread, ties)


def _as_independent(value: Gaussian, windows: Windows, kernel: WindowKernel) -> Gaussian:
    # The standard deviation is too small: for n fully correlated entries by a factor of
    # √n.
    warn_user(
        "the positions of a window depend on latent site(s) "
        f"{', '.join(sorted(value.sites))} and their covariance is not known: it is taken as "
        "zero; pool before a sum of dependent terms, a product or a normalisation, or draw the "
        "sites by naming them in sample_sites=",
        DependenceWarning,
    )
    return _window_value(value, value, windows, kernel, Spread(kernel(value.variance, windows)))


def _covariance_windows(value: Gaussian, windows: Windows) -> Windows:
    """Return the windows on the axes of a covariance."""
    axes = tuple(range(len(value.shape)))
    return windows.with_axes((*batch_shape(axes, value.axis), None, None))


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


Padding = Sequence[tuple[int, int]]  # number of entries before and after, along each axis


def window_maximum(value: Value, windows: Windows, padding: Padding | None = None) -> Value:
    """Return the largest entries of windows over all axes, without their padding."""
    # The larger of two entries enters the next pair as if it were Gaussian, with exact
    # covariances (Clark 1961; Shekhovtsov et al. 2018, eqs. 32-35). Measured for 2×2 and
    # 3×3 windows: means are off by at most 0.03 standard deviations; these are 0.95 and
    # 0.93 to 1.01 times the exact ones for independent entries, 0.92 and 0.9 times for
    # positions that share the weights of a 3×3 convolution. With relu 0.84 and 0.5 times,
    # means 0.06 and 0.15, in windows nearly always zero.
    return _extreme(value, windows, padding, 1.0)


def window_minimum(value: Value, windows: Windows, padding: Padding | None = None) -> Value:
    """Return the smallest entries of windows; see :func:`window_maximum`."""
    return _extreme(value, windows, padding, -1.0)


def _extreme(value: Value, windows: Windows, padding: Padding | None, sign: float) -> Value:
    """Return sign times the largest entry of sign · x; increasing functions are applied last."""
    base, activation = _function(value)
    if activation is not None and is_increasing(activation):
        return apply(activation, _extreme(base, windows, padding, sign))
    gaussian = value.gaussian()
    if sign > 0:
        return _largest(gaussian, windows, padding)
    return scale_shift(_largest(scale_shift(gaussian, -1.0).gaussian(), windows, padding), -1.0)


def _function(value: Value) -> tuple[Any, Any]:
    """Return the Gaussian of which a value is a function, and the function; else None twice."""
    if isinstance(value, Gaussian):
        return value.step.function or (None, None)
    return (value.base, value.function) if value.is_single_activation else (None, None)


def _largest(value: Gaussian, windows: Windows, padding: Padding | None) -> Gaussian:
    warn_of_masks(value, "the largest entry of windows")
    if value.has_covariance and value.propagation.has_full_covariance:
        warn_dropped(value, "the largest entry of windows")
    masks = _masks(value, windows, padding or [(0, 0)] * len(value.shape))
    if not np.logical_or.reduce(masks).all():
        raise UnsupportedMoments(
            "a window that holds nothing but padding has no largest entry",
            sites=value.sites,
            remedy="choose the padding smaller than the window",
        )
    stacked = _stacked(value, windows)
    result, covered, shares = index(stacked, (..., 0)), masks[0], []
    for place, mask in enumerate(masks[1:], start=1):
        entry = index(stacked, (..., place))
        shares.append(_share(result, covered, entry, mask))
        result = _larger(result, covered, entry, mask)
        covered = covered | mask
    result = result.gaussian()
    step = _LargestEntries((value,), windows=windows, like=result.mean, shares=tuple(shares))
    return Gaussian(
        result.mean,
        Spread(positive_part(result.variance)),
        step,
        axis=value.axis,
        ties=value.ties if windows.disjoint else Ties.ALL,
        propagation=value.propagation,
    )


@dataclass(frozen=True, eq=False)
class _LargestEntries(Opaque):
    """Step of the largest entries of windows."""

    windows: Windows = None  # type: ignore[assignment]
    like: Array = None  # of the shape of the result
    # For each entry but the first, the probability that the maximum of those before is
    # larger.
    shares: tuple[Array, ...] = ()

    @cached_property
    def gains(self) -> list[Array]:
        """The expected derivatives by the entries of the window, which add up to one."""
        xp = namespace(self.like)
        remaining, gains = xp.ones_like(self.like), []
        for share in reversed(self.shares):
            gains.append(remaining * (1 - share))
            remaining = remaining * share
        return [remaining, *reversed(gains)]

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Return the covariance of results an offset apart, by expected derivatives."""
        counts = [n - abs(o) for n, o in zip(self.gains[0].shape, offset, strict=True)]
        places, total = self.windows.places(), 0.0
        halves = [shifted(gain, offset) for gain in self.gains]
        lags: dict[Any, Array | None] = {}
        for (first, (left, _)), (second, (_, right)) in itertools.product(
            zip(places, halves, strict=True), repeat=2
        ):
            lag, starts = self.windows.pair_lag(offset, first, second)
            if lag not in lags:
                lags[lag] = lag_covariance(self.inputs[0], lag)
            covariance = lags[lag]
            if covariance is None:
                return None
            total = total + left * right * covariance[self.windows.strided(starts, counts)]
        return total


def _larger(left: Value, seen: np.ndarray, right: Value, mask: np.ndarray) -> Value:
    """Return the larger of two entries where neither is padding, else the one that is not."""
    result = maximum(left, right)
    if not mask.all():
        result = where(_on(mask, right), result, left)
    if not seen.all():
        result = where(_on(seen, right), result, right)
    return result


def _share(left: Value, seen: np.ndarray, right: Value, mask: np.ndarray) -> Array:
    """Return the probability that the left entry is larger, its expected derivative."""
    difference = subtract(left, right).gaussian()
    share = ReLU().gain(difference.mean, difference.variance)
    xp = namespace(share)
    share = xp.where(_on(mask, right), share, xp.ones_like(share))
    return xp.where(_on(seen, right), share, xp.zeros_like(share))


def _on(mask: np.ndarray, value: Value) -> Array:
    return constants(mask, value.at_mean) > 0


def _masks(value: Gaussian, windows: Windows, padding: Padding) -> list[np.ndarray]:
    """Return for each place of a window in which windows its entry is not padding."""
    counts, masks = windows.counts(value.shape), []
    for place in windows.places():
        mask = np.ones((1,) * len(counts), dtype=bool)
        for axis, ((low, high), count) in enumerate(zip(padding, counts, strict=True)):
            start = windows.dilations[axis] * place[axis]
            entries = start + windows.strides[axis] * np.arange(count)
            there = (entries >= low) & (entries < value.shape[axis] - high)
            mask = mask & there.reshape([-1 if a == axis else 1 for a in range(len(counts))])
        masks.append(mask)
    return masks


def _stacked(value: Gaussian, windows: Windows) -> Gaussian:
    """Return the entries of each window as the features of a vector."""
    xp, shape = namespace(value.mean), value.shape
    slices = [windows.slices_at(place, shape) for place in windows.places()]
    covariances = _covariances(value, windows)

    def joint() -> Array:
        rows = [xp.stack(row, axis=-1) for row in covariances]  # type: ignore[union-attr]
        return xp.stack(rows, axis=-2)

    variance = xp.stack([value.variance[entry] for entry in slices], axis=-1)
    return Gaussian(
        xp.stack([value.mean[entry] for entry in slices], axis=-1),
        Spread(variance, joint if covariances else None),
        Opaque((value,)),
        propagation=value.propagation,
    )


def _covariances(value: Gaussian, windows: Windows) -> list[list[Array]] | None:
    """Return the covariances between all places of a window; None if independent or unknown."""
    if value.independent:
        return None
    lags: dict[Any, Array | None] = {}
    for difference in windows.differences():
        if difference >= (0,) * len(difference):
            lag = tuple(r * e for r, e in zip(windows.dilations, difference, strict=True))
            lags[lag] = lag_covariance(value, lag)
    if any(covariance is None for covariance in lags.values()):
        warn_user(
            "the positions of a window depend on latent site(s) "
            f"{', '.join(sorted(value.sites))} and their covariance is not known: they enter as "
            "independent; draw the sites by naming them in sample_sites= instead",
            DependenceWarning,
        )
        return None
    places = windows.places()
    return [[_entry(value, windows, lags, *sorted((i, j))) for i in places] for j in places]


def _entry(value: Gaussian, windows: Windows, lags: Any, first: Any, second: Any) -> Array:
    """Return the covariance between two places of all windows."""
    lag, starts = windows.pair_lag((0,) * len(first), first, second)
    return lags[lag][windows.strided(starts, windows.counts(value.shape))]
