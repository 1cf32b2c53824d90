"""Single or double precision of all that is computed from trained parameters."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Precision:
    """A context in which JAX has doubles, or keeps the precision that it has.

    Args:
        double: whether it has doubles.
    """

    double: bool

    @classmethod
    def of(cls, params: Any, float64: bool = False) -> Precision:
        """Doubles where they are asked for, or parameters are.

        Args:
            params: arrays, in dictionaries.
            float64: whether they are asked for.
        """
        leaves = jax.tree.leaves(params)
        return cls(float64 or any(getattr(leaf, "dtype", None) == jnp.float64 for leaf in leaves))

    def __call__(self) -> Any:
        """The context."""
        return jax.enable_x64(True) if self.double else contextlib.nullcontext()
