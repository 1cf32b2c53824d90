"""Check random keys that users give."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def checked_key(name: str, key: Any) -> Any:
    """Return the random key of the argument ``name``; raise TypeError if it is none."""
    if isinstance(key, jax.Array | np.ndarray):
        typed = jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
        if (typed and key.ndim == 0) or (key.dtype == np.uint32 and key.ndim == 1):
            return key
    shape = f" and shape {key.shape}" if hasattr(key, "shape") else ""
    example = key if isinstance(key, int) else 0
    raise TypeError(
        f"{name}={key!r} of type {type(key).__name__}{shape} is not one random key: pass "
        f"{name}=jax.random.key({example})"
    )
