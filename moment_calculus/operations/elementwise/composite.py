"""Functions that keep their source, because others see through them to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.values import Gaussian
from moment_calculus.values.support import Support


class Composite:
    """A function of one Gaussian that is no value until its moments are asked for.

    Args:
        source: the Gaussian.
    """

    __slots__ = ("source",)
    name = ""

    def __init__(self, source: Gaussian) -> None:
        self.source = source

    @property
    def sites(self) -> frozenset[str]:
        """Names of the latent sites the value depends on."""
        return self.source.sites

    @property
    def support(self) -> Support:
        """The latent sites, and which of their elements, that the value depends on."""
        return self.source.support

    @property
    def at_mean(self) -> Array:
        """The function at the mean of its source."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.at_mean.shape)

    def gaussian(self) -> Any:
        """Its moments, as a value."""
        raise NotImplementedError

    def permuted(self, order: Sequence[int]) -> Any:
        """The function with its axes in another order.

        Args:
            order: the old axis at each new place.
        """
        raise NotImplementedError

    def converted(self, convert: Callable[[Array], Array]) -> Any:
        """The function in another precision, or on another device.

        Args:
            convert: converts an array.
        """
        raise NotImplementedError
