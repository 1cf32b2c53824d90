"""The rule table: which moment rule serves which JAX primitive."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from moment_calculus.hosts.registry import Table
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.recognition import Symbolic
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian

RULES: dict[str, Callable] = {}
PROGRAMS: Table[str] = Table()
INLINED: set[str] = set()
PARTS: Table[str] = Table()


def is_random(operand: Any) -> bool:
    """Whether an operand of an equation is a live random value."""
    return isinstance(operand, Gaussian | Deferred | Composite | Symbolic)


def moment_rule(
    *primitives: str, takes: tuple[type, ...] = (), numbers: bool = True
) -> Callable[[Callable], Callable]:
    """Register a rule for JAX primitives.

    The rule is called with the primitive's operands and, by keyword, its parameters. Operands are
    certain arrays or numbers, or the values of :mod:`moment_calculus.values`. It returns a value
    or array, a list of them for a primitive with several results.

    Args:
        primitives: names of primitives as a jaxpr prints them, e.g. ``"dot_general"``.
        takes: which composites (functions of logits and the like) the rule understands as they
            are; of others it gets the moments.
        numbers: whether a certain array that holds one number everywhere may come as that number,
            without its shape; rules that are not elementwise need the shape.

    Returns:
        The decorator.
    """

    def register(rule: Callable) -> Callable:
        @functools.wraps(rule)
        def checked(*operands: Any, **parameters: Any) -> Any:
            return rule(*(_matched(operand, takes) for operand in operands), **parameters)

        checked.numbers = numbers  # type: ignore[attr-defined]
        for primitive in primitives:
            RULES[primitive] = checked
        return rule

    return register


def program_rule(*primitives: str, inlined: bool = False) -> Callable[[Callable], Callable]:
    """Register a rule for primitives that hold programs of their own: calls, loops, branches.

    It is called with the interpreter, the equation and the operands, and returns a list.

    Args:
        primitives: names of primitives.
        inlined: whether the rule evaluates the program once, by ``interpreter.inline``, so that
            composites are found across its border.

    Returns:
        The decorator.
    """
    INLINED.update(primitives if inlined else ())
    return PROGRAMS.register(*primitives)


def part_rule(*primitives: str) -> Callable[[Callable], Callable]:
    """Register what a primitive makes of parts of composites; it is asked before its moment rule.

    It is called with the moment rule, which takes the operands alone, then the operands and, by
    keyword, the primitive's parameters. It returns a part or value, or None where it finds none.

    Args:
        primitives: names of primitives with one result.

    Returns:
        The decorator.
    """
    return PARTS.register(*primitives)


def refused(primitive: str, reason: str, remedy: str) -> None:
    """Register the refusal of a primitive.

    Args:
        primitive: its name.
        reason: what is not known, or does not go.
        remedy: what serves instead.
    """

    def rule(*operands: Any, **_: Any) -> None:
        sites = frozenset().union(*(getattr(operand, "sites", ()) for operand in operands))
        raise UnsupportedMoments(reason, sites=sites, remedy=remedy + OR_DRAW)

    rule.__doc__ = f"Refuse ``{primitive}``, and name what serves instead."
    moment_rule(primitive)(rule)


def _matched(operand: Any, takes: tuple[type, ...]) -> Any:
    """A composite as the rule understands it: its moments, unless it is taken as it is."""
    if isinstance(operand, Composite) and not isinstance(operand, takes):
        return operand.gaussian()
    return operand
