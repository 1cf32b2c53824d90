"""Rules of choices by certain and random conditions, and of the larger or smaller operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.table import activation
from moment_calculus.operations.dropout.noise import Bits
from moment_calculus.operations.elementwise import choices
from moment_calculus.operations.elementwise.arithmetic import apply, is_value
from moment_calculus.operations.elementwise.choices import Condition, at_least, at_most
from moment_calculus.operations.elementwise.unary import are_of_one_gaussian
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule


@moment_rule("select_n", takes=(Condition, Bits))
def select(which: Any, *cases: Any) -> Any:
    """Serve ``jnp.where`` and ``jax.lax.select_n`` with two cases."""
    cases = tuple(_moments(case) for case in cases)
    if not isinstance(which, Condition | Bits):
        return _by_certain(which, cases)
    if len(cases) == 2:
        other, chosen = cases
        if isinstance(which, Bits):
            return which.where(chosen, other)
        return choices.where_condition(which, chosen, other)
    raise UnsupportedMoments(
        f"a random choice among {len(cases)} cases",
        sites=which.sites,
        remedy="choose between two cases at a time, by jnp.where" + OR_DRAW,
    )


def _moments(case: Any) -> Any:
    if isinstance(case, Condition | Bits):
        case.gaussian()
    return case


def _by_certain(which: Any, cases: tuple[Any, ...]) -> Any:
    if isinstance(which, np.ndarray) and which.size and (which == which.flat[0]).all():
        return cases[int(which.flat[0])]
    if len(cases) != 2:
        raise UnsupportedMoments(
            f"a choice among {len(cases)} random cases",
            sites=[site for case in cases for site in getattr(case, "sites", ())],
            remedy="choose between two cases at a time, by jnp.where" + OR_DRAW,
        )
    return choices.where(jax.numpy.asarray(which), cases[1], cases[0])


def _bounded(kind: str, by_array: Callable, value: Value, bound: Any) -> Value:
    if not isinstance(bound, int | float):
        return by_array(value, bound)
    if kind == "low" and bound == 0:
        return apply(activation("relu"), value)
    return apply(activation("clamp", **{kind: float(bound)}), value)


def _extreme(kind: str, by_array: Callable, of_one: Callable, of_two: Callable) -> Callable:
    def rule(x: Any, y: Any) -> Value:
        if not is_value(x):
            x, y = y, x
        if not is_value(y):
            return _bounded(kind, by_array, x, y)
        one = are_of_one_gaussian(x, y, product=True)
        return of_one(x, y) if one else of_two(x, y)

    return rule


maximum = moment_rule("max")(_extreme("low", at_least, choices.maximum_of_one, choices.maximum))
minimum = moment_rule("min")(_extreme("high", at_most, choices.minimum_of_one, choices.minimum))


@moment_rule("clamp")
def clamp(low: Any, x: Any, high: Any) -> Value:
    """Serve ``jax.lax.clamp`` with certain bounds."""
    for name, bound in (("min", low), ("max", high)):
        if is_value(bound):
            raise UnsupportedMoments(
                f"the bound {name} is random",
                sites=bound.sites,
                remedy=f"make {name} certain" + OR_DRAW,
            )
    return minimum(maximum(x, low), high)
