"""Vectors whose components are functions of several coordinates, which they remember."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.numerics.arrays import Array
from moment_calculus.operations.shapes.reshaping import Expanded, Reshaped
from moment_calculus.values import Gaussian

__all__ = ["coordinates_of", "dependent_coordinates", "image_of", "on_support"]

_IMAGE = "image of coordinates"


class Support(NamedTuple):
    """A support whose transform from unconstrained coordinates mixes their components."""

    make: Callable[[Gaussian], Gaussian]  # from coordinates [..., k] to the value
    expected_log_slope: Callable[[Gaussian], Array]  # E log |Jacobian|, [...]
    event_dim: int = 1
    of_independent: bool = False  # whether moments are known of independent coordinates only
    # the product of the value and a scale that depends on it; None where that is not known
    times: Callable[[Gaussian, Any], Gaussian | None] | None = None


def is_of_independent(coordinates: Gaussian) -> bool:
    """Whether the coordinates of each element of the batch are independent of each other."""
    return coordinates.independent or coordinates.shape[-1] == 1


class Image(NamedTuple):
    """The coordinates of a value, and the support to which they were transformed."""

    coordinates: Gaussian
    support: Support

    @property
    def expected_log_slope(self) -> Array:
        """Return E log |Jacobian| of the transform, [...]."""
        return self.support.expected_log_slope(self.coordinates)


def dependent_coordinates(sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error for coordinates that have to be independent."""
    return UnsupportedMoments(
        "the unconstrained coordinates of a correlation matrix depend on each other: "
        "its moments are known of independent ones",
        sites=sites,
        remedy="use DVIGuide" + OR_DRAW,
    )


def on_support(support: Support, coordinates: Gaussian) -> Gaussian:
    """Return the value of coordinates on a support, which remembers both."""
    if support.of_independent and not is_of_independent(coordinates):
        raise dependent_coordinates(coordinates.sites)
    value = support.make(coordinates)
    value.memo.arrays[_IMAGE] = Image(coordinates, support)
    return value


def image_of(value: Any) -> Image | None:
    """Return the coordinates and the support of a value that was made from such; else None.

    The value may be repeated along leading axes.
    """
    if not isinstance(value, Gaussian):
        return None
    if (image := value.memo.arrays.get(_IMAGE)) is not None:
        return image
    source = repeated_vector(value)
    return source.memo.arrays.get(_IMAGE)


def repeated_vector(value: Any) -> Any:
    """Return the vector that was repeated along leading axes; other values as they are."""
    while isinstance(value, Gaussian) and isinstance(value.step, Expanded | Reshaped):
        source = value.step.source
        if source.shape[-1:] != value.shape[-1:] or math.prod(source.shape[:-1]) != 1:
            break
        value = source
    return value


def times_dependent(left: Any, right: Any) -> Gaussian | None:
    """Return the product of a value on a support and a dependent scale; None if it is not known."""
    for value, scale in ((left, right), (right, left)):
        image = image_of(value)
        if image is not None and image.support.times is not None:
            return image.support.times(value, scale)
    return None


def coordinates_of(value: Any) -> Gaussian | None:
    """Return the coordinates of a value on a support; None of other values."""
    image = image_of(value)
    return None if image is None else image.coordinates
