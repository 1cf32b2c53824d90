"""The table of moment rules by JAX primitive, and the decorators that register them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Composite, Deferred, FunctionRegistry, Gaussian

RULES: dict[str, Callable] = {}
# Rules of programs are called with interpreter, equation and operands, and return lists.
PROGRAMS: FunctionRegistry[str] = FunctionRegistry()
# Programs that are evaluated once, by ``interpreter.run_inline``: composites are recognised
# across their border.
INLINED: set[str] = set()
# Called with the moment rule (of the operands alone), the operands and, by keyword, the
# parameters; they return a part, a value, or None if they recognise nothing.
PARTS: FunctionRegistry[str] = FunctionRegistry()


@dataclass(frozen=True, eq=False)
class Refused:
    """A random value whose moments are not known, where terms that need them are drawn instead."""

    shape: tuple[int, ...]
    dtype: Any
    refusal: UnsupportedMoments

    @property
    def sites(self) -> frozenset[str]:
        """Return the names of the sites that it depends on."""
        return frozenset(self.refusal.sites)

    def gaussian(self) -> None:
        """Raise the refusal: there are no moments."""
        raise self.refusal


RANDOM = (Gaussian, Deferred, Composite, ops.Symbolic, Refused)


def is_random(operand: Any) -> bool:
    """Return whether an operand of an equation is a random value."""
    return isinstance(operand, RANDOM)


def moment_rule(
    *primitives: str, takes: tuple[type, ...] = (), numbers: bool = True
) -> Callable[[Callable], Callable]:
    """Register a rule for JAX primitives.

    The rule is called with the primitive's operands and, by keyword, its parameters.
    Operands are certain arrays or numbers, or the values of
    :mod:`moment_calculus.values`. It returns a value or array, a list of them for a
    primitive with several results.

    Args:
        primitives: names of primitives as a jaxpr prints them, e.g. ``"dot_general"``.
        takes: types of composites (functions of logits and the like) that the rule gets
            unchanged; it gets the moments of others.
        numbers: whether the rule may get a number in place of a certain array that holds
            this number everywhere; rules that are not elementwise need the shape.

    Returns:
        The decorator.
    """

    def register(rule: Callable) -> Callable:
        @functools.wraps(rule)
        def checked(*operands: Any, **parameters: Any) -> Any:
            matched = [
                x.gaussian() if isinstance(x, Composite) and not isinstance(x, takes) else x
                for x in operands
            ]
            return rule(*matched, **parameters)

        checked.numbers = numbers  # type: ignore[attr-defined]
        for primitive in primitives:
            RULES[primitive] = checked
        return rule

    return register


def program_rule(*primitives: str, inlined: bool = False) -> Callable[[Callable], Callable]:
    """Register a rule for primitives that contain programs: calls, loops, branches."""
    INLINED.update(primitives if inlined else ())
    return PROGRAMS.register(*primitives)


def part_rule(*primitives: str) -> Callable[[Callable], Callable]:
    """Register a rule for parts of composites, which applies before the moment rule."""
    return PARTS.register(*primitives)


def register_made(
    primitive: str, rule: Callable, summary: str, register: Callable = moment_rule, **options: Any
) -> None:
    """Register a rule that a table made, under the name of its primitive."""
    rule.__name__ = rule.__qualname__ = primitive
    rule.__doc__ = summary
    register(primitive, **options)(rule)


def refused(primitive: str, reason: str, remedy: str) -> None:
    """Register a rule that raises UnsupportedMoments with a reason and a remedy."""

    def rule(*operands: Any, **_: Any) -> None:
        raise UnsupportedMoments(
            reason, sites=errors.sites_of(*operands), remedy=remedy + errors.OR_DRAW
        )

    rule.__doc__ = f"Refuse ``{primitive}``, and name what serves instead."
    moment_rule(primitive)(rule)
