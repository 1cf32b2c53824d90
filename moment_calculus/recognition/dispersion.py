"""Sums of squares that belong to no known normalisation; values are not divided by their roots.

The root of a sum of squares that is matched by a Gaussian has moments, but they are far
from those of a standard deviation: its reciprocal depends on where the sum is nearly
zero.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.recognition.base import Symbolic
from moment_calculus.recognition.features import Quadratic, Square
from moment_calculus.recognition.rules import fallback_rule


class SumOfSquares(Symbolic):
    """A sum of squares that is not one of the parts of a normalisation."""

    def __init__(self, shape: tuple[int, ...], sites: frozenset[str]) -> None:
        super().__init__(shape, lambda: np.zeros(shape), sites)


def raise_unrecognised(sites: frozenset[str]) -> NoReturn:
    """Raise UnsupportedMoments for the root of a sum of squares outside of a normalisation."""
    raise UnsupportedMoments(
        "a standard deviation or norm of random components depends on what it is divided into, "
        "and this is not recognised as a normalisation",
        sites=sites,
        remedy="normalise the components of whole axes by their own mean and standard deviation, "
        "(x - mean)/sqrt(variance + eps), or by the root of their mean square, without masks"
        + OR_DRAW,
    )


_PARTS = (Square, Quadratic, SumOfSquares)
_COMBINED = ("add", "subtract", "multiply", "maximum", "select")


@fallback_rule
def _dispersion(operation: str, *operands: Any, axes: tuple[int, ...] = ()) -> Any:
    """Recognise sums, multiples and selections of squares that no other rule recognises."""
    parts = [operand for operand in operands if isinstance(operand, _PARTS)]
    others = [operand for operand in operands if not isinstance(operand, _PARTS)]
    if not parts or any(hasattr(other, "sites") for other in others):
        return None
    sites = frozenset().union(*(part.sites for part in parts))
    if operation in ("sqrt", "rsqrt") and isinstance(parts[0], SumOfSquares):
        raise_unrecognised(sites)
    if operation == "reduce_sum":
        result_shape = [n for axis, n in enumerate(parts[0].shape) if axis not in axes]
        return SumOfSquares(tuple(result_shape), sites)
    if operation in ("add", "subtract") and all(type(part) is Square for part in parts):
        return None  # x² + c is an elementwise function of x, as in sqrt(x² + c)
    if operation in _COMBINED or (operation == "divide" and operands[0] is parts[0]):
        shapes = [tuple(getattr(operand, "shape", ())) for operand in operands]
        return SumOfSquares(np.broadcast_shapes(*shapes), sites)
    return None
