"""Differentiable functions of the parameters, evaluated at the optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Functional(Protocol):
    """A vector that depends on the parameters, with its Jacobian G [d, n] at the optimum."""

    @property
    def value(self) -> np.ndarray:
        """The vector at the optimum, [d]."""

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Rows times G.

        Args:
            rows: [k, d].

        Returns:
            [k, parameters].
        """

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Rows times the transpose of G.

        Args:
            rows: [k, parameters].

        Returns:
            [k, d].
        """


@dataclass(frozen=True)
class Selection:
    """A functional whose elements are parameters themselves."""

    value: np.ndarray  # [d]
    indices: np.ndarray  # indices of the elements among the parameters, [d]
    size: int  # number of all parameters

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times G, [k, parameters]."""
        result = np.zeros([len(rows), self.size])
        result[:, self.indices] = rows
        return result

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, parameters] times the transpose of G, [k, d]."""
        return rows[:, self.indices]


def as_selection(functional: Functional, size: int) -> Functional:
    """Return a functional as a selection if its elements are parameters, otherwise as it is."""
    count = len(functional.value)
    # If G selects parameters, the numbers 1 to d appear at the places of the parameters.
    (numbered,) = functional.vjp(np.arange(1.0, count + 1)[None])
    (indices,) = np.nonzero(numbered)
    order = np.rint(numbered[indices]).astype(int) - 1
    if not np.array_equal(np.sort(order), np.arange(count)):
        return functional
    selection = Selection(functional.value, indices[np.argsort(order)], size)
    # G could select more than that: compare with a random direction.
    probe = np.random.default_rng(0).normal(size=[1, size])
    expected = functional.jvp(probe)
    return (
        selection if np.allclose(expected, selection.jvp(probe), rtol=1e-6, atol=0) else functional
    )
