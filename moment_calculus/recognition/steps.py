"""The table of steps that turn parts of composite functions into larger parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.operations.normalised.composites import LogSoftmax, LogSumExp, Softmax
from moment_calculus.recognition.base import Symbolic, View
from moment_calculus.values import Deferred, Gaussian


class Certain:
    """The kind of operands that are not random, in the table of steps."""


STEPS: dict[tuple, Callable] = {}
FALLBACKS: list[Callable] = []
VECTOR_FUNCTIONS = (LogSoftmax, LogSumExp, Softmax)


def step(operation: str, *kinds: type, commutes: bool = False) -> Callable[[Callable], Callable]:
    """Return a decorator that registers the result of an operation on parts of these kinds.

    The function takes the operands, and options by keyword. It returns another part, a value where
    the composite is complete, or None. Values that are no other part are of kind ``View``.
    """

    def register(function: Callable) -> Callable:
        STEPS[(operation, *kinds)] = function
        if commutes:
            STEPS[(operation, *kinds[::-1])] = lambda left, right: function(right, left)
        return function

    return register


def fallback(function: Callable) -> Callable:
    """Register a function that is called if no step recognises an operation on parts."""
    FALLBACKS.append(function)
    return function


def take_step(operation: str, *operands: Any, **options: Any) -> Any:
    """Return the part or value that an operation makes of its operands; None if not recognised.

    The moments of a part on its own are still to be set by ``otherwise``.
    """
    kinds = tuple(map(_kind, operands))
    function = STEPS.get((operation, *kinds))
    found = function and function(*map(_as_part, operands, kinds), **options)
    if found is not None or not any(isinstance(operand, Symbolic) for operand in operands):
        return found
    attempts = (attempt(operation, *operands, **options) for attempt in FALLBACKS)
    return next((found for found in attempts if found is not None), None)


def resolved(operand: Any) -> Any:
    """Return an operand on its own, for rules that know nothing of parts."""
    return operand.value() if isinstance(operand, Symbolic) else operand


def _kind(operand: Any) -> type:
    if isinstance(operand, Symbolic):
        return type(operand)
    if isinstance(operand, (Gaussian, Deferred, *VECTOR_FUNCTIONS)):
        return View
    return type(operand) if hasattr(operand, "sites") else Certain


def _as_part(operand: Any, kind: type) -> Any:
    return View(operand) if kind is View and not isinstance(operand, View) else operand
