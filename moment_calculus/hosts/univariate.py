"""Check that random parameters fit a univariate distribution, its constraints and its support."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moment_calculus.hosts.wording import gaussian_with_constraint, not_univariate
from moment_calculus.numerics.special import namespace
from moment_calculus.values import Gaussian, Value
from moment_calculus.values.layout import broadcasts_to


def check_univariate(fn: Any, arguments: Sequence[Value]) -> None:
    """Raise UnsupportedMoments unless the random parameters broadcast to a univariate batch."""
    fits = all(broadcasts_to(argument.shape, fn.batch_shape) for argument in arguments)
    if fn.event_dim or not fits:
        raise not_univariate(fn, frozenset().union(*(argument.sites for argument in arguments)))


def check_unconstrained(
    fn: Any,
    parameters: Iterable[tuple[str, Any, Any]],  # name, value and constraint
    is_real: Callable[[Any], bool],  # whether a constraint allows all real numbers
    *,
    link_names: str,  # names of functions with confined values, for the message
) -> None:
    """Raise UnsupportedMoments if a parameter is Gaussian although it has a constraint."""
    # A Gaussian leaves every interval: mass outside would be integrated without a
    # warning.
    for name, value, constraint in parameters:
        if isinstance(value, Gaussian) and not is_real(constraint):
            raise gaussian_with_constraint(
                name, fn, constraint, sites=value.sites, link_names=link_names
            )


def fill_outside_support(support: Any, value: Any, results: Any, below: float, above: float) -> Any:
    """Return a function's results, replaced where the value is below or above the support."""
    # Frameworks do not check this: a density formula goes on beyond an end that is a
    # parameter.
    low, high = support_bounds(support, lambda end: False)
    xp = namespace(results)
    return xp.where(value < low, below, xp.where(value > high, above, results))


def support_bounds(support: Any, is_random: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Return the ends between which all draws are; infinite where an end is random or missing."""
    ends = ("lower_bound", -math.inf), ("upper_bound", math.inf)
    candidates = [(getattr(support, name, None), other) for name, other in ends]
    low, high = (other if end is None or is_random(end) else end for end, other in candidates)
    if support.is_discrete and low == -math.inf:  # a boolean support has no ends
        low = 0
    return low, high
