"""Rules of comparisons, and of logical operations on their outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.operations.dropout import noise
from moment_calculus.operations.dropout.noise import Bits, Uniform
from moment_calculus.operations.elementwise import choices
from moment_calculus.operations.elementwise.choices import Condition
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule


def _comparison(kind: str) -> None:
    def rule(x: Any, y: Any) -> Any:
        drawn = any(isinstance(operand, Uniform | Bits) for operand in (x, y))
        return noise.compare(kind, x, y) if drawn else choices.compare(kind, x, y)

    rule.__name__ = rule.__qualname__ = kind
    rule.__doc__ = f"Serve the comparison ``{kind}`` of functions of one Gaussian."
    moment_rule(kind, takes=(Uniform, Bits))(rule)


for _kind in choices.OPERATORS:
    _comparison(_kind)


@moment_rule("and", takes=(Condition,))
def both(x: Any, y: Any) -> Any:
    """Serve ``&`` of conditions."""
    return choices.logical_and(x, y)


@moment_rule("or", takes=(Condition,))
def either(x: Any, y: Any) -> Any:
    """Serve ``|`` of conditions."""
    return choices.logical_or(x, y)


@moment_rule("xor", takes=(Condition,))
def exclusive(x: Any, y: Any) -> Any:
    """Serve ``^`` of conditions."""
    return choices.logical_xor(x, y)


@moment_rule("not", takes=(Condition, Bits))
def negated(x: Any) -> Any:
    """Serve ``~`` of a condition, or of random booleans."""
    return x.logical_not() if isinstance(x, Bits) else choices.logical_not(x)


@moment_rule("is_finite")
def is_finite(x: Value) -> Any:
    """Serve ``jnp.isfinite``: a random value is finite."""
    return np.ones(x.shape, dtype=bool)
