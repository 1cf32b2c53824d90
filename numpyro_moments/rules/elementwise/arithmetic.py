"""Rules of sums, differences, products and quotients."""

from __future__ import annotations

from typing import Any

from moment_calculus.operations.elementwise import arithmetic as operations
from moment_calculus.operations.elementwise import choices
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule


@moment_rule("add", "add_any")
def add(x: Any, y: Any) -> Value:
    """Serve ``+``; dependent operands add their exact cross-covariance."""
    return operations.add(x, y)


@moment_rule("sub")
def subtract(x: Any, y: Any) -> Value:
    """Serve ``-``."""
    return operations.subtract(x, y)


@moment_rule("mul")
def multiply(x: Any, y: Any, **_: Any) -> Value:
    """Serve ``*``."""
    return operations.multiply(x, y)


@moment_rule("div")
def divide(x: Any, y: Any, **_: Any) -> Value:
    """Serve ``/`` by a certain divisor, or by a positive function of a Gaussian."""
    return operations.divide(x, y)


@moment_rule("neg")
def negative(x: Value) -> Value:
    """Serve unary ``-``."""
    return operations.scale_shift(x, -1.0)


@moment_rule("sign")
def sign(x: Value) -> Value:
    """Serve ``jnp.sign``."""
    return choices.sign(x)
