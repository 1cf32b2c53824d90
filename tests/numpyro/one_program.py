"""Moments in one program, where a test is not about evaluation operation by operation."""

from collections.abc import Callable
from typing import Any

from numpyro_moments import propagate
from tests.checks.jaxprs import by_numpy


def evaluated(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns for its arguments, which are traced."""
    return by_numpy(function)(*arguments)


def propagate_traced(function: Callable, *inputs: Any, **options: Any) -> Any:
    """Like ``propagate``; JAX would compile every operation by itself."""
    return evaluated(lambda *given: propagate(function, *given, **options), *inputs)
