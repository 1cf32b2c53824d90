"""What an operation of the random programs is.

A spelling names its operands ``{0}`` and ``{1}`` and its drawn arguments by their names; ``xp`` is
``torch`` or ``jax.numpy``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Operation:
    """One operation.

    Args:
        name: the same in both hosts.
        draw: its arguments from a generator and the shapes of its operands; None if none fit.
        torch: its spellings in torch.
        jax: its spellings in JAX; none where JAX has no such function.
        unfit: whether it bends at once where an operand is, from its arguments and the operand.
        partner: draws a certain array ``c`` in the place of the second operand, and what else; most
            often that becomes an input of its own, since a map of dependent values is refused.
        mixes: whether elements of an operand are added up: in diagonal mode as independent ones.
        mixes_again: whether sums are added up, too: their variances are not owed in diagonal mode.
        hard: whether most of what it makes has no rule, and is refused.
    """

    name: str
    draw: Callable
    torch: tuple[str, ...]
    jax: tuple[str, ...]
    unfit: Callable[[dict, np.ndarray], bool] = lambda drawn, value: False
    partner: Callable | None = None
    mixes: bool = False
    mixes_again: bool = False
    hard: bool = False

    @property
    def arity(self) -> int:
        return 2 if "{1}" in self.torch[0] else 1

    def spelled(self, host: str, which: int) -> str:
        """One spelling in a host."""
        spellings = getattr(self, host)
        namespace = "torch." if host == "torch" else "jnp."
        return spellings[which % len(spellings)].replace("xp.", namespace)


def both(name: str, draw: Callable, *spellings: str, **options) -> Operation:
    """An operation that is spelt alike in both hosts."""
    return Operation(name, draw, spellings, spellings, **options)


def each(name: str, draw: Callable, torch: str | tuple, jax: str | tuple, **options) -> Operation:
    """An operation with spellings of its own in each host."""
    torch, jax = ((s,) if isinstance(s, str) else s for s in (torch, jax))
    return Operation(name, draw, torch, jax, **options)
