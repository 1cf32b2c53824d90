"""Base class of functions that keep their source, so that later operations can recognise it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.values import Gaussian
from moment_calculus.values.support import Support


class Composite:
    """A function of one Gaussian, its source, without moments until they are asked for."""

    __slots__ = ("source",)
    name = ""

    def __init__(self, source: Gaussian) -> None:
        self.source = source

    @property
    def sites(self) -> frozenset[str]:
        """Names of the latent sites that the value depends on."""
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
        """Return the moments of the function as a value."""
        raise NotImplementedError

    def permuted(self, order: Sequence[int]) -> Any:
        """Return the function with reordered axes: ``order`` is the old axis at each place."""
        raise NotImplementedError

    def converted(self, convert: Callable[[Array], Array]) -> Any:
        """Return the function in another precision or on another device."""
        raise NotImplementedError
