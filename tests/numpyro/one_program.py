"""Moments in one compiled program, where a test is not about evaluation operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from numpyro_moments import propagate


def compiled(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns for its arguments, which are traced."""
    return jax.jit(function)(*arguments)


def propagate_compiled(function: Callable, *inputs: Any, **options: Any) -> Any:
    """Like ``propagate``; every operation by itself takes as long to compile as all of them."""
    return compiled(lambda *given: propagate(function, *given, **options), *inputs)


# Of a table that is seen in both modes, the one is evaluated as one program, the other eagerly.
EVALUATIONS = {"full": propagate_compiled, "diagonal": propagate}
