"""Compute in single or double precision."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Precision:
    """A precision of JAX; a call returns a context that computes in it."""

    double: bool  # if not, JAX keeps its current precision

    @classmethod
    def of(cls, params: Any, float64: bool = False) -> Precision:
        """Return double precision if asked for, or if a parameter has it; else the current one."""
        leaves = jax.tree.leaves(params)
        return cls(float64 or any(getattr(leaf, "dtype", None) == jnp.float64 for leaf in leaves))

    def __call__(self) -> Any:
        """Return the context."""
        return jax.enable_x64(True) if self.double else contextlib.nullcontext()
