"""Check that a covariance fits into memory before it is computed."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.refusals.errors import UnsupportedMoments

ALL = slice(None)


def check_memory(value: Any, rows: slice = ALL, columns: slice = ALL) -> None:
    """Raise UnsupportedMoments if these rows and columns of a covariance exceed the limit."""
    if value.axis is None:
        return
    size = max(1, value.shape[value.axis])
    entries = math.prod(len(range(*part.indices(size))) for part in (rows, columns))
    needed = math.prod(value.shape) // size * entries * value.mean.dtype.itemsize
    limit = value.propagation.memory_limit
    if needed > limit:
        raise UnsupportedMoments(
            f"the covariance of a value of shape {value.shape} takes {needed} bytes; the limit is "
            f"{limit:.0f}",
            sites=value.sites,
            remedy=("use covariance='diagonal', " if value.propagation.full else "use ")
            + "smaller batches, or raise the limit: DeterministicELBO(memory_limit=...)",
        )
