"""Check random keys and choose the precision: arguments of many public functions."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
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


@dataclass(frozen=True)
class Precision:
    """A precision of JAX; a call returns a context that computes in it."""

    double: bool  # if not, JAX keeps its current precision

    @classmethod
    def of(cls, params: Any, float64: bool = False) -> Precision:
        """Return double precision if asked for or if a parameter has it, else the current."""
        leaves = jax.tree.leaves(params)
        return cls(float64 or any(getattr(leaf, "dtype", None) == jnp.float64 for leaf in leaves))

    def __call__(self) -> Any:
        """Return the context."""
        return jax.enable_x64(True) if self.double else contextlib.nullcontext()
