"""The layers of a program: its operations whose results have moments, in their order."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.criticism.accuracy.reasons import certificate_of, reason_of
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.dropout.bits import Bits, Uniform
from moment_calculus.operations.dropout.masked import MaskedWeight
from moment_calculus.operations.normalised.composites import OfClasses
from moment_calculus.operations.normalised.normalisation import Normalised
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian

LARGEST = 2**22  # entries of the covariances of one layer that are compared
_MASKS = MaskedWeight | Uniform | Bits  # of dropout, until they meet what they drop


@dataclass(frozen=True)
class Recorded:
    """What an operation of a program gave.

    Args:
        operation: its name in the host.
        line: the user's file and line; empty where there is none.
        value: a value of the calculus, or what else the operation gave.
        site: name of the site, or of the parameter of its distribution, that it is.
    """

    operation: str
    line: str
    value: Any
    site: str = ""


@dataclass(frozen=True, eq=False)
class Layer:
    """The moments of one operation.

    Args:
        operation: its name in the host.
        line: the user's file and line.
        site: the site that it is; empty for others.
        place: of the operation among all that were recorded.
        shape: of the value.
        axis: the feature axis, negative; None for a batch of scalars.
        reason: why the moments may differ from those of draws; empty where none is known.
        arrays: mean and variance, of the value's shape; the covariance of the features of the
            first elements of the batch, [batch, d, d], or None where none is carried; a bound on
            the error of any correlation by the truncation of its series, or None where it is in
            closed form, or not known.
    """

    operation: str
    line: str
    site: str
    place: int
    shape: tuple[int, ...]
    axis: int | None
    reason: str
    arrays: tuple[Any, Any, Any, Any]

    @property
    def label(self) -> str:
        """The site, or the operation."""
        return self.site or self.operation

    @property
    def size(self) -> int:
        """Number of features."""
        return 1 if self.axis is None else self.shape[self.axis]

    @property
    def compared(self) -> int:
        """Of how many elements of the batch covariances are compared."""
        return compared(self.shape, self.axis)

    @property
    def mean(self) -> np.ndarray:
        """Means, of the value's shape."""
        return self.arrays[0]

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviations, of the value's shape."""
        return np.sqrt(np.maximum(self.arrays[1], 0.0))

    @property
    def covariance(self) -> np.ndarray | None:
        """Covariances of the features of the first elements of the batch, if they are carried."""
        return self.arrays[2]

    @property
    def certificate(self) -> float | None:
        """The bound on the error of any correlation."""
        return None if self.arrays[3] is None else float(self.arrays[3])

    @property
    def is_finite(self) -> bool:
        """Whether all means and variances are finite."""
        return all(bool(np.isfinite(part).all()) for part in self.arrays[:2])

    def in_numpy(self) -> Layer:
        """The same with arrays of NumPy, in double precision."""
        arrays: Any = tuple(None if part is None else to_numpy(part) for part in self.arrays)
        return dataclasses.replace(self, arrays=arrays)

    def features(self, array: np.ndarray) -> np.ndarray:
        """Arrays of the value's shape as rows of features, of the elements that are compared.

        Args:
            array: [draws, ...].

        Returns:
            [draws, batch, d].
        """
        last = np.moveaxis(array, self.axis, -1)  # type: ignore[arg-type]
        return last.reshape(len(array), -1, last.shape[-1])[:, : self.compared]


def compared(shape: tuple[int, ...], axis: int | None) -> int:
    """Of how many elements of the batch covariances are compared.

    Args:
        shape: of a value.
        axis: its feature axis.
    """
    size, total = 1 if axis is None else shape[axis], int(np.prod(shape))
    return min(total // size, LARGEST // size**2) if size > 1 else 0


def layers_of(recorded: Sequence[Recorded]) -> tuple[list[Layer], list[str]]:
    """The layers among what was recorded.

    Moves of elements and certain results are none; a value that appears again is the layer that it
    was, with the name of its site.

    Args:
        recorded: in the order of the program, the sites last.

    Returns:
        The layers, and in words what else is random but has no moments.
    """
    for item in recorded:
        if item.site and hasattr(item.value, "gaussian"):
            _matched(item)  # so that what they are made from is known to have moments
    found: dict[int, Layer] = {}
    left_out: list[str] = []
    for place, item in [pair for pair in enumerate(recorded) if _has_moments(pair[1])]:
        try:
            value = item.value.gaussian()
            if not isinstance(value, Gaussian):
                continue
            if (known := found.get(value.serial)) is not None:
                found[value.serial] = dataclasses.replace(known, site=known.site or item.site)
            elif item.site or not _only_moves(value):
                found[value.serial] = _layer(item, place, value)
        except UnsupportedMoments as refusal:
            left_out.append(f"{item.operation} at {item.line or '?'}: {refusal.cause}")
    return list(found.values()), left_out


def _matched(item: Recorded) -> None:
    with contextlib.suppress(UnsupportedMoments):  # which is said when its turn comes
        item.value.gaussian()


def _has_moments(item: Recorded) -> bool:
    """Whether moments were asked for: those of a part of a longer function are never."""
    if isinstance(item.value, Deferred):
        return bool(item.site) or item.value.is_matched
    return hasattr(item.value, "gaussian") and not isinstance(item.value, _MASKS)


def _only_moves(value: Gaussian) -> bool:
    """Whether a value is a latent site, or has the elements of another one in other places."""
    step = value.step
    return not step.inputs or (isinstance(step, Moved) and not step.computes)


def _layer(item: Recorded, place: int, value: Gaussian) -> Layer:
    reason, variance = reason_of(value), value.variance
    arrays = (value.mean, variance, _first_covariances(value), _certificate(value))
    names = _operation(item, value), item.line, item.site
    return Layer(*names, place, value.shape, value.axis, reason, arrays)


def _operation(item: Recorded, value: Gaussian) -> str:
    """The name of an operation; of a composite that is spelled out its own, not its last step's."""
    if isinstance(item.value, OfClasses):
        return item.value.name
    last = item.operation in ("mul", "div") and isinstance(value.step, Normalised)
    return "normalisation" if last else item.operation


def _first_covariances(value: Gaussian) -> Any:
    """Of the elements of the batch that are compared; None where none are carried."""
    count = compared(value.shape, value.axis)
    if not count or (covariance := value.covariance) is None:
        return None
    size = covariance.shape[-1]
    return namespace(covariance).reshape(covariance, (-1, size, size))[:count]


def _certificate(value: Gaussian) -> Any:
    """The bound for all elements of the batch; None where they are too many."""
    if value.axis is None or not value.has_covariance:
        return None
    entries = int(np.prod(value.shape)) * value.shape[value.axis]
    return certificate_of(value) if entries <= LARGEST else None


def to_numpy(array: Any) -> np.ndarray:
    """An array of either framework in double precision.

    Args:
        array: of NumPy, torch or JAX.
    """
    if hasattr(array, "detach"):
        array = array.detach().cpu()
    return np.asarray(array, dtype=np.float64)
