"""The layers of a program: its operations whose results have moments, in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.criticism.accuracy.reasons import certificate_of, reason_of
from moment_calculus.operations.dropout.bits import Bits, Uniform
from moment_calculus.operations.dropout.masked import MaskedWeight
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
        recorded: the operation.
        place: of the operation among all that were recorded.
        mean: of the value's shape.
        deviation: standard deviations, likewise.
        axis: the feature axis, negative; None for a batch of scalars.
        covariance: of the features of the first elements of the batch, [batch, d, d]; None where
            none is carried.
        certificate: bound on the error of any correlation by the truncation of its series; None
            where it is in closed form, or not known.
        reason: why the moments may differ from those of draws; empty where none is known.
    """

    recorded: Recorded
    place: int
    mean: np.ndarray
    deviation: np.ndarray
    axis: int | None
    covariance: np.ndarray | None
    certificate: float | None
    reason: str

    @property
    def site(self) -> str:
        """The site that it is; empty for others."""
        return self.recorded.site

    @property
    def label(self) -> str:
        """The site, or the operation."""
        return self.recorded.site or self.recorded.operation

    @property
    def size(self) -> int:
        """Number of features."""
        return 1 if self.axis is None else self.mean.shape[self.axis]

    @property
    def compared(self) -> int:
        """Of how many elements of the batch covariances are compared."""
        size = self.size
        return min(self.mean.size // size, LARGEST // size**2) if size > 1 else 0

    def features(self, array: np.ndarray) -> np.ndarray:
        """Arrays of the value's shape as rows of features, of the elements that are compared.

        Args:
            array: [draws, ...].

        Returns:
            [draws, batch, d].
        """
        last = np.moveaxis(array, self.axis, -1)  # type: ignore[arg-type]
        return last.reshape(len(array), -1, last.shape[-1])[:, : self.compared]


def layers_of(recorded: Sequence[Recorded]) -> tuple[list[Layer], list[str]]:
    """The layers among what was recorded.

    Moves of elements and certain results are none; a value that appears again is the layer that it
    was, with the name of its site.

    Args:
        recorded: in the order of the program, the sites last.

    Returns:
        The layers, and in words what else is random but has no moments.
    """
    found: dict[int, Layer] = {}
    left_out: list[str] = []
    for place, item in [pair for pair in enumerate(recorded) if _has_moments(pair[1])]:
        try:
            value = item.value.gaussian()
            if not isinstance(value, Gaussian):
                continue
            if (known := found.get(value.serial)) is not None:
                found[value.serial] = _named(known, item)
            elif item.site or not _only_moves(value):
                found[value.serial] = _layer(item, place, value)
        except UnsupportedMoments as refusal:
            left_out.append(f"{item.operation} at {item.line or '?'}: {refusal.cause}")
    infinite = [layer for layer in found.values() if not _is_finite(layer)]
    left_out += [f"{layer.label} at {layer.recorded.line}: infinite moments" for layer in infinite]
    return [layer for layer in found.values() if _is_finite(layer)], left_out


def _has_moments(item: Recorded) -> bool:
    """Whether moments were asked for: those of a part of a longer function are never."""
    if isinstance(item.value, Deferred):
        return bool(item.site) or item.value.is_matched
    return hasattr(item.value, "gaussian") and not isinstance(item.value, _MASKS)


def _only_moves(value: Gaussian) -> bool:
    """Whether a value is a latent site, or has the elements of another one in other places."""
    step = value.step
    return not step.inputs or (isinstance(step, Moved) and not step.computes)


def _named(layer: Layer, item: Recorded) -> Layer:
    if not item.site or layer.site:
        return layer
    return dataclasses.replace(layer, recorded=dataclasses.replace(layer.recorded, site=item.site))


def _layer(item: Recorded, place: int, value: Gaussian) -> Layer:
    variance = to_numpy(value.variance)
    layer = Layer(
        item,
        place,
        to_numpy(value.mean),
        np.sqrt(np.maximum(variance, 0.0)),
        value.axis,
        None,
        None,
        reason_of(value),
    )
    if not layer.compared or not value.has_covariance:
        return layer
    rows = to_numpy(value.covariance).reshape(-1, *value.covariance.shape[-2:])  # type: ignore
    certificate = certificate_of(value) if rows.size <= LARGEST else None
    return dataclasses.replace(layer, covariance=rows[: layer.compared], certificate=certificate)


def _is_finite(layer: Layer) -> bool:
    return bool(np.isfinite(layer.mean).all() and np.isfinite(layer.deviation).all())


def to_numpy(array: Any) -> np.ndarray:
    """An array of either framework in double precision.

    Args:
        array: of NumPy, torch or JAX.
    """
    if hasattr(array, "detach"):
        array = array.detach().cpu()
    return np.asarray(array, dtype=np.float64)
