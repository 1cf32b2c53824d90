"""Refuses a covariance that would not fit into memory, before it is computed."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.refusals.errors import UnsupportedMoments


def check_memory(value: Any) -> None:
    """Refuse a value whose covariance over the feature axis exceeds the memory limit.

    Args:
        value: Gaussian with features d and a batch of B: B·d² numbers.

    Raises:
        UnsupportedMoments: with the bytes that are needed and the limit.
    """
    if value.axis is None:
        return
    needed = math.prod(value.shape) * value.shape[value.axis] * value.mean.dtype.itemsize
    limit = value.propagation.memory_limit
    if needed > limit:
        raise UnsupportedMoments(
            f"the covariance of a value of shape {value.shape} takes {needed} bytes; the limit is "
            f"{limit:.0f}",
            sites=value.sites,
            remedy=("use covariance='diagonal', " if value.propagation.full else "use ")
            + "smaller batches, or raise the limit: DeterministicELBO(memory_limit=...)",
        )
