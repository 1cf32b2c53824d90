"""Which certain arrays hold one known number."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_moments.rules.table import is_random


class KnownNumbers:
    """Which certain arrays hold one known number: rules recognise functions by their constants."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, float]] = {}  # with the array, whose id it keeps

    def copy(self) -> KnownNumbers:
        """What is known so far, to which nothing is added here."""
        numbers = KnownNumbers()
        numbers._known = dict(self._known)
        return numbers

    def follow(self, source: Any, result: Any) -> None:
        """Note that a result holds the number of its source, if that is known.

        Args:
            source: certain array or number.
            result: certain array.
        """
        number = self.simplified(source)
        if isinstance(number, int | float):
            self._known[id(result)] = result, number

    def simplified(self, operand: Any) -> Any:
        """The operand as a number if it is one that is known, else itself.

        Args:
            operand: value, array or number.
        """
        if id(operand) in self._known:
            return self._known[id(operand)][1]
        return operand if is_random(operand) else _simplified(operand)


def _simplified(operand: Any) -> Any:
    known = isinstance(operand, np.ndarray | np.generic | jax.Array)
    if not known or isinstance(operand, jax.core.Tracer) or np.ndim(operand):
        return operand
    return operand.item() if jnp.issubdtype(operand.dtype, jnp.number) else operand
