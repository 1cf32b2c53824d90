"""Vectors that depend on the parameters, with products of their Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch

from pyro_moments.fitting.curvature import slope_of
from pyro_moments.fitting.graphs import CachedGraph, JacobianProducts
from pyro_moments.fitting.parameters import as_array
from pyro_moments.response.fixed_parameters import FixedParameters


class FlatFunctional:
    """A flat vector [d] that depends on the parameters [n]."""

    def __init__(self, at: Callable[[], torch.Tensor], fixed_parameters: FixedParameters) -> None:
        self._fixed_parameters = fixed_parameters
        self._vector = CachedGraph(at, fixed_parameters.leaves)
        self._product = CachedGraph(self._product_with_cotangent, fixed_parameters.leaves)
        self._rows, self._transposed_rows = JacobianProducts(), JacobianProducts()

    @cached_property
    def value(self) -> np.ndarray:
        """Return the vector at the parameters."""
        with self._fixed_parameters():
            return as_array(self._vector())

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times the Jacobian, [k, n]."""
        with self._fixed_parameters():
            return self._rows.times(rows, self._vector(), self._fixed_parameters.leaves)

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times the transposed Jacobian, [k, d]."""
        with self._fixed_parameters():
            cotangent, product = self._product()
            return self._transposed_rows.times(rows, product, [cotangent])

    def _product_with_cotangent(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a row and the row times the Jacobian, whose derivative by it is the transpose."""
        vector = self._vector()
        cotangent = torch.zeros_like(vector, requires_grad=True)
        return cotangent, slope_of((vector * cotangent).sum(), self._fixed_parameters.leaves)
