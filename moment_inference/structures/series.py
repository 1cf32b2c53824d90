"""Structures of effects along time: random walks and autoregression."""

from __future__ import annotations

import functools

import numpy as np

from moment_inference.structures.spectrum import Spectrum


@functools.lru_cache(maxsize=64)
def walk(count: int, order: int) -> Spectrum:
    """Return the spectrum of a random walk, whose differences of an order are independent.

    It is orthogonal to polynomials of lower degree: order 1 sums to zero, order 2 has no line.
    """
    if count <= order:
        raise ValueError(f"count={count}: a walk of order {order} has more steps than {order}")
    differences = np.diff(np.eye(count), order, axis=0)
    return Spectrum.of(differences.T @ differences)


@functools.lru_cache(maxsize=16)
def lags_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many steps rows are after columns [n, n], zero before, and where they are not."""
    steps = np.arange(count)
    lags = steps[:, None] - steps
    return np.maximum(lags, 0), lags >= 0
