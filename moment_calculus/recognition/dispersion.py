"""Sums of squares that are part of no known normalisation: they are not divided by.

Their own moments are known, but not those of what is divided by their root. The root of the
positive part of a sum that is matched by a Gaussian has moments too, but they are far from those of
a standard deviation, as much of its reciprocal's comes from where it is almost zero.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from moment_calculus.recognition.base import Symbolic
from moment_calculus.recognition.features import Quadratic, Square
from moment_calculus.recognition.steps import fallback
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments


class Dispersion(Symbolic):
    """A sum of squares that is not one of the parts of a normalisation.

    Args:
        shape: its shape.
        sites: names of the latent sites it depends on.
    """

    def __init__(self, shape: tuple[int, ...], sites: frozenset[str]) -> None:
        super().__init__(shape, lambda: np.zeros(shape), sites)


def refuse(sites: frozenset[str]) -> NoReturn:
    """Refuse the root of a sum of squares that is no part of a normalisation.

    Args:
        sites: names of the latent sites it depends on.
    """
    raise UnsupportedMoments(
        "a standard deviation or norm of random components depends on what it is divided into, "
        "and this is not recognised as a normalisation",
        sites=sites,
        remedy="normalise the components of whole axes by their own mean and standard deviation, "
        "(x - mean)/sqrt(variance + eps), or by the root of their mean square, without masks"
        + OR_DRAW,
    )


_PARTS = (Square, Quadratic, Dispersion)
_COMBINED = ("add", "subtract", "multiply", "maximum", "select")


@fallback
def _dispersion(operation: str, *operands: Any, axes: tuple[int, ...] = ()) -> Any:
    """Sums, multiples and selections of squares, which nothing else recognised."""
    parts = [operand for operand in operands if isinstance(operand, _PARTS)]
    others = [operand for operand in operands if not isinstance(operand, _PARTS)]
    if not parts or any(hasattr(other, "sites") for other in others):
        return None
    sites = frozenset().union(*(part.sites for part in parts))
    if operation in ("sqrt", "rsqrt") and isinstance(parts[0], Dispersion):
        refuse(sites)
    if operation == "reduce_sum":
        kept = [n for axis, n in enumerate(parts[0].shape) if axis not in axes]
        return Dispersion(tuple(kept), sites)
    if operation in ("add", "subtract") and all(type(part) is Square for part in parts):
        return None  # x² + c before any sum is a function of x, as in sqrt(x² + c)
    if operation in _COMBINED or (operation == "divide" and operands[0] is parts[0]):
        shapes = [tuple(getattr(operand, "shape", ())) for operand in operands]
        return Dispersion(np.broadcast_shapes(*shapes), sites)
    return None
