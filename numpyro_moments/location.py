"""Where in the user's program an equation comes from, and what it leads to; for messages only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpyro

import guides
import moment_calculus
from moment_calculus.errors import UnsupportedMoments

_HOSTS = (jax, numpyro)
_OWN = (guides, moment_calculus)
_HIDDEN = tuple(
    os.path.join(os.path.dirname(os.path.abspath(str(module.__file__))), "")
    for module in (*_HOSTS, *_OWN)
) + (os.path.join(os.path.dirname(os.path.abspath(__file__)), ""),)


def line_of(equation: Any, calls: Sequence[Any] = ()) -> tuple[str, int] | None:
    """File and line of the user's innermost frame behind an equation.

    Args:
        equation: of a jaxpr.
        calls: the equations it is inside of; those of JAX's own functions have no line.
    """
    for candidate in (equation, *reversed(calls)):
        for frame in _frames(candidate):
            if not frame.file_name.startswith(_HIDDEN):
                return frame.file_name, frame.line_num
    return None


def _frames(equation: Any) -> Iterator[Any]:
    traceback = equation.source_info.traceback
    yield from traceback.frames if traceback is not None else ()


def located(
    refusal: UnsupportedMoments, equation: Any, operands: Sequence[Any], interpreter: Any
) -> UnsupportedMoments:
    """A refusal with the operation, the user's line and the sites filled in.

    Args:
        refusal: what the rule raised.
        equation: the equation it was asked to serve.
        operands: its operands.
        interpreter: the interpreter that evaluates it.
    """
    place = line_of(equation, interpreter.calls)
    sites = [site for operand in operands for site in getattr(operand, "sites", ())]
    where = f"{place[0]}:{place[1]}" if place else "unknown"
    return refusal.located(_name(equation, interpreter.calls), where, sites)


def _name(equation: Any, calls: Sequence[Any]) -> str:
    """The primitive, and the function of JAX that it is inside of."""
    names = [str(call.params.get("name", call.primitive.name)) for call in calls]
    return " in ".join([equation.primitive.name, *reversed(names)])
