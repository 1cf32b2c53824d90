"""Single or double precision of all that is computed from trained parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.optimisation.rounds import Objective


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

    def entered_by(self, objective: Objective) -> Objective:
        """An objective whose functions are computed in this precision.

        Args:
            objective: the loss.
        """
        functions: dict[str, Any] = {
            field.name: self._entering(getattr(objective, field.name))
            for field in fields(objective)
            if callable(getattr(objective, field.name))
        }
        return replace(objective, **functions)

    def _entering(self, function: Callable) -> Callable:
        def run(*args: Any) -> Any:
            with self():
                return function(*args)

        return run
