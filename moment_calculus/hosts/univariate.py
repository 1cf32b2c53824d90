"""Check that random parameters fit a univariate distribution, its constraints and its support."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moment_calculus.hosts.wording import not_confined, not_univariate
from moment_calculus.numerics.special import namespace
from moment_calculus.values import Gaussian, Value
from moment_calculus.values.layout import broadcasts_to


def check_univariate(fn: Any, arguments: Sequence[Value]) -> None:
    """Raise UnsupportedMoments unless the random parameters broadcast to a univariate batch."""
    fits = all(broadcasts_to(fn.batch_shape, argument.shape) for argument in arguments)
    if fn.event_dim or not fits:
        raise not_univariate(fn, frozenset().union(*(argument.sites for argument in arguments)))


def check_confined(
    fn: Any,
    parameters: Iterable[tuple[str, Any, Any]],  # name, value and constraint
    is_real: Callable[[Any], bool],  # whether a constraint allows all real numbers
    *,
    links: str,  # names of functions with confined values, for the message
) -> None:
    """Raise UnsupportedMoments if a parameter is Gaussian although it has a constraint."""
    # A Gaussian leaves every interval: mass outside would be integrated without a warning.
    for name, value, constraint in parameters:
        if isinstance(value, Gaussian) and not is_real(constraint):
            raise not_confined(name, fn, constraint, sites=value.sites, links=links)


def within(support: Any, value: Any, found: Any, below: float, above: float) -> Any:
    """Return a function's results, replaced where the value is below or above the support."""
    # Frameworks do not check this: a density formula goes on beyond an end that is a parameter.
    low, high = bounds_of(support, lambda end: False)
    xp = namespace(found)
    return xp.where(value < low, below, xp.where(value > high, above, found))


def bounds_of(support: Any, is_random: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Return the ends between which all draws are; infinite where an end is random or missing."""
    ends = ("lower_bound", -math.inf), ("upper_bound", math.inf)
    found = [(getattr(support, name, None), other) for name, other in ends]
    low, high = (other if end is None or is_random(end) else end for end, other in found)
    if support.is_discrete and low == -math.inf:  # a boolean support has no ends
        low = 0
    return low, high
