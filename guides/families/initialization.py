"""The initial scales of a guide, and how far its initial locations are spread."""

from __future__ import annotations

import math
from collections.abc import Sequence

VECTOR_NOISE = 0.5


def checked_scale(init_scale: float) -> float:
    """The initial standard deviation of every component of a guide.

    Args:
        init_scale: as the user gave it.

    Raises:
        ValueError: if it is not positive.
    """
    if not init_scale > 0:
        raise ValueError(f"init_scale={init_scale} must be positive")
    return init_scale


def spread(event_dim: int, shape: Sequence[int]) -> float:
    """Standard deviation of the noise on the initial location of a real site.

    The noise of matrices has standard deviation √(2 / (rows + columns)), which breaks the symmetry
    between hidden units whichever axis is the input; that of vectors ½, because units whose kinks
    all start at zero keep a network nearly linear until its noise has absorbed what it cannot fit.
    Scalars have none. Of a convolution kernel, in the layout of any library, the two largest axes
    are taken for the channels and the others for the window, so √(2 / (window (in + out))).

    Args:
        event_dim: number of event axes of the site.
        shape: shape of its value; the trailing ``event_dim`` axes are those of one draw.

    Returns:
        The standard deviation, to be kept below the prior's.

    Source: Glorot and Bengio 2010, eq. 12.
    """
    if event_dim == 0:
        return 0.0
    if event_dim == 1:
        return VECTOR_NOISE
    *window, smaller, larger = sorted(shape[-event_dim:])
    return math.sqrt(2 / ((smaller + larger) * math.prod(window)))
