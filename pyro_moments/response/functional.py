"""Vectors that depend on the parameters, with products of their Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch

from pyro_moments.fitting.curvature import slope_of
from pyro_moments.fitting.graphs import Kept, Rows
from pyro_moments.fitting.parameters import as_array
from pyro_moments.response.held import Held


class FlatFunctional:
    """A flat vector [d] that depends on the parameters [n]."""

    def __init__(self, at: Callable[[], torch.Tensor], held: Held) -> None:
        self._held = held
        self._vector = Kept(at, held.leaves)
        self._product = Kept(self._made_product, held.leaves)
        self._rows, self._transposed_rows = Rows(), Rows()

    @cached_property
    def value(self) -> np.ndarray:
        """Return the vector at the parameters."""
        with self._held():
            return as_array(self._vector())

    def pull(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times the Jacobian, [k, n]."""
        with self._held():
            return self._rows.times(rows, self._vector(), self._held.leaves)

    def push(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times the transposed Jacobian, [k, d]."""
        with self._held():
            cotangent, product = self._product()
            return self._transposed_rows.times(rows, product, [cotangent])

    def _made_product(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a row and the row times the Jacobian, whose derivative by it is the transpose."""
        vector = self._vector()
        cotangent = torch.zeros_like(vector, requires_grad=True)
        return cotangent, slope_of((vector * cotangent).sum(), self._held.leaves)
