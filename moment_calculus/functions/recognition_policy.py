"""Whether functions of a program may be compared with the table: only if it is traced once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from moment_calculus.functions.recognition.by_values import recognised
from moment_calculus.functions.recognition.probing import crossings
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.normal.bivariate import is_single_precision
from moment_calculus.numerics.special import is_traced_once

Preimages = tuple[tuple[Any, Any], ...]


class PreimagesFromParts:
    """Base of functions that compute their preimages from those of their parts."""


class RecognitionPolicy(NamedTuple):
    """Whether functions of a program may be evaluated at fixed points, to recognise them."""

    allowed: bool  # the program is traced once, so that recognition costs nothing when it runs
    single: bool  # constants of the program are rounded to single precision

    @classmethod
    def at(cls, array: Array) -> RecognitionPolicy:
        """Return the permission for a program that computes with arrays like this one."""
        return cls(is_traced_once(array), is_single_precision(array))

    def recognised_function(self, function: Any) -> Any:
        """Return the activation of the table that a function equals, if permitted, or itself."""
        return recognised(function, single=self.single) if self.allowed else function

    def preimages(self, function: Any, level: Any) -> Preimages:
        """Return where a function takes a value, and |dx/df| there.

        If the function knows none, crossings of a number are searched for where that is
        permitted.
        """
        solutions = function.preimages(level)
        is_complete = solutions or isinstance(function, PreimagesFromParts)
        if is_complete or not self.allowed or not isinstance(level, int | float):
            return solutions
        return crossings(function, float(level))


NO_RECOGNITION = RecognitionPolicy(allowed=False, single=False)


def preimages_of_levels(levels: Sequence[Any], inner: Any, policy: RecognitionPolicy) -> Preimages:
    """Map (level, width) pairs of f to pairs of x with f(x) = level and |dx/d level| · width."""
    return tuple(
        (place, stretch * width)
        for level, width in levels
        for place, stretch in policy.preimages(inner, level)
    )
