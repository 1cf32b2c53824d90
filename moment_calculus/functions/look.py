"""A look at what the functions of a program compute, where it is traced once and run often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from moment_calculus.functions.recognition.by_values import recognised
from moment_calculus.functions.recognition.probing import crossings
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.normal.bivariate import is_single
from moment_calculus.numerics.special import is_traced_once

Preimages = tuple[tuple[Any, Any], ...]


class SeesThrough:
    """Base of functions that find preimages through their parts."""


class Look(NamedTuple):
    """Whether a program may be looked at for what its functions compute.

    Args:
        allowed: whether it is traced once, so that a look costs nothing when it runs.
        single: whether its constants are rounded to single precision.
    """

    allowed: bool
    single: bool

    @classmethod
    def at(cls, array: Array) -> Look:
        """That of a program on such arrays.

        Args:
            array: any array of it.
        """
        return cls(is_traced_once(array), is_single(array))

    def settled(self, function: Any) -> Any:
        """The function, or the one of the table that it is recognised as.

        Args:
            function: any elementwise function.
        """
        return recognised(function, single=self.single) if self.allowed else function

    def preimages(self, function: Any, level: Any) -> Preimages:
        """Where a function takes a value, as :meth:`Activation.preimages`.

        Of a number, wherever the function crosses it, if that may be looked at.

        Args:
            function: any elementwise function.
            level: the value, a number or an array.
        """
        found = function.preimages(level)
        known = found or isinstance(function, SeesThrough)
        if known or not self.allowed or not isinstance(level, int | float):
            return found
        return crossings(function, float(level))


NOT = Look(allowed=False, single=False)


def through(levels: Sequence[Any], inner: Any, look: Look) -> Preimages:
    """Places where a function takes given values, with |dx/d level| times the width with them.

    Args:
        levels: pairs of a value and a width.
        inner: the function.
        look: whether it may be looked at.
    """
    return tuple(
        (place, stretch * width)
        for level, width in levels
        for place, stretch in look.preimages(inner, level)
    )
