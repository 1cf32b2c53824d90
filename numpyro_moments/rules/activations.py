"""Elementwise functions: one line for each primitive that is an activation of the table."""

from __future__ import annotations

from typing import Any

from moment_calculus.activations import activation
from moment_calculus.operations import apply
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule

# Names of activations, and the primitive that JAX has for them.
PLAIN = {
    "abs": "abs",
    "cos": "cos",
    "erf": "erf",
    "erfc": "erfc",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "sigmoid": "logistic",
    "sin": "sin",
    "tanh": "tanh",
}


def _plain(kind: str, primitive: str) -> None:
    def rule(x: Value, **_: Any) -> Value:
        return apply(activation(kind), x)

    rule.__name__ = rule.__qualname__ = kind
    rule.__doc__ = f"Serve the primitive ``{primitive}``."
    moment_rule(primitive)(rule)


for _kind, _primitive in PLAIN.items():
    _plain(_kind, _primitive)


@moment_rule("max")
def maximum(x: Any, y: Any) -> Value:
    """Serve ``jnp.maximum``."""
    from moment_calculus import selection

    if y == 0.0 if isinstance(y, float) else False:
        return apply(activation("relu"), x)
    return selection.maximum(x, y)
