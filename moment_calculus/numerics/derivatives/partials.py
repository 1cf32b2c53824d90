"""Apply the partial derivatives of elementwise functions to tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Array = Any
Partials = Callable[..., Sequence[Sequence[Array]]]


def as_tuple(outputs: Any) -> tuple[Array, ...]:
    """Return the outputs of a function as a tuple, also if it returned a single array."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def directional(rows: Any, tangents: Sequence[Any]) -> list[Array]:
    """Return the directional derivative of each output; a tangent of None stands for zero."""
    return [sum(p * t for p, t in zip(row, tangents, strict=True) if t is not None) for row in rows]
