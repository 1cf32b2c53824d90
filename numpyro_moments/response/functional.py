"""Vectors that depend on the parameters, with products of their Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_moments.evaluation.precision import Precision


class FlatFunctional:
    """A flat vector [d] that depends on the parameters [n]."""

    def __init__(self, at: Callable[[jax.Array], jax.Array], place: Any, precision: Precision):
        self._at, self._place, self._precision = at, place, precision

    @cached_property
    def value(self) -> np.ndarray:
        """Return the vector at the parameters."""
        with self._precision():
            return np.asarray(jax.jit(self._at)(self._place), np.float64)

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times the Jacobian, [k, n]."""
        return self._run(self._pull, rows)

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times the transposed Jacobian, [k, d]."""
        return self._run(self._push, rows)

    def _run(self, compiled: Callable, rows: np.ndarray) -> np.ndarray:
        with self._precision():
            given = jnp.asarray(rows, self._place.dtype)
            return np.asarray(compiled(self._place, given), np.float64)

    @cached_property
    def _pull(self) -> Callable:
        def vjp(place: jax.Array, rows: jax.Array) -> jax.Array:
            return jax.vmap(lambda row: jax.vjp(self._at, place)[1](row)[0])(rows)

        return jax.jit(vjp)

    @cached_property
    def _push(self) -> Callable:
        def jvp(place: jax.Array, rows: jax.Array) -> jax.Array:
            return jax.vmap(lambda row: jax.jvp(self._at, (place,), (row,))[1])(rows)

        return jax.jit(jvp)
