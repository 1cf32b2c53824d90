"""The start of variance back-propagation: He's means and nearly certain weights.

Source: Haussmann et al. 2019, appendix B.3. Its means are N(0, 1/fan-in) in the authors'
code, and logarithms of variances N(−9, 1e-3) are by standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LOG_VARIANCE, LOG_VARIANCE_SPREAD = -9.0, 1e-3
SCALE = math.exp(LOG_VARIANCE / 2)


def mean_scale(shape: Sequence[int], event_dim: int, axis: int | None, output_axis: int) -> float:
    """Return the standard deviation of the initial means of a site, √(1/fan-in).

    ``axis`` of the shape is the one that a linear map contracts, None if none does; then
    a site of two and more event axes is a kernel, whose outputs are on the event axis
    ``output_axis``, and others are biases, which start at zero.
    """
    if axis is not None:
        return shape[axis] ** -0.5
    event = shape[len(shape) - event_dim :]
    return (math.prod(event) / event[output_axis]) ** -0.5 if event_dim > 1 else 0.0
