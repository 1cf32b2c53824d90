"""Functions of a function: f(g(x)) that a program spells by several functions of g(x)."""

from __future__ import annotations

from typing import Any

from moment_calculus.functions.combinators import Composed, Fused, Scaled
from moment_calculus.functions.recognition import RecognitionPolicy
from moment_calculus.functions.table import Rescaled, activation


def as_composition(function: Fused, policy: RecognitionPolicy) -> Any:
    """Return f(g(x)) for an activation f of the table and any function g; else the function.

    So the choices by which JAX spells Φ are recognised where g has arrays, or is no activation.
    """
    if not policy.allowed:
        return function
    first, *others = map(_arguments, function.parts)
    for argument in first:
        if all(any(argument is other for other in candidates) for candidates in others):
            outer = policy.recognised_function(_without(argument, function, policy))
            return function if isinstance(outer, Fused) else _composed(outer, argument, policy)
    return function


def _arguments(function: Any) -> list[Any]:
    """Return the functions g, the outermost first, that a function is a function of, but x."""
    if isinstance(function, Composed):
        return [function, *_arguments(function.inner)]
    if isinstance(function, Scaled):
        return [function, *_arguments(function.inner)]
    if not isinstance(function, Fused):
        return []
    first, *others = map(_arguments, function.parts)
    shared = [
        g for g in first if all(any(g is other for other in candidates) for candidates in others)
    ]
    return [function, *shared]


def _without(argument: Any, function: Any, policy: RecognitionPolicy) -> Any:
    """Return f of a function f(g(x))."""
    inside = lambda part: _without(argument, part, policy)  # noqa: E731
    if function is argument:
        return activation("identity")
    if isinstance(function, Composed):
        return Composed.of(function.outer, inside(function.inner), policy)
    if isinstance(function, Scaled):
        return Scaled(inside(function.inner), function.scale, function.shift, policy)
    parts = tuple(map(inside, function.parts))
    return Fused.of(function.combine, parts, function.compute_bounds, policy)


def _composed(outer: Any, argument: Any, policy: RecognitionPolicy) -> Any:
    """Return f(g(x)), with numbers outside and inside of f apart."""
    if not isinstance(outer, Rescaled):
        return Composed.of(outer, argument, policy)
    if outer.inner != 1:
        argument = Scaled(argument, outer.inner, 0.0, policy)
    whole = Composed.of(outer.activation, argument, policy)
    return (
        whole
        if (outer.outer, outer.shift) == (1, 0)
        else Scaled(whole, outer.outer, outer.shift, policy)
    )
