"""Find the user's line of an equation and the sites that it leads to, for messages."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.numerics import private_apis
from numpyro_moments._host import Jaxpr


def line_of(equation: Any, calls: Sequence[Any] = ()) -> tuple[str, int] | None:
    """Return file and line of the user's innermost frame behind an equation."""
    # Equations inside JAX's own functions have no line of the user; their calls do.
    for candidate in (equation, *reversed(calls)):
        for frame in _frames(candidate):
            if not _is_hidden(frame.file_name):
                return frame.file_name, frame.line_num
    return None


def _frames(equation: Any) -> Iterator[Any]:
    traceback = equation.source_info.traceback
    yield from traceback.frames if traceback is not None else ()


@functools.cache
def _is_hidden(file: str) -> bool:
    """Return whether a file belongs to a library; notebook cells and <stdin> do not."""
    return errors.is_standard(file) or file.startswith(_hidden_folders())


@functools.cache
def _hidden_folders() -> tuple[str, ...]:
    specifications = [find_spec(name) for name in sorted(errors.LIBRARIES)]
    paths = [path for s in specifications if s for path in s.submodule_search_locations or ()]
    return tuple(os.path.join(os.path.abspath(path), "") for path in paths)


def located(
    refusal: UnsupportedMoments, equation: Any, operands: Sequence[Any], interpreter: Any
) -> UnsupportedMoments:
    """Return the error with operation, user's line, sites and what they lead to."""
    calls = interpreter.calls
    return refusal.located(
        _name(equation, calls),
        _where(equation, calls),
        errors.sites_of(*operands),
        fed_by(calls[0] if calls else equation, interpreter.program, interpreter.output_sites),
    )


def _name(equation: Any, calls: Sequence[Any]) -> str:
    """Return the primitive, and the functions that it is inside of."""
    names = [equation.primitive.name]
    for call in reversed(calls):
        name = str(call.params.get("name", call.primitive.name))
        if name != names[-1]:  # jax.nn.relu is a jit in a custom_jvp, both of this name
            names.append(name)
    return " in ".join(names)


def _where(equation: Any, calls: Sequence[Any]) -> str:
    """Return the user's line, and the modules that JAX has noted as scopes."""
    frame = line_of(equation, calls)
    line = f"{frame[0]}:{frame[1]}" if frame else ""
    scopes = [str(part.source_info.name_stack) for part in (*calls, equation)]
    scope = "/".join(filter(None, scopes))
    return f"{line} in {scope}" if line and scope else line


def fed_by(equation: Any, program: Jaxpr | None, outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the outputs that depend on an equation of the program."""
    if program is None or not outputs:
        return ()
    reached = set(equation.outvars)
    start = next((i for i, other in enumerate(program.eqns) if other is equation), None)
    for other in program.eqns[start:] if start is not None else ():
        if any(
            not private_apis.is_constant(operand) and operand in reached for operand in other.invars
        ):
            reached.update(other.outvars)
    found = [
        name
        for name, variable in zip(outputs, program.outvars, strict=True)
        if not private_apis.is_constant(variable) and variable in reached
    ]
    return tuple(dict.fromkeys(filter(None, found)))
