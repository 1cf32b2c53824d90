"""Partial derivatives of elementwise functions, applied to tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Array = Any
Partials = Callable[..., Sequence[Sequence[Array]]]


def as_tuple(outputs: Any) -> tuple[Array, ...]:
    """The outputs of a function, also of one that returns a single array."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def directional(rows: Any, tangents: Sequence[Any]) -> list[Array]:
    """Directional derivative of each output; a tangent of None stands for zero."""
    return [sum(p * t for p, t in zip(row, tangents, strict=True) if t is not None) for row in rows]
