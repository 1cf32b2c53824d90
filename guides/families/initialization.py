"""Check the initial scale of a guide and choose the noise on its initial locations."""

from __future__ import annotations

import math
from collections.abc import Sequence

VECTOR_NOISE = 0.5


def checked_scale(init_scale: float) -> float:
    """Return the initial standard deviation; raise ValueError if it is not positive."""
    if not init_scale > 0:
        raise ValueError(f"init_scale={init_scale} must be positive")
    return init_scale


def initial_noise_scale(event_dim: int, shape: Sequence[int]) -> float:
    """Return the standard deviation of the noise on the initial location of a real site.

    It is 0 for scalars, ½ for vectors and √(2 / (rows + columns)) for matrices (Glorot
    and Bengio 2010, eq. 12), and has to be kept below the prior's standard deviation by
    the caller.
    """
    if event_dim == 0:
        return 0.0
    if event_dim == 1:
        # If all kinks started at zero, the network would stay nearly linear for long.
        return VECTOR_NOISE
    # The two largest axes of a kernel count as its channels, in the layout of any
    # library.
    *window, smaller, larger = sorted(shape[-event_dim:])
    return math.sqrt(2 / ((smaller + larger) * math.prod(window)))
