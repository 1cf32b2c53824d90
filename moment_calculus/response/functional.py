"""Differentiable functions of the parameters, at one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Functional(Protocol):
    """A vector that depends on the parameters, with its Jacobian G at the optimum."""

    @property
    def value(self) -> np.ndarray:
        """The vector there, [d]."""

    def pull(self, rows: np.ndarray) -> np.ndarray:
        """Rows times G.

        Args:
            rows: [k, d].

        Returns:
            [k, parameters].
        """

    def push(self, rows: np.ndarray) -> np.ndarray:
        """Rows times the transpose of G.

        Args:
            rows: [k, parameters].

        Returns:
            [k, d].
        """


@dataclass(frozen=True)
class Selected:
    """Parameters themselves.

    Args:
        value: theirs, [d].
        places: where they are, [d].
        size: number of all parameters.
    """

    value: np.ndarray
    places: np.ndarray
    size: int

    def pull(self, rows: np.ndarray) -> np.ndarray:
        """Rows times G."""
        found = np.zeros([len(rows), self.size])
        found[:, self.places] = rows
        return found

    def push(self, rows: np.ndarray) -> np.ndarray:
        """Rows times the transpose of G."""
        return rows[:, self.places]


def selected(functional: Functional, size: int) -> Functional:
    """The same functional, as a selection where its elements are parameters themselves.

    Args:
        functional: of any kind.
        size: number of all parameters.
    """
    count = len(functional.value)
    (numbered,) = functional.pull(np.arange(1.0, count + 1)[None])
    (places,) = np.nonzero(numbered)
    order = np.rint(numbered[places]).astype(int) - 1
    if not np.array_equal(np.sort(order), np.arange(count)):
        return functional
    found = Selected(functional.value, places[np.argsort(order)], size)
    probe = np.random.default_rng(0).normal(size=[1, size])
    there = functional.push(probe)
    return found if np.allclose(there, found.push(probe), rtol=1e-6, atol=0) else functional
