"""How far the initial locations of a network's weights are spread."""

from __future__ import annotations

import math
from collections.abc import Sequence

VECTOR_NOISE = 0.5


def spread(event_dim: int, shape: Sequence[int]) -> float:
    """Standard deviation of the noise on the initial location of a real site.

    The noise of matrices has standard deviation √(2 / (rows + columns)), which breaks the symmetry
    between hidden units whichever axis is the input; that of vectors ½, because units whose kinks
    all start at zero keep a network nearly linear until its noise has absorbed what it cannot fit.
    Scalars have none.

    Args:
        event_dim: number of event axes of the site.
        shape: shape of its value; the two trailing axes of a matrix are its rows and columns.

    Returns:
        The standard deviation, to be kept below the prior's.

    Source: Glorot and Bengio 2010, eq. 12.
    """
    if event_dim == 0:
        return 0.0
    return VECTOR_NOISE if event_dim == 1 else math.sqrt(2 / sum(shape[-2:]))
