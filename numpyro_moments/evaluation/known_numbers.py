"""Remember which certain arrays hold one known number."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.numerics.private_apis import is_traced
from numpyro_moments.rules.table import is_random


class KnownNumbers:
    """Certain arrays that hold one known number: rules recognise functions by their constants."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, float]] = {}  # array, kept alive for its id, and number

    def copy(self) -> KnownNumbers:
        """Return a copy, to which numbers can be added separately."""
        numbers = KnownNumbers()
        numbers._known = dict(self._known)
        return numbers

    def follow(self, source: Any, result: Any) -> None:
        """Note that a certain result holds the number of its source, if that is known."""
        number = self.simplified(source)
        if isinstance(number, int | float):
            self._known[id(result)] = result, number

    def simplified(self, operand: Any) -> Any:
        """Return the known number that an operand holds, else the operand."""
        if id(operand) in self._known:
            return self._known[id(operand)][1]
        return operand if is_random(operand) else _simplified(operand)


def _simplified(operand: Any) -> Any:
    known = isinstance(operand, np.ndarray | np.generic | jax.Array)
    if not known or is_traced(operand) or np.ndim(operand):
        return operand
    return operand.item() if jnp.issubdtype(operand.dtype, jnp.number) else operand
