"""The table of steps by which parts of composites become larger parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.operations.normalised.composites import LogSoftmax, LogSumExp, Softmax
from moment_calculus.recognition.base import Symbolic, View
from moment_calculus.values import Deferred, Gaussian


class Certain:
    """Stands for operands that are not random in the table of steps."""


STEPS: dict[tuple, Callable] = {}
FALLBACKS: list[Callable] = []
VECTOR_FUNCTIONS = (LogSoftmax, LogSumExp, Softmax)


def step(operation: str, *kinds: type, commutes: bool = False) -> Callable[[Callable], Callable]:
    """Register what an operation makes of parts of composites.

    The function is called with the operands, and options by keyword. It returns another part, or
    a value where the composite is complete, or None where it is not recognised.

    Args:
        operation: its name.
        kinds: classes of the operands, exactly; values that are nothing else are a ``View``.
        commutes: whether the operands may be in the other order.

    Returns:
        The decorator.
    """

    def register(function: Callable) -> Callable:
        STEPS[(operation, *kinds)] = function
        if commutes:
            STEPS[(operation, *kinds[::-1])] = lambda left, right: function(right, left)
        return function

    return register


def fallback(function: Callable) -> Callable:
    """Register what is asked where no step recognises an operation on parts.

    Args:
        function: called with the operation's name, the operands and its options; returns as a
            step does.
    """
    FALLBACKS.append(function)
    return function


def take_step(operation: str, *operands: Any, **options: Any) -> Any:
    """The part or composite that an operation makes of its operands, if one is recognised.

    Args:
        operation: name of a step.
        *operands: parts, values, arrays or numbers.
        **options: of the operation, as its steps take them.

    Returns:
        A part, whose own moments are still to be set with ``otherwise``; a value; or None.
    """
    kinds = tuple(map(_kind, operands))
    function = STEPS.get((operation, *kinds))
    found = function and function(*map(_as_part, operands, kinds), **options)
    if found is not None or not any(isinstance(operand, Symbolic) for operand in operands):
        return found
    attempts = (attempt(operation, *operands, **options) for attempt in FALLBACKS)
    return next((found for found in attempts if found is not None), None)


def resolved(operand: Any) -> Any:
    """An operand on its own, for rules that know nothing of parts.

    Args:
        operand: anything.
    """
    return operand.value() if isinstance(operand, Symbolic) else operand


def _kind(operand: Any) -> type:
    if isinstance(operand, Symbolic):
        return type(operand)
    if isinstance(operand, (Gaussian, Deferred, *VECTOR_FUNCTIONS)):
        return View
    return type(operand) if hasattr(operand, "sites") else Certain


def _as_part(operand: Any, kind: type) -> Any:
    return View(operand) if kind is View and not isinstance(operand, View) else operand
