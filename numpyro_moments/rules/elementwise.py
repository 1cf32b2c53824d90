"""Rules of elementwise primitives, from arithmetic to choices and conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule, register_made

_SUM = "``+``; dependent operands add their exact cross-covariance"
# Operations on two values, with what users write and the types that they get unchanged.
BINARY: dict[str, tuple[Callable[[Any, Any], Any], str, tuple[type, ...]]] = {
    "add": (ops.add, _SUM, ()),
    "add_any": (ops.add, _SUM, ()),
    "and": (ops.logical_and, "``&`` of conditions", (ops.Condition,)),
    "div": (ops.divide, "``/`` by a certain divisor, or by a positive function of a Gaussian", ()),
    "max": (ops.maximum, "``jnp.maximum``", ()),
    "min": (ops.minimum, "``jnp.minimum``", ()),
    "mul": (ops.multiply, "``*``", ()),
    "or": (ops.logical_or, "``|`` of conditions", (ops.Condition,)),
    "sub": (ops.subtract, "``-``", ()),
    "xor": (ops.logical_xor, "``^`` of conditions", (ops.Condition,)),
}


def _binary_rule(operation: Callable[[Any, Any], Any]) -> Callable:
    return lambda x, y, **_: operation(x, y)


for _primitive, (_binary, _spelling, _takes) in BINARY.items():
    register_made(_primitive, _binary_rule(_binary), f"Serve {_spelling}.", takes=_takes)


@moment_rule("integer_pow")
def integer_power(x: Value, *, y: int) -> Any:
    """Serve ``**`` with an exponent that is written as an integer."""
    return _power(x, y)


def _power(x: Value, exponent: float) -> Any:
    if exponent == 0:
        return jnp.ones(x.shape, x.at_mean.dtype)
    return ops.square(x) if exponent == 2 else ops.power(x, exponent)


@moment_rule("pow")
def power(x: Any, y: Any) -> Any:
    """Serve ``jnp.power`` and ``**`` with a certain exponent or a certain positive base."""
    if ops.is_value(y):
        return ops.exponential(x, y)
    # An exponential may have an exponent for each element, or a traced one.
    if not isinstance(y, int | float):
        return ops.array_power(x, y)
    return _power(x, y)


# Primitives of functions of one value; other functions arrive as chains of primitives.
PRIMITIVES = (
    "abs acos acosh asin asinh atan cbrt cos cosh digamma erf erfc exp exp2 expm1 lgamma log log1p "
    "neg rsqrt sign sin sinh sqrt square tanh"
)


def _unary_rule(operation: ops.Operation) -> Callable:
    return lambda x, **_: operation.rule(x)


def _refused(primitive: str) -> Callable:
    return lambda *operands, **_: ops.raise_unsupported(primitive, *operands)


for _primitive, _name in {**{n: n for n in PRIMITIVES.split()}, "logistic": "sigmoid"}.items():
    _operation = ops.FUNCTIONS[_name]
    register_made(
        _primitive,
        _unary_rule(_operation),
        f"Serve the primitive ``{_primitive}``{_operation.remark}.",
    )
for _name in ops.UNSUPPORTED:
    register_made(_name, _refused(_name), f"Refuse the primitive ``{_name}``, with the reason.")


@moment_rule("select_n", takes=(ops.Condition, ops.Bits))
def select(which: Any, *cases: Any) -> Any:
    """Serve ``jnp.where`` and ``jax.lax.select_n`` with two cases."""
    cases = tuple(_moments(case) for case in cases)
    if not isinstance(which, ops.Condition | ops.Bits):
        return _choose_by_certain(which, cases)
    if len(cases) == 2:
        other, chosen = cases
        if isinstance(which, ops.Bits):
            return which.where(chosen, other)
        return ops.where_condition(which, chosen, other)
    raise UnsupportedMoments(
        f"a random choice among {len(cases)} cases",
        sites=which.sites,
        remedy="choose between two cases at a time, by jnp.where" + errors.OR_DRAW,
    )


def _moments(case: Any) -> Any:
    if isinstance(case, ops.Condition | ops.Bits):
        case.gaussian()
    return case


def _choose_by_certain(which: Any, cases: tuple[Any, ...]) -> Any:
    if isinstance(which, np.ndarray) and which.size and (which == which.flat[0]).all():
        return cases[int(which.flat[0])]
    if len(cases) != 2:
        raise UnsupportedMoments(
            f"a choice among {len(cases)} random cases",
            sites=errors.sites_of(*cases),
            remedy="choose between two cases at a time, by jnp.where" + errors.OR_DRAW,
        )
    return ops.where(jax.numpy.asarray(which), cases[1], cases[0])


@moment_rule("clamp")
def clamp(low: Any, x: Any, high: Any) -> Value:
    """Serve ``jax.lax.clamp`` with certain bounds."""
    for name, bound in (("min", low), ("max", high)):
        if ops.is_value(bound):
            raise UnsupportedMoments(
                f"the bound {name} is random",
                sites=bound.sites,
                remedy=f"make {name} certain" + errors.OR_DRAW,
            )
    return ops.minimum(ops.maximum(x, low), high)


def _comparison(kind: str) -> Callable:
    def rule(x: Any, y: Any) -> Any:
        drawn = any(isinstance(operand, ops.Uniform | ops.Bits) for operand in (x, y))
        return ops.compare_noise(kind, x, y) if drawn else ops.compare(kind, x, y)

    return rule


for _name in ops.OPERATORS:
    _summary = f"Serve the comparison ``{_name}`` of functions of one Gaussian."
    register_made(_name, _comparison(_name), _summary, takes=(ops.Uniform, ops.Bits))


@moment_rule("not", takes=(ops.Condition, ops.Bits))
def negated(x: Any) -> Any:
    """Serve ``~`` of a condition, or of random booleans."""
    return x.logical_not() if isinstance(x, ops.Bits) else ops.logical_not(x)


@moment_rule("is_finite")
def is_finite(x: Value) -> Any:
    """Serve ``jnp.isfinite``: a random value is finite."""
    return np.ones(x.shape, dtype=bool)
