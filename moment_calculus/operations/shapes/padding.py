"""Padding of live values with certain entries, between the entries too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array, device
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.moves import Moved, moved
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Gaussian, Value
from moment_calculus.values.lags import lag_covariance
from moment_calculus.values.ties import none_or_all

Config = Sequence[tuple[int, int, int]]
PadKernel = Callable[[Array, Config, Any], Array]


@dataclass(frozen=True, eq=False)
class Padded(Moved):
    """Certain entries around and between those of a value.

    Args:
        kernel: pads an array.
        config: how many, as of :func:`pad`.
    """

    kernel: PadKernel = None  # type: ignore[assignment]
    config: Config = ()

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Certain entries have no covariance; the value's own keep theirs."""
        gaps = [between + 1 for _, _, between in self.config]
        steps = [divmod(o, gap) for o, gap in zip(offset, gaps, strict=True)]
        reach = zip(steps, self.source.shape, strict=True)
        if any(rest or abs(step) >= size for (step, rest), size in reach):
            full = self.kernel(self.source.variance, self.config, 0.0)
            shape = tuple(n - abs(o) for n, o in zip(full.shape, offset, strict=True))
            return namespace(full).zeros(shape, dtype=full.dtype, device=device(full))
        known = lag_covariance(self.source, tuple(step for step, _ in steps))
        return None if known is None else self.kernel(known, self.config, 0.0)


def pad(value: Value, kernel: PadKernel, config: Config, fill: Any = 0.0) -> Gaussian:
    """A value with certain entries around and between its own: exact.

    Args:
        value: of rank n.
        kernel: ``kernel(array, config, fill)`` pads an array of any rank.
        config: for each of the n axes how many entries come before, after and between the
            value's; negative numbers before and after remove entries.
        fill: certain scalar.

    Raises:
        UnsupportedMoments: if ``fill`` is random.
    """
    if hasattr(fill, "sites"):
        raise UnsupportedMoments(
            "padding with a random value",
            sites=fill.sites | value.sites,
            remedy="pad with a certain number, and add the random value by concatenation",
        )
    value = value.gaussian()
    config = tuple((int(low), int(high), int(between)) for low, high, between in config)
    if value.axis is None:
        return _padded(value, kernel, config, fill, None, None)
    features = config[value.axis]
    place = len(config) + value.axis
    batch = (*config[:place], *config[place + 1 :])
    joint = lambda: kernel(value.joint_covariance(), (*batch, features, features), 0.0)  # noqa: E731
    rows = lambda cross: _padded_rows(cross, kernel, features)  # noqa: E731
    return _padded(value, kernel, config, fill, joint, None if _pads(batch) else rows)


def _padded(value, kernel, config, fill, joint, rows) -> Gaussian:
    result = moved(
        value,
        lambda array: kernel(array, config, 0.0),
        value.axis,
        Padded(value, rows=rows, kernel=kernel, config=config),
        covariance=joint if value.has_covariance else None,
        joint=joint,
        ties=none_or_all(value.independent),
    )
    result.mean = kernel(value.mean, config, fill)
    return result


def _pads(config: Any) -> bool:
    return any(any(entry) for entry in config)


def _padded_rows(cross: Array, kernel: PadKernel, features: tuple[int, int, int]) -> Array:
    still = ((0, 0, 0),)
    return kernel(cross, (*still * (cross.ndim - 2), features, *still), 0.0)
