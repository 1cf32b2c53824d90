"""The table of rules that turn parts of composite functions into larger parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.operations.normalised.composites import LogSoftmax, LogSumExp, Softmax
from moment_calculus.recognition.base import Symbolic, View
from moment_calculus.values import Deferred, Gaussian


class Certain:
    """The kind of operands that are not random, in the table of rules."""


RULES: dict[tuple, Callable] = {}
FALLBACK_RULES: list[Callable] = []
VECTOR_FUNCTIONS = (LogSoftmax, LogSumExp, Softmax)


def recognition_rule(
    operation: str, *kinds: type, commutes: bool = False
) -> Callable[[Callable], Callable]:
    """Return a decorator that registers the result of an operation on parts of these kinds.

    The function takes the operands, and options by keyword. It returns another part, a
    value where the composite is complete, or None. Values that are no other part are of
    kind ``View``.
    """

    def register(function: Callable) -> Callable:
        RULES[(operation, *kinds)] = function
        if commutes:
            RULES[(operation, *kinds[::-1])] = lambda left, right: function(right, left)
        return function

    return register


def fallback_rule(function: Callable) -> Callable:
    """Register a function that is called if no rule recognises an operation on parts."""
    FALLBACK_RULES.append(function)
    return function


def apply_rule(operation: str, *operands: Any, **options: Any) -> Any:
    """Return the part or value that an operation makes of its operands; None if not recognised.

    The moments of a part on its own are still to be set by ``set_fallback``.
    """
    kinds = tuple(map(_kind, operands))
    function = RULES.get((operation, *kinds))
    result = function and function(*map(_as_part, operands, kinds), **options)
    if result is not None or not any(isinstance(operand, Symbolic) for operand in operands):
        return result
    attempts = (attempt(operation, *operands, **options) for attempt in FALLBACK_RULES)
    return next((result for result in attempts if result is not None), None)


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
