"""Rules of conversions to other dtypes, and of operations that change no number."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.operations.dropout.noise import Bits
from moment_calculus.operations.elementwise.choices import Condition
from moment_calculus.operations.shapes.moves import converted
from moment_calculus.values import Deferred
from moment_calculus.values.deferred import Composite
from numpyro_moments.rules.table import moment_rule


@moment_rule("convert_element_type", takes=(Composite,))
def convert(x: Any, *, new_dtype: Any, **_: Any) -> Any:
    """Serve ``astype`` of floating-point numbers, and of conditions to floating-point numbers."""
    if isinstance(x, Condition | Bits) and new_dtype == jnp.bool_:
        return x
    if not jnp.issubdtype(new_dtype, jnp.floating):
        raise UnsupportedMoments(
            f"a conversion of a random value to {jnp.dtype(new_dtype).name}",
            sites=x.sites,
            remedy="keep a floating-point dtype, e.g. (h > 0).astype(h.dtype); in place of a "
            "branch of jax.lax.cond that a random value decides, compute both and choose by "
            "jnp.where" + OR_DRAW,
        )
    value = x.number if isinstance(x, Condition | Bits) else x
    if _dtype(value) == new_dtype:
        return value
    if isinstance(value, Composite) and not isinstance(value, MaskedWeight):
        value = value.gaussian()
    return converted(value, lambda array: jnp.asarray(array).astype(new_dtype))


def _dtype(value: Any) -> Any:
    if isinstance(value, Composite):
        return value.source.mean.dtype
    return value.dtype if isinstance(value, Deferred) else value.mean.dtype


@moment_rule("copy", "copy_p", "real", takes=(Composite,))
def itself(x: Any, **_: Any) -> Any:
    """Serve ``jnp.copy`` and ``jnp.real``: the value itself."""
    return x


@moment_rule("optimization_barrier", takes=(Composite,))
def barrier(*values: Any) -> list[Any]:
    """Serve ``jax.lax.optimization_barrier``: the values themselves."""
    return list(values)


@moment_rule("reduce_precision")
def reduce_precision(x: Any, **_: Any) -> Any:
    """Raise for ``jax.lax.reduce_precision``, whose rounding has no moments."""
    raise UnsupportedMoments(
        "the rounding of a random value to fewer digits",
        sites=x.sites,
        remedy="convert it by astype, which changes the precision of its moments" + OR_DRAW,
    )


@moment_rule("stop_gradient")
def stop_gradient(x: Any) -> Any:
    """Raise for ``jax.lax.stop_gradient``, which would hide on which sites a value depends."""
    raise UnsupportedMoments(
        "a random value without its gradient, which would train the guide on part of the model",
        sites=x.sites,
        remedy="stop the gradient of the certain parameters, or of the guide's, instead",
    )
