"""Rules of padding with certain entries."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from moment_calculus.operations.shapes import concatenation
from moment_calculus.operations.shapes.concatenation import Config
from moment_calculus.values import Value
from numpyro_moments.rules.table import moment_rule


@moment_rule("pad")
def pad(x: Any, fill: Any, *, padding_config: Any) -> Value:
    """Serve ``jnp.pad`` with a constant, and ``jax.lax.pad``."""
    return concatenation.pad(x, pad_array, padding_config, fill)


def pad_array(array: Any, config: Config, fill: Any) -> Any:
    """Pad an array with entries before, after and between, as ``config`` has for each axis."""
    return lax.pad(array, jnp.asarray(fill, array.dtype), config)


def padded(operand: Any, config: Config) -> Any:
    """Return a value or array with zeros around and between its entries."""
    if not any(any(entry) for entry in config):
        return operand
    if hasattr(operand, "sites"):
        return concatenation.pad(operand, pad_array, config)
    return pad_array(operand, config, 0)
