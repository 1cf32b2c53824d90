"""Rules of activations and of elementary functions that JAX has as primitives."""

from __future__ import annotations

from typing import Any

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.arithmetic import apply
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule

# JAX's primitives by the names of activations.
PLAIN = {name: name for name in "abs cos erf erfc exp exp2 expm1 sin tanh".split()}
PLAIN["sigmoid"] = "logistic"


def _plain(kind: str, primitive: str) -> None:
    def rule(x: Value, **_: Any) -> Value:
        return apply(activation(kind), x)

    rule.__name__ = rule.__qualname__ = kind
    rule.__doc__ = f"Serve the primitive ``{primitive}``."
    moment_rule(primitive)(rule)


def _integrated(primitive: str) -> None:
    def rule(x: Value, **_: Any) -> Value:
        return elementary.apply_by_name(primitive, x)

    rule.__name__ = rule.__qualname__ = primitive
    rule.__doc__ = f"Serve ``jnp.{primitive}``, by quadrature."
    moment_rule(primitive)(rule)


def _refused(primitive: str) -> None:
    def rule(x: Any, *others: Any, **_: Any) -> Value:
        return elementary.raise_unsupported(primitive, x, *others)

    rule.__name__ = rule.__qualname__ = primitive
    rule.__doc__ = f"Refuse the primitive ``{primitive}``, with the reason."
    moment_rule(primitive)(rule)


for _kind, _primitive in PLAIN.items():
    _plain(_kind, _primitive)
for _primitive in elementary.FUNCTIONS:
    _integrated(_primitive)
for _primitive in elementary.UNSUPPORTED:
    _refused(_primitive)
