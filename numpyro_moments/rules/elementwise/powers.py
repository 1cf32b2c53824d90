"""Rules of powers, roots and logarithms: natural powers of all values, others of positive ones."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from moment_calculus.operations.elementwise import arithmetic as operations
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.arithmetic import is_value
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule


@moment_rule("square")
def square(x: Value) -> Value:
    """Serve ``jnp.square``."""
    return operations.square(x)


@moment_rule("integer_pow")
def integer_power(x: Value, *, y: int) -> Any:
    """Serve ``**`` with an exponent that is written as an integer."""
    return _power(x, y)


def _power(x: Value, exponent: float) -> Any:
    if exponent == 0:
        return jnp.ones(x.shape, x.at_mean.dtype)
    return operations.square(x) if exponent == 2 else elementary.power(x, exponent)


@moment_rule("sqrt")
def square_root(x: Value, **_: Any) -> Value:
    """Serve ``jnp.sqrt`` of a positive function of a Gaussian."""
    return elementary.power(x, 0.5)


@moment_rule("rsqrt")
def reciprocal_root(x: Value, **_: Any) -> Value:
    """Serve ``jax.lax.rsqrt`` of a positive function of a Gaussian."""
    return elementary.power(x, -0.5)


@moment_rule("cbrt")
def cube_root(x: Value, **_: Any) -> Value:
    """Serve ``jnp.cbrt`` of a positive function of a Gaussian."""
    return elementary.power(x, 1 / 3)


@moment_rule("log")
def log(x: Value, **_: Any) -> Value:
    """Serve ``jnp.log`` of a positive function of a Gaussian."""
    return elementary.log(x)


@moment_rule("log1p")
def log1p(x: Value, **_: Any) -> Value:
    """Serve ``jnp.log1p`` of a function of a Gaussian that is above −1."""
    return elementary.log1p(x)


@moment_rule("pow")
def power(x: Any, y: Any) -> Any:
    """Serve ``jnp.power`` and ``**`` with a certain exponent or a certain positive base."""
    if is_value(y):
        return elementary.exponential(x, y)
    # An exponential may have an exponent for each element, or a traced one.
    if not isinstance(y, int | float):
        return elementary.array_power(x, y)
    return _power(x, y)
