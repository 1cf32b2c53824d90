"""Rules of concatenation and splitting."""

from __future__ import annotations

import itertools
from typing import Any

from moment_calculus.operations.shapes import concatenation
from moment_calculus.operations.shapes.indexing import take
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule


@moment_rule("concatenate", numbers=False)
def concatenate(*operands: Any, dimension: int) -> Value:
    """Serve ``jnp.concatenate``, ``jnp.stack`` and ``jnp.roll``."""
    if len(operands) == 1:
        return operands[0]
    return concatenation.concatenate(operands, dimension - len(operands[0].shape))


@moment_rule("split")
def split(x: Value, *, sizes: Any, axis: int) -> list[Value]:
    """Serve ``jnp.split``."""
    ends = list(itertools.accumulate(sizes))
    starts = [0, *ends[:-1]]
    return [take(x, slice(start, end), axis) for start, end in zip(starts, ends, strict=True)]
