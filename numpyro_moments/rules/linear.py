"""Linear maps: contractions of two arrays."""

from __future__ import annotations

from typing import Any

from moment_calculus.einsum import einsum
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@moment_rule("dot_general")
def dot_general(x: Any, y: Any, *, dimension_numbers: Any, **_: Any) -> Value:
    """Serve ``jnp.dot``, ``@``, ``jnp.einsum`` and everything else that contracts two arrays."""
    (contracted_x, contracted_y), (batch_x, batch_y) = dimension_numbers
    letters = iter(_LETTERS)
    left = [next(letters) for _ in x.shape]
    right = [next(letters) for _ in y.shape]
    for i, j in zip((*contracted_x, *batch_x), (*contracted_y, *batch_y), strict=True):
        right[j] = left[i]
    kept = [left[i] for i in batch_x]
    kept += [n for i, n in enumerate(left) if i not in (*contracted_x, *batch_x)]
    kept += [n for j, n in enumerate(right) if j not in (*contracted_y, *batch_y)]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", x, y)
